"""Records of large runs in a third of the memory: numbers as numbers of C, and what is alike once.

Reports look at every trial of a run several times, so the trials stay in memory; as the dictionaries that
JSON is, a hundred thousand of them are 4 kB each.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from sys import intern
from typing import Any, NamedTuple

from msgspec.structs import replace

from proctor.model.record import Artifact, AttemptRecord

MOST_SHAPES = 10_000
"""Of a run whose records differ in more than their numbers, the rest stay as they are."""
_EXACT = 2**53
"""Whole numbers below are the same as floats."""
_NOTHING: Mapping[str, Any] = {}


class _Constant:
    """A value that many records have, for instance how a limit was enforced."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class _Shape(NamedTuple):
    """What records have in common: names, and for each where its number is or what it is."""

    parts: Mapping[str, tuple[int, Any]]
    """Name → place of the number and `int` or `float`; or where a mapping's numbers begin and its shape; or
    a constant."""


class Numbers(Mapping[str, Any]):
    """A mapping as it was read, of which only the numbers are its own."""

    __slots__ = ("_shape", "_start", "_values")

    def __init__(self, shape: _Shape, values: array[float], start: int = 0) -> None:
        self._shape = shape
        self._values = values
        self._start = start

    def __getitem__(self, name: str) -> Any:
        at, kind = self._shape.parts[name]
        if kind is float:
            return self._values[self._start + at]
        if kind is int:
            return int(self._values[self._start + at])
        if type(kind) is _Shape:
            return Numbers(kind, self._values, self._start + at)
        return kind.value

    def __iter__(self) -> Iterator[str]:
        return iter(self._shape.parts)

    def __len__(self) -> int:
        return len(self._shape.parts)

    def __repr__(self) -> str:
        return repr(dict(self))


class Compactor:
    """Makes the records of one run small."""

    def __init__(self) -> None:
        self._shapes: dict[tuple[Any, ...], _Shape] = {}
        self._constants: dict[str, _Constant] = {}

    def record(self, record: AttemptRecord, key: str) -> AttemptRecord:
        """The same record, smaller; `key` is the planned trial's own."""
        return replace(
            record,
            key=key,
            worker=intern(record.worker),
            notes=tuple(map(intern, record.notes)),
            phases_s=self._mapping(record.phases_s),
            metrics=self._mapping(record.metrics),
            ledger=self._mapping(record.ledger),
            usage=self._mapping(record.usage),
            artifacts=tuple(map(self._artifact, record.artifacts)),
            image=self._mapping(record.image),
            system_changes=record.system_changes or _NOTHING,
        )

    def _artifact(self, found: Artifact) -> Artifact:
        name = self._constant(found.name)
        return replace(found, name=name.value if name else found.name, media_type=intern(found.media_type))

    def _mapping(self, found: Mapping[str, Any]) -> Mapping[str, Any]:
        if not found:
            return _NOTHING
        values: list[float] = []
        shape = self._shape(found, values)
        return Numbers(shape, array("d", values)) if shape else found

    def _shape(self, found: Mapping[str, Any], values: list[float]) -> _Shape | None:
        """What it has in common with others, its numbers added to `values`; None when that is too little."""
        start = len(values)
        kinds: list[Any] = []
        places: list[int] = []
        for value in found.values():
            places.append(len(values) - start)
            kind: Any = type(value)
            if kind is float or (kind is int and -_EXACT < value < _EXACT):
                values.append(value)
            else:
                kind = self._shape(value, values) if kind is dict else self._constant(value)
                if kind is None:
                    return None
            kinds.append(kind)
        known = (*found, *map(id, kinds))
        shape = self._shapes.get(known)
        if shape is None and len(self._shapes) < MOST_SHAPES:
            parts = dict(zip(found, zip(places, kinds, strict=True), strict=True))
            shape = self._shapes[known] = _Shape(parts)
        return shape

    def _constant(self, value: Any) -> _Constant | None:
        # As text, because 1, 1.0 and true are equal and are not written alike.
        text = repr(value)
        if text not in self._constants and len(self._constants) < MOST_SHAPES:
            self._constants[text] = _Constant(value)
        return self._constants.get(text)
