"""What an experiment is, and the registry of them.

Imported inside measured processes, where starting up is most of the price of a comparison: so it imports
nothing that Python has not loaded by itself, and what only a failure or a type checker needs comes late.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod

TYPE_CHECKING = False
"""Like `typing.TYPE_CHECKING`."""

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import Any, ClassVar, Self, TypeVar

    _Class = TypeVar("_Class", bound="type[Experiment]")


class ExperimentContext:
    """What an experiment gets to know about its run. `iteration_index` moves with each call."""

    __slots__ = ("_output_dir", "_run_dir", "extras", "instruments", "iteration_index", "run_id", "seed")

    def __init__(
        self,
        run_id: str = "",
        output_dir: str | Path = ".",
        run_dir: str | Path = ".",
        iteration_index: int = 0,
        seed: int = 0,
        instruments: tuple[str, ...] = (),
        extras: dict[str, Any] | None = None,
    ) -> None:
        self.run_id = run_id
        self._output_dir = output_dir
        self._run_dir = run_dir
        self.iteration_index = iteration_index
        """Which call this is, from 0; warm-up calls count from below zero."""
        self.seed = seed
        self.instruments = instruments
        self.extras: dict[str, Any] = {} if extras is None else extras

    @property
    def output_dir(self) -> Path:
        """Where the whole run's files go."""
        self._output_dir = _path(self._output_dir)
        return self._output_dir

    @property
    def run_dir(self) -> Path:
        """A folder for this parameter point alone."""
        self._run_dir = _path(self._run_dir)
        return self._run_dir


def _path(place: str | Path) -> Path:
    if not isinstance(place, str):
        return place
    from pathlib import Path

    return Path(place)


class Experiment(ABC):
    """Something worth measuring: prepared by `setup`, measured in `execute_once`, cleaned by `teardown`."""

    param_schema: ClassVar[Mapping[str, Any] | None] = None
    """Its parameters; without it, they are read from the constructor's signature."""
    better: ClassVar[Mapping[str, str]] = {}
    """Metric → "higher" or "lower": which change is an improvement, where its name does not tell."""
    params: dict[str, Any]
    around_measuring: Callable[[ExperimentContext, Callable[[], None]], None] | None = None
    """In place of `setup` and `teardown`, where what was prepared lives on the stack of somebody else's code:
    it prepares, calls its second argument, in which everything is measured, and cleans up."""
    before_slot: Callable[[ExperimentContext], None] | None = None
    """Called before every timed slot, never timed: for code that changes what it works on."""
    slot_calls: int = 0
    """How many calls one slot has; 0: found by measuring. A `before_slot` needs it."""
    reader_notes: Sequence[str] = ()
    """What a reader of the numbers should know, found out while it ran."""

    def __new__(cls, *_args: Any, **named: Any) -> Self:
        """Give every experiment its `params`, also those whose constructor never calls ours."""
        experiment = super().__new__(cls)
        whole = named.pop("params", None)
        experiment.params = {**(whole if hasattr(whole, "keys") else {}), **named}
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
        """Clean up once, after the last call, also after an error; never timed."""


class Registered:
    """One entry of the registry."""

    __slots__ = ("cls", "file", "line", "slug", "summary", "tags")

    def __init__(
        self,
        *,
        slug: str,
        cls: type[Experiment],
        summary: str = "",
        tags: tuple[str, ...] = (),
        file: str = "",
        line: int = 0,
    ) -> None:
        self.slug = slug
        self.cls = cls
        self.summary = summary
        self.tags = tags
        self.file = file
        """Source file that called `register_experiment`."""
        self.line = line

    @property
    def place(self) -> str:
        """`file:line` for people."""
        return f"{self.file}:{self.line}"


REGISTRY: dict[str, Registered] = {}
"""Slug → experiment, of everything imported so far."""


def register_experiment(slug: str, summary: str = "", tags: Iterable[str] = ()) -> Callable[[_Class], _Class]:
    """Class decorator that makes an experiment known under `slug`, as specs call it."""
    frame = sys._getframe(1)  # noqa: SLF001 - the one way to know the line without importing inspect
    file, line = os.path.abspath(frame.f_code.co_filename), frame.f_lineno  # noqa: PTH100 - light
    if not _is_slug(slug):
        raise _usage_error(
            f'{file}:{line}: {slug!r} is not a valid experiment name; write @register_experiment("my_name") '
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
            raise _usage_error(
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
        raise _usage_error(f"{place}: '{name}' is not an experiment; derive it from proctor.Experiment")
    if "execute_once" in cls.__abstractmethods__:
        raise _usage_error(
            f"{place}: '{cls.__name__}' has no execute_once; define 'def execute_once(self, context)' "
            "that returns a dict of metrics"
        )


def construct(
    cls: type[Experiment], values: Mapping[str, Any], positional: Sequence[Any], named: Mapping[str, Any]
) -> Experiment:
    """An instance whose `params` are the values, made with these arguments of its own constructor."""
    experiment = cls.__new__(cls, **values)
    experiment.params = dict(values)
    cls.__init__(experiment, *positional, **named)
    return experiment


def _is_slug(slug: object) -> bool:
    """Letters, digits, `_`, `-` and `.`, beginning with a letter or digit."""
    return (
        isinstance(slug, str)
        and slug.isascii()
        and slug[:1].isalnum()
        and slug.replace("_", "").replace("-", "").replace(".", "").isalnum()
    )


def _usage_error(message: str) -> Exception:
    from proctor.errors import UsageError

    return UsageError(message)
