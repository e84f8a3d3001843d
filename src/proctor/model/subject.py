"""What is known of an experiment before it runs: its name, its digest and its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

REQUIRED = "<required>"
"""The default of a parameter that has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamInfo:
    """One parameter that an experiment declares."""

    name: str
    type: str = "any"
    """any, bool, int, float, str, list, dict"""
    default: Any = REQUIRED
    description: str = ""
    choices: tuple[Any, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    nullable: bool = False
    holds_list: bool = False
    """Whether a list is one of its values, beside others: `int | list[int]`. It is not swept then."""
    each: str = ""
    """Of a list: the type of its items, which choices and limits are about. One value is a list of one."""
    aliases: tuple[str, ...] = ()
    """Older names of it, which specs may use."""

    @property
    def required(self) -> bool:
        """Whether a spec must give it."""
        return isinstance(self.default, str) and self.default == REQUIRED


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentInfo:
    """A registered experiment, described without keeping its class."""

    slug: str
    digest: str
    """Changes when the experiment's source does."""
    summary: str = ""
    tags: tuple[str, ...] = ()
    params: Mapping[str, ParamInfo] = field(default_factory=dict)
    open_params: bool = False
    """Whether parameters beyond the declared ones are accepted (**kwargs)."""
    source: str = ""
    """The module or file that registered it."""
    better: Mapping[str, str] = field(default_factory=dict)
    """Metric → higher or lower, as its class declares it."""
