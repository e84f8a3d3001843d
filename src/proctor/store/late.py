"""Lists of a record that stay encoded until they are read.

The iterations of an experiment and the artifacts of a rollout are half of what is stored of a trial, and who
reads a hundred thousand trials looks at those of a few. As text they are also a third of the size.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar, overload

from proctor.model.record import Artifact
from proctor.store.body import column_of, flat_end, is_flat
from proctor.store.damage import decodes

T = TypeVar("T")

_ITERATIONS = b'{"iterations":'
_ARTIFACTS = b',"artifacts":'
_OBJECT = b'{"'
"""How an object begins that is not empty. Inside of text the quote would be escaped."""


class Late(Sequence[T], Generic[T]):
    """A list of flat objects. Equal to the tuple of the same things, and copied or pickled as that tuple."""

    __slots__ = ("_held",)
    part: ClassVar[str]
    """Which part of a record it is."""

    def __init__(self, written: bytes) -> None:
        self._held: bytes | tuple[T, ...] = written

    @staticmethod
    @abstractmethod
    def _made(decoded: list[dict[str, Any]]) -> tuple[T, ...]:
        """The values of the decoded objects."""

    @decodes
    def _all(self) -> tuple[T, ...]:
        held = self._held
        if isinstance(held, bytes):
            held = self._held = self._made(json.loads(held))
        return held

    def __len__(self) -> int:
        held = self._held
        return held.count(_OBJECT) if isinstance(held, bytes) else len(held)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[T, ...]: ...
    def __getitem__(self, at: int | slice) -> T | tuple[T, ...]:
        return self._all()[at]

    def __iter__(self) -> Iterator[T]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        return self._all() == (other._all() if isinstance(other, Late) else other)

    def __hash__(self) -> int:
        return hash(self._all())

    def __repr__(self) -> str:
        return repr(self._all())

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return tuple, (self._all(),)


class Iterations(Late[Mapping[str, Any]]):
    """The rows of an experiment."""

    __slots__ = ()
    part = "iterations"

    @staticmethod
    def _made(decoded: list[dict[str, Any]]) -> tuple[Mapping[str, Any], ...]:
        return tuple(decoded)

    def column(self, name: str) -> tuple[float, ...] | None:
        """One number of every row that has it, in order; None when the rows have been decoded."""
        held = self._held
        return column_of(held, name, 0, len(held)) if isinstance(held, bytes) else None


class Artifacts(Late[Artifact]):
    """The files of a rollout."""

    __slots__ = ()
    part = "artifacts"

    @staticmethod
    def _made(decoded: list[dict[str, Any]]) -> tuple[Artifact, ...]:
        return tuple([Artifact(**each) for each in decoded])


def set_aside(data: bytes) -> tuple[bytes, Late[Any] | None]:
    """A body without its first or last list, and that list, where it can be told without decoding.

    Where it cannot be told for certain, because something inside is nested, nothing is set aside.
    """
    if data.startswith(_ITERATIONS):
        end = flat_end(data)
        if end and data.find(b"{}", 0, end) < 0:
            return b"{" + data[end + 2 :], Iterations(data[len(_ITERATIONS) : end + 1])
    elif data.endswith(b"}]}"):
        at = data.rfind(_ARTIFACTS)
        start = at + len(_ARTIFACTS)
        if at > 0 and data.startswith(b'[{"', start) and is_flat(data, start + 1, len(data)):
            return data[:at] + b"}", Artifacts(data[start:-1])
    return data, None
