"""What an instrument is, the registry of them, and how a spec's list of names becomes instruments.

Only what barely disturbs the measurement rides along with the timed pass; the rest get a pass of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar

from proctor.errors import MissingExtraError, UsageError
from proctor.model.spec import InstrumentSpec

ENTRY_POINTS = "proctor.instruments"


class Instrument:
    """Measures around `execute_once`: entered before the timer starts, left after it has stopped."""

    name: ClassVar[str] = ""
    rides_along: ClassVar[bool] = False
    """Whether it may run in the timed pass. If not, it gets a fresh process and a few iterations."""
    defaults: ClassVar[Mapping[str, Any]] = {}
    """Its options and their defaults; a spec may set only these."""
    slowdown: ClassVar[float] = 10.0
    """How much slower the code may get: the time limit of its own pass is multiplied by this."""
    iterations: int = 3
    """Iterations of its own pass; any instrument that has one takes this option."""
    older: ClassVar[Mapping[str, str]] = {}
    """Names that the older framework had for its options → the name here."""
    needs: ClassVar[tuple[str, str] | None] = None
    """The package it needs and the extra that has it."""

    def __init__(self, **options: Any) -> None:
        self.iterations = options.pop("iterations", self.iterations)
        self.options: dict[str, Any] = {**self.defaults, **options}
        self.folder = Path()

    def open(self, folder: Path) -> None:
        """A pass begins. Files left in `folder` become artifacts; make it when there is one to leave."""
        self.folder = folder

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def metrics(self) -> Mapping[str, float]:
        """Numbers of the iteration that just ended; they join its row as `<instrument>.<name>`."""
        return {}

    def close(self) -> Mapping[str, Any]:
        """The pass is over: write files, give a summary."""
        return {}


class Sampler(Instrument):
    """Looks at the measured process from outside, from time to time; costs it nothing."""

    rides_along = True
    defaults: ClassVar[Mapping[str, Any]] = {"interval_ms": 100}

    @property
    def interval_s(self) -> float:
        """Time between looks; below 50 ms the looking itself would be measured."""
        return max(50.0, float(self.options["interval_ms"])) / 1000

    def sample(self, pid: int) -> None:
        """Look once. A process that has gone is no error."""
        raise NotImplementedError


class Wrapper(Instrument):
    """Runs the point in a process of its own under another program."""

    def runs(self) -> Sequence[int]:
        """How many calls each of its runs makes."""
        raise NotImplementedError

    def wrap(self, command: Sequence[str], run: int) -> list[str]:
        """The command line that runs `command`, which makes one of the runs, under the program."""
        raise NotImplementedError


_Registrable = TypeVar("_Registrable", bound=Callable[..., Any])

INSTRUMENTS: dict[str, Callable[..., Any]] = {}
"""Name → class, registered by decorator. Built-in ones and entry points are loaded when asked for."""

_PLACES: dict[str, tuple[str, str]] = {}
"""Name → file and definition that registered it."""

_BUILT_IN = {
    "timing": "proctor.instruments.timing:Timing",
    "psutil": "proctor.instruments.psutil:Psutil",
    "cprofile": "proctor.instruments.cprofile:CProfile",
    "tracemalloc": "proctor.instruments.memory:Tracemalloc",
    "memray": "proctor.instruments.memory:Memray",
    "pyinstrument": "proctor.instruments.pyinstrument:Pyinstrument",
    "counters": "proctor.instruments.counters:Counters",
    "cachegrind": "proctor.instruments.cachegrind:Cachegrind",
}


def register_instrument(name: str) -> Callable[[_Registrable], _Registrable]:
    """Make an instrument known under `name`: an `Instrument`, or anything that makes a context manager."""
    file = sys._getframe(1).f_code.co_filename  # noqa: SLF001 - known without importing inspect

    def register(make: _Registrable) -> _Registrable:
        # A module that is imported twice registers the same thing twice, and that is fine.
        place = (file, make.__qualname__)
        if name in _BUILT_IN or _PLACES.setdefault(name, place) != place:
            raise UsageError(f"an instrument named '{name}' already exists; choose another name")
        if isinstance(make, type) and issubclass(make, Instrument):
            make.name = name
        INSTRUMENTS[name] = make
        return make

    return register


def names() -> list[str]:
    """Every instrument that can be asked for here."""
    return sorted({*_BUILT_IN, *INSTRUMENTS, *(point.name for point in _entry_points())})


def find(name: str) -> Callable[..., Any]:
    """What makes the instrument of that name; UsageError with the nearest name when there is none."""
    if name in _BUILT_IN:
        return _load(_BUILT_IN[name])
    if name in INSTRUMENTS:
        return INSTRUMENTS[name]
    for point in _entry_points():
        if point.name == name:
            make: Callable[..., Any] = point.load()
            return make
    near = _nearest(name, names())
    hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(names())}"
    raise UsageError(f"no instrument named '{name}'; {hint}")


def create(spec: InstrumentSpec) -> Instrument:
    """An instrument with its options checked. MissingExtraError when its package is not installed."""
    make: Any = find(spec.name)
    if not (isinstance(make, type) and issubclass(make, Instrument)):
        return _Plain(spec.name, make, spec.options)
    known = make.defaults if make.rides_along else {"iterations": make.iterations, **make.defaults}
    options = _renamed(spec, make.older)
    for option, value in options.items():
        _check_option(spec.name, known, option, value)
    if make.needs and not _installed(make.needs[0]):
        raise MissingExtraError(*make.needs, f"the instrument '{spec.name}'")
    instrument = make(**options)
    # An entry point's class may have been registered under no name at all.
    type(instrument).name = type(instrument).name or spec.name
    return instrument


@dataclass(frozen=True, slots=True)
class Resolved:
    """A spec's instruments, sorted by how they run."""

    riding: tuple[InstrumentSpec, ...]
    own_pass: tuple[InstrumentSpec, ...]


def resolve(specs: Sequence[InstrumentSpec]) -> Resolved:
    """Check every name, option and package now, before anything runs, and say which need their own pass."""
    riding: list[InstrumentSpec] = []
    own_pass: list[InstrumentSpec] = []
    seen: set[str] = set()
    for spec in _with_companions(specs):
        if spec.name in seen:
            raise UsageError(f"the instrument '{spec.name}' is listed twice")
        seen.add(spec.name)
        (riding if create(spec).rides_along else own_pass).append(spec)
    return Resolved(tuple(riding), tuple(own_pass))


def _with_companions(specs: Sequence[InstrumentSpec]) -> Iterator[InstrumentSpec]:
    """`counters` with `cachegrind: true` is two instruments: one rides along, one never could."""
    for spec in specs:
        yield spec
        if spec.name == "counters" and spec.options.get("cachegrind") is True:
            yield InstrumentSpec(name="cachegrind")


def _renamed(spec: InstrumentSpec, older: Mapping[str, str]) -> dict[str, Any]:
    """Options under the names they have here."""
    options = dict(spec.options)
    for old in older.keys() & options.keys():
        if older[old] in options:
            raise UsageError(
                f"the instrument '{spec.name}': '{old}' means the same as '{older[old]}'; keep one of them"
            )
        options[older[old]] = options.pop(old)
    return options


def _check_option(name: str, defaults: Mapping[str, Any], option: str, value: Any) -> None:
    if option not in defaults:
        near = _nearest(option, list(defaults))
        known = ", ".join(defaults) or "none"
        hint = f"did you mean '{near[0]}'?" if near else f"its options: {known}"
        raise UsageError(f"the instrument '{name}' has no option '{option}'; {hint}")
    kind = type(defaults[option])
    fits = isinstance(value, kind) or (kind is float and isinstance(value, int))
    if not fits or (isinstance(value, bool) and kind is not bool):
        raise UsageError(f"the instrument '{name}': {option} is {value!r}, which is not {kind.__name__}")
    if not isinstance(value, bool | str) and value <= 0:
        raise UsageError(f"the instrument '{name}': {option} is {value!r}, but must be above 0")


def _nearest(name: str, known: list[str]) -> list[str]:
    from difflib import get_close_matches

    return get_close_matches(name, known, 1)


def _installed(package: str) -> bool:
    from importlib.util import find_spec

    return find_spec(package) is not None


def _load(place: str) -> Callable[..., Any]:
    module, _, attribute = place.partition(":")
    make: Callable[..., Any] = getattr(import_module(module), attribute)
    return make


def _entry_points() -> list[Any]:
    from importlib.metadata import entry_points

    return list(entry_points(group=ENTRY_POINTS))


def _signature(make: Callable[..., Any]) -> Any:
    import inspect

    return inspect.signature(make)


def _takes_context(make: Callable[..., Any]) -> bool:
    """Whether its first argument is the context: it must be given, and by position."""
    try:
        first = next(iter(_signature(make).parameters.values()), None)
    except (TypeError, ValueError):
        return False
    return (
        first is not None
        and first.kind in {first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD}
        and (first.default is first.empty or first.name == "context")
        and first.name in {"context", "ctx", "_context", "_ctx", "_"}
    )


class _Plain(Instrument):
    """A context manager that someone registered without deriving from `Instrument`; never rides along."""

    def __init__(
        self, name: str, make: Callable[..., AbstractContextManager[Any]], options: Mapping[str, Any]
    ) -> None:
        super().__init__(**options)
        self._name = name
        self._make = make
        self._current: AbstractContextManager[Any] | None = None
        self._value: Any = None
        self.context: Any = None
        """Of the measured point, for those that take it, as in the older framework: `cm(context)`."""
        self._takes_context = _takes_context(make)
        try:
            if self._takes_context:
                _signature(make).bind(None, **self.options)
            else:
                self._new()
        except TypeError as error:
            raise UsageError(f"the instrument '{name}' does not take these options: {error}") from None

    def _new(self) -> AbstractContextManager[Any]:
        given = (self.context,) if self._takes_context else ()
        made = self._make(*given, **self.options)
        if not (hasattr(made, "__enter__") and hasattr(made, "__exit__")):
            raise UsageError(
                f"the instrument '{self._name}' returned {type(made).__name__}, not a context manager"
            )
        return made

    def __enter__(self) -> Self:
        self._current = self._new()
        self._value = self._current.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._current is not None:
            self._current.__exit__(kind, error, trace)

    def metrics(self) -> Mapping[str, float]:
        """What it yielded, when that is a mapping of numbers, which it may fill until it is left."""
        given = self._value if isinstance(self._value, Mapping) else {}
        return {str(name): value for name, value in given.items() if isinstance(value, int | float)}
