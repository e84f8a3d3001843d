"""The parameters of an experiment: checked against what it declares, and crossed in full or drawn at random.

The order and the draw depend on the spec and its seed alone, so they are the same on every machine.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from proctor.errors import ParamError, SpecError
from proctor.model.canonical import canonical_json, derive_seed
from proctor.model.secret import is_reference
from proctor.model.subject import REQUIRED, ExperimentInfo, ParamInfo
from proctor.spec.node import NO, YES, found, nearest

if TYPE_CHECKING:
    from proctor.model.spec import ExperimentBody

MAX_POINTS = 100_000
PlaceOf = Callable[[str], str]
"""Where a parameter was written, for the start of an error message; empty when unknown."""

_EXPECTED = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "list": "a list",
    "dict": "a mapping",
}


def nowhere(name: str) -> str:
    """The place of parameters that came from code."""
    del name
    return ""


def validate_params(
    info: ExperimentInfo, params: Mapping[str, Any], *, place: PlaceOf = nowhere
) -> dict[str, Any]:
    """Every parameter with its value, in declared order; a ParamError says which one does not fit and why."""
    renamed = present_names(info, params, place=place)
    params = {renamed.get(name, name): value for name, value in params.items()}
    check_names(info, params, place=place)
    given = {name: check_value(info, name, value, place=place) for name, value in params.items()}
    return complete(info, given)


def present_names(info: ExperimentInfo, names: Iterable[str], *, place: PlaceOf = nowhere) -> dict[str, str]:
    """Of the names given, those that are older ones, with the present one of each."""
    given = set(names)
    older = {alias: param.name for param in info.params.values() for alias in param.aliases}
    found = {name: older[name] for name in older if name in given and name not in info.params}
    for name, present in found.items():
        if present in given or list(found.values()).count(present) > 1:
            raise _refused(
                place(name), f"'{name}' is an older name of '{present}', which is given too; keep one"
            )
    return found


def check_names(info: ExperimentInfo, names: Iterable[str], *, place: PlaceOf = nowhere) -> None:
    """Refuse parameters that the experiment does not have, and miss those that it needs."""
    given = list(names)
    if not info.open_params:
        for name in given:
            if name not in info.params:
                known = (*info.params, *(each for param in info.params.values() for each in param.aliases))
                hint = nearest(name, known) or "; it has no parameters"
                raise _refused(place(name), f"'{name}' is not a parameter of '{info.slug}'{hint}")
    missing = [name for name, param in info.params.items() if param.required and name not in given]
    if missing:
        needs = ", ".join(f"'{name}'" for name in missing)
        raise _refused(place(""), f"'{info.slug}' needs {needs}; give it under 'params' or 'sweep'")


def check_defaults(info: ExperimentInfo, given: Iterable[str], *, place: PlaceOf = nowhere) -> None:
    """Refuse a default that would be used and cannot be part of a trial's key."""
    for name in info.params.keys() - set(given):
        if not _is_json(info.params[name].default):
            message = (
                f"the default of '{name}' of '{info.slug}' cannot be written as JSON; give it in the spec"
            )
            raise _refused(place(""), message)


def check_value(info: ExperimentInfo, name: str, value: Any, *, place: PlaceOf = nowhere) -> Any:
    """The value as the experiment will get it: whole numbers become floats where a float is declared."""
    if not _is_json(value):
        raise _refused(
            place(name), f"parameter '{name}' of '{info.slug}': the value cannot be written as JSON"
        )
    param = info.params.get(name)
    if param is None or is_reference(value):
        return value
    problem, value = _fit(param, value)
    if problem:
        raise _refused(place(name), f"parameter '{name}' of '{info.slug}': {problem}")
    return value


def complete(info: ExperimentInfo, given: Mapping[str, Any]) -> dict[str, Any]:
    """Checked values with defaults for the rest: declared ones in declared order, then the others."""
    declared = {
        name: given.get(name, param.default)
        for name, param in info.params.items()
        if name in given or not param.required
    }
    return {**declared, **{name: value for name, value in given.items() if name not in declared}}


def _is_json(value: Any) -> bool:
    try:
        canonical_json(value).encode()
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _refused(place: str, message: str) -> ParamError:
    return ParamError(f"{place}: {message}" if place else message)


def _fit(param: ParamInfo, value: Any) -> tuple[str, Any]:  # noqa: PLR0911 - one line per reason
    """What is wrong, or nothing, and the value in the declared type."""
    if value is None:
        allowed = param.nullable or param.default is None or param.type not in _EXPECTED
        return ("" if allowed else f"expected {_EXPECTED[param.type]}, found nothing"), None
    if param.type == "list" and param.each:
        return _fit_each(param, value)
    fits, value = _convert(param.type, value)
    if not fits:
        hint = "; put it in quotes" if param.type == "str" and isinstance(value, int | float) else ""
        return f"expected {_EXPECTED[param.type]}, found {found(value)}{hint}", value
    if param.choices and not any(_same(value, choice) for choice in param.choices):
        chosen = _respelt(param, value)
        return ("", chosen) if chosen is not None else (_not_a_choice(param, value), value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        if param.minimum is not None and value < param.minimum:
            return f"expected at least {param.minimum:g}, found {value}", value
        if param.maximum is not None and value > param.maximum:
            return f"expected at most {param.maximum:g}, found {value}", value
    return "", value


def _fit_each(param: ParamInfo, value: Any) -> tuple[str, Any]:
    """A list whose items fit; a single value is a list of one, which is what a sweep over it gives."""
    items = list(value) if isinstance(value, list | tuple) else [value]
    if not items:
        return "expected at least one value, found an empty list", value
    item = replace(param, type=param.each, each="", nullable=False, default=REQUIRED)
    fitted = [_fit(item, each) for each in items]
    return next((problem for problem, _ in fitted if problem), ""), [each for _, each in fitted]


def _respelt(param: ParamInfo, value: Any) -> Any:
    """The choice that differs from the value in hyphens and underscores alone."""
    if not isinstance(value, str):
        return None
    folded = {each.replace("-", "_"): each for each in param.choices if isinstance(each, str)}
    return folded.get(value.replace("-", "_"))


def _same(value: Any, choice: Any) -> bool:
    return bool(value == choice) and isinstance(value, bool) == isinstance(choice, bool)


def _not_a_choice(param: ParamInfo, value: Any) -> str:
    texts = [choice for choice in param.choices if isinstance(choice, str)]
    hint = nearest(value, texts) if isinstance(value, str) else ""
    if "did you mean" not in hint:
        hint = f"; choose from {', '.join(map(str, param.choices))}"
    return f"{found(value)} is not a choice{hint}"


def _convert(kind: str, value: Any) -> tuple[bool, Any]:  # noqa: PLR0911 - one line per type reads best
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match kind:
        case "bool":
            if isinstance(value, str) and value.lower() in YES | NO:
                return True, value.lower() in YES
            return isinstance(value, bool), value
        case "int":
            if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
                return True, int(value)
            return is_number and isinstance(value, int), value
        case "float":
            return is_number, _as_float(value) if is_number else value
        case "str":
            return isinstance(value, str), value
        case "list":
            return isinstance(value, list | tuple), list(value) if isinstance(value, tuple) else value
        case "dict":
            return isinstance(value, Mapping), value
    return True, value


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """What is fixed, what varies, and what a person should know about it."""

    fixed: Mapping[str, Any]
    axes: Mapping[str, tuple[Any, ...]]
    warnings: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """How many points the whole grid has; it may be far more than anyone would run."""
        return math.prod(len(values) for values in self.axes.values())

    def point(self, index: int) -> dict[str, Any]:
        """The values of the axes at one place in the grid; the last axis turns fastest."""
        values: dict[str, Any] = {}
        for name, axis in reversed(list(self.axes.items())):
            index, at = divmod(index, len(axis))
            values[name] = axis[at]
        return {name: values[name] for name in self.axes}


def grid(body: ExperimentBody, info: ExperimentInfo, *, place: PlaceOf = nowhere) -> Grid:
    """Separate what is fixed from what varies, with every value checked once.

    A list under `params` varies unless the declared type of the parameter can hold a list. `sweep` always
    varies, and wins over a fixed value of the same name.
    """
    axes: dict[str, Sequence[Any]] = {}
    fixed: dict[str, Any] = {}
    written = present_names(info, (*body.params, *body.sweep), place=place)
    warnings = [f"{info.slug}: '{name}' is called '{present}' now" for name, present in written.items()]
    place = _place_by_present_name(place, written)
    for name, value in _by_present_name(body.params, written):
        known = info.params.get(name)
        takes_list = known is not None and (known.type == "list" or known.holds_list)
        if isinstance(value, list | tuple) and not takes_list:
            axes[name] = value
        else:
            fixed[name] = value
    for name, values in _by_present_name(body.sweep, written):
        if name in axes:
            raise _error(place(name), f"'{name}' is swept twice: under 'params' and under 'sweep'; keep one")
        if name in fixed:
            warnings.append(f"{info.slug}: 'sweep' varies '{name}', so its value under 'params' is not used")
            del fixed[name]
        axes[name] = values
    check_names(info, (*fixed, *axes), place=place)
    check_defaults(info, (*fixed, *axes), place=place)
    return Grid(
        fixed={name: check_value(info, name, value, place=place) for name, value in fixed.items()},
        axes={name: _axis(info, name, values, warnings, place) for name, values in axes.items()},
        warnings=tuple(warnings),
    )


def _place_by_present_name(place: PlaceOf, renamed: Mapping[str, str]) -> PlaceOf:
    older = {present: name for name, present in renamed.items()}
    return lambda name: place(older.get(name, name))


def _by_present_name(given: Mapping[str, Any], renamed: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    for name, value in given.items():
        yield renamed.get(name, name), value


def _axis(
    info: ExperimentInfo, name: str, values: Sequence[Any], warnings: list[str], place: PlaceOf
) -> tuple[Any, ...]:
    if not values:
        raise _error(place(name), f"the list of values to sweep for '{name}' is empty")
    checked = [check_value(info, name, value, place=place) for value in values]
    distinct: dict[str, Any] = {}
    for value in checked:
        distinct.setdefault(canonical_json(value), value)
    if len(distinct) < len(checked):
        warnings.append(f"{info.slug}: '{name}' lists a value more than once; each is measured once")
    return tuple(distinct.values())


def points(body: ExperimentBody, info: ExperimentInfo, seed: int) -> list[dict[str, Any]]:
    """The full parameters of every point to measure, in order, defaults filled in."""
    found, _ = expand_points(body, info, seed)
    return list(found)


def expand_points(
    body: ExperimentBody, info: ExperimentInfo, seed: int, *, place: PlaceOf = nowhere
) -> tuple[Iterator[dict[str, Any]], tuple[str, ...]]:
    """The points one by one, and what a person should know about them. Errors come before the first point."""
    made = grid(body, info, place=place)
    chosen, warnings = _chosen(body, made, seed, place)
    complete_points = (complete(info, {**made.fixed, **made.point(index)}) for index in chosen)
    return complete_points, (*made.warnings, *warnings)


def _chosen(
    body: ExperimentBody, made: Grid, seed: int, place: PlaceOf
) -> tuple[Sequence[int], tuple[str, ...]]:
    size, slug = made.size, body.experiment
    shape = " × ".join(f"{name} ({len(values)})" for name, values in made.axes.items())
    if body.strategy == "cartesian":
        if size > MAX_POINTS:
            advice = "use 'strategy: random' with 'samples', or fewer values"
            message = f"'{slug}' has {_count(size)} points, {shape}; the maximum is {MAX_POINTS:,}: {advice}"
            raise _error(place(""), message)
        return range(size), ()
    samples = body.samples or 1
    if min(samples, size) > MAX_POINTS:
        raise _error(place(""), f"'{slug}' has {samples:,} samples; the maximum is {MAX_POINTS:,}")
    if samples >= size:
        known = (
            f"{slug}: {samples:,} samples requested, but the grid has only {_count(size)} points: all are run"
        )
        return range(size), (known,) if samples > size else ()
    return draw(size, samples, derive_seed(seed, "sweep", slug)), ()


def draw(size: int, samples: int, seed: int) -> list[int]:
    """Distinct indexes below `size`, ascending. More samples with the same seed keep the earlier ones.

    By hashing, not by `random`, whose sampling may change between Python versions; and without listing the
    grid when it is large.
    """
    if size <= 2 * MAX_POINTS:
        ranked = sorted(range(size), key=lambda index: _hashed(seed, index, 32))
        return sorted(ranked[:samples])
    wide = size.bit_length() // 8 + 16
    drawn: set[int] = set()
    turn = 0
    while len(drawn) < samples:
        drawn.add(int.from_bytes(_hashed(seed, turn, wide)) % size)
        turn += 1
    return sorted(drawn)


def _hashed(seed: int, number: int, length: int) -> bytes:
    return hashlib.shake_256(f"{seed}:{number}".encode()).digest(length)


def _count(size: int) -> str:
    return f"{size:,}" if size < 10**15 else f"about 10^{int(math.log10(size))}"


def _error(place: str, message: str) -> SpecError:
    return SpecError(f"{place}: {message}" if place else message)
