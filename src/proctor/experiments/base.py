"""What an experiment is, and the registry of them. Imported inside measured processes, so it stays light."""

from __future__ import annotations

import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from proctor.errors import UsageError

_SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(slots=True)
class ExperimentContext:
    """What an experiment is told about the run it is part of. `iteration_index` moves with each call."""

    run_id: str = ""
    output_dir: Path = Path()
    """Where the whole run's files go."""
    run_dir: Path = Path()
    """A folder for this parameter point alone."""
    iteration_index: int = 0
    """Which call this is, from 0; warm-up calls count from below zero."""
    seed: int = 0
    instruments: tuple[str, ...] = ()
    extras: dict[str, Any] = field(default_factory=dict)


class Experiment(ABC):
    """Something worth measuring: prepared by `setup`, measured in `execute_once`, cleaned by `teardown`."""

    param_schema: ClassVar[Mapping[str, Any] | None] = None
    """The parameters it takes; left out, the constructor's signature says."""
    params: dict[str, Any]

    def __new__(cls, *_args: Any, **named: Any) -> Self:
        """Give every experiment its `params`, also those whose constructor never calls ours."""
        experiment = super().__new__(cls)
        whole = named.pop("params", None)
        experiment.params = {**(whole if isinstance(whole, Mapping) else {}), **named}
        return experiment

    def __init__(self, params: Mapping[str, Any] | None = None, **named: Any) -> None:
        defaults: dict[str, Any] = {}
        if self.param_schema:
            from proctor.experiments.schema import declared_defaults

            defaults = declared_defaults(self.param_schema)
        self.params = {**defaults, **self.params, **(params or {}), **named}

    def setup(self, context: ExperimentContext) -> None:  # noqa: B027 - optional for an experiment
        """Prepare once, before any call; never timed."""

    @abstractmethod
    def execute_once(self, context: ExperimentContext) -> dict[str, Any]:
        """Do the work that is timed and return metrics: names to JSON values."""

    def teardown(self, context: ExperimentContext) -> None:  # noqa: B027 - same
        """Clean up once, after the last call, whatever happened; never timed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """One entry of the registry."""

    slug: str
    cls: type[Experiment]
    summary: str = ""
    tags: tuple[str, ...] = ()
    file: str = ""
    """Source file that called `register_experiment`."""
    line: int = 0

    @property
    def place(self) -> str:
        """`file:line` for people."""
        return f"{self.file}:{self.line}"


REGISTRY: dict[str, Registered] = {}
"""Slug → experiment, of everything imported so far."""

_Class = TypeVar("_Class", bound=type[Experiment])


def register_experiment(slug: str, summary: str = "", tags: Iterable[str] = ()) -> Callable[[_Class], _Class]:
    """Class decorator that makes an experiment known under `slug`, as specs call it."""
    frame = sys._getframe(1)  # noqa: SLF001 - the one way to know the line without importing inspect
    file, line = os.path.abspath(frame.f_code.co_filename), frame.f_lineno  # noqa: PTH100 - light
    if not isinstance(slug, str) or not _SLUG.fullmatch(slug):
        raise UsageError(
            f'{file}:{line}: {slug!r} cannot name an experiment; write @register_experiment("my_name") '
            "with letters, digits, '_', '-' and '.'"
        )

    def register(cls: _Class) -> _Class:
        _require_experiment(cls, f"{file}:{line}")
        doc = (cls.__dict__.get("__doc__") or "").strip()
        entry = Registered(
            slug=slug,
            cls=cls,
            summary=summary or doc.partition("\n")[0],
            tags=(tags,) if isinstance(tags, str) else tuple(tags),
            file=file,
            line=line,
        )
        other = REGISTRY.get(slug)
        if other and not same_class(other, entry):
            raise UsageError(
                f"experiment '{slug}' is registered twice: at {other.place} and at {entry.place}"
            )
        REGISTRY[slug] = entry
        return cls

    return register


def same_class(one: Registered, other: Registered) -> bool:
    """Whether two entries are one class, perhaps imported twice or under two module names."""
    return one.cls is other.cls or (one.file == other.file and one.cls.__qualname__ == other.cls.__qualname__)


def _require_experiment(cls: object, place: str) -> None:
    if not (isinstance(cls, type) and issubclass(cls, Experiment)):
        name = getattr(cls, "__name__", repr(cls))
        raise UsageError(f"{place}: '{name}' is not an experiment; derive it from proctor.Experiment")
    if "execute_once" in cls.__abstractmethods__:
        raise UsageError(
            f"{place}: '{cls.__name__}' has no execute_once; define 'def execute_once(self, context)' "
            "that returns a dict of metrics"
        )
