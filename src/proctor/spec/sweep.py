"""The parameter points of one experiment: fixed values, and axes crossed in full or drawn at random.

The order and the draw depend on the spec and its seed alone, so they are the same on every machine.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proctor.errors import SpecError
from proctor.model.canonical import canonical_json, derive_seed
from proctor.model.spec import ExperimentBody
from proctor.model.subject import ExperimentInfo
from proctor.spec.params import Place, check_defaults, check_names, check_value, complete, nowhere

MAX_POINTS = 100_000


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


def grid(body: ExperimentBody, info: ExperimentInfo, *, place: Place = nowhere) -> Grid:
    """Separate what is fixed from what varies, with every value checked once.

    A list under `params` varies unless the declared type of the parameter can hold a list. `sweep` always
    varies, and wins over a fixed value of the same name.
    """
    warnings: list[str] = []
    axes: dict[str, Sequence[Any]] = {}
    fixed: dict[str, Any] = {}
    for name, value in body.params.items():
        known = info.params.get(name)
        takes_list = known is not None and (known.type == "list" or known.holds_list)
        if isinstance(value, list | tuple) and not takes_list:
            axes[name] = value
        else:
            fixed[name] = value
    for name, values in body.sweep.items():
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


def _axis(
    info: ExperimentInfo, name: str, values: Sequence[Any], warnings: list[str], place: Place
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
    body: ExperimentBody, info: ExperimentInfo, seed: int, *, place: Place = nowhere
) -> tuple[Iterator[dict[str, Any]], tuple[str, ...]]:
    """The points one by one, and what a person should know about them. Errors come before the first point."""
    made = grid(body, info, place=place)
    chosen, warnings = _chosen(body, made, seed, place)
    complete_points = (complete(info, {**made.fixed, **made.point(index)}) for index in chosen)
    return complete_points, (*made.warnings, *warnings)


def _chosen(
    body: ExperimentBody, made: Grid, seed: int, place: Place
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
