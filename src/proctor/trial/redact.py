"""Take secrets out of bytes, streams, files and plain data before anything is kept.

Values are known; their names are shown instead. Without secrets nothing is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from proctor.model.record import AttemptRecord
from proctor.model.secret import SHORTEST, credentials_in
from proctor.trial.encodings import STRETCH, Shapes, shapes

_SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL)", re.IGNORECASE)
"""Wider than `looks_secret`: here a variable too many costs a word of a log, one too few is a leak."""
_SHORTEST_UNNAMED = 8
"""For variables that only look secret: a shorter value would redact ordinary words."""
_SCHEME = re.compile(r"(?:bearer|basic|token) +(?P<rest>\S+)", re.IGNORECASE)
_BEGINNING = 4
_BEGINNING_BYTES = 64
"""As much as the first characters of a shape take; where they are not seen, only this much is held back."""
_NOT_FOREIGN = frozenset({"key", "number", "outcome", "worker", "artifacts", "failure"})
"""Fields of a record in which nobody else's text is, or that are cleaned in another way."""


def secrets_in(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables whose name says that their value is secret, and the passwords of addresses in others."""
    found: dict[str, str] = {}
    for name, value in environ.items():
        if _SECRET_NAME.search(name) and len(value) >= _SHORTEST_UNNAMED:
            found[name] = value
        elif "@" in value:
            found |= addresses_in(name, value)
    return found


def addresses_in(name: str, value: str) -> dict[str, str]:
    """The passwords of the addresses in a text, each under a name of its own."""
    return {
        name if not number else f"{name}.{number}": each for number, each in enumerate(credentials_in(value))
    }


class Redactor:
    """Replaces known secrets in every shape they have, also where one is split over two chunks."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self.secrets = {name: value for name, value in secrets.items() if len(value) >= SHORTEST}
        found = [
            shape
            for name, value in self.secrets.items()
            for text in (value, *_without_scheme(value))
            for shape in shapes(text, name)
        ]
        self._shapes = Shapes.of(found)
        self._beginnings = Shapes.of([replace(shape, needle=shape.needle[:_BEGINNING]) for shape in found])
        longest = max(
            (len(value.encode(errors="surrogateescape")) for value in self.secrets.values()), default=0
        )
        self.overlap = longest * STRETCH
        self.shortest = min((len(shape.needle) for shape in found), default=0)

    def __bool__(self) -> bool:
        return bool(self.secrets)

    def whole(self, data: bytes) -> bytes:
        """All of it at once."""
        if not self.secrets:
            return data
        return self._without(data, self.spans(data))

    def spans(self, data: bytes) -> list[tuple[int, int, bytes]]:
        """Where secrets are: start, end, and what is written instead; one span where several overlap."""
        found = [span for shape in self._shapes.present(data) for span in shape.spans(data)]
        joined: list[tuple[int, int, bytes]] = []
        for start, end, marker in sorted(found, key=lambda span: (span[0], -span[1])):
            if joined and start < joined[-1][1]:
                joined[-1] = (joined[-1][0], max(end, joined[-1][1]), joined[-1][2])
            else:
                joined.append((start, end, marker))
        return joined

    @staticmethod
    def _without(data: bytes, spans: Sequence[tuple[int, int, bytes]]) -> bytes:
        if not spans:
            return data
        parts: list[bytes] = []
        at = 0
        for start, end, marker in spans:
            parts += [data[at:start], marker]
            at = end
        return b"".join([*parts, data[at:]])

    def first_part(self, data: bytes) -> tuple[bytes, bytes]:
        """What of a stream's data can be written now, clean, and what must wait for more, as it is."""
        cut = max(0, len(data) - self.overlap)
        if not self._beginnings.present(data[cut:]):
            cut = max(cut, len(data) - _BEGINNING_BYTES)
        spans = self.spans(data)
        cut = next((start for start, end, _ in spans if start < cut < end), cut)
        return self._without(data[:cut], [span for span in spans if span[1] <= cut]), data[cut:]

    def found_in(self, chunks: Iterable[bytes]) -> bool:
        """Whether a stream seems to hold a secret."""
        held = b""
        for chunk in chunks if self.secrets else ():
            held += chunk
            if self._shapes.present(held):
                return True
            held = held[-self.overlap :]
        return False

    def text(self, data: str) -> str:
        """A text."""
        if len(data) < self.shortest or not self.secrets:
            return data
        raw = data.encode(errors="surrogateescape")
        clean = self.whole(raw)
        return data if clean is raw else clean.decode(errors="surrogateescape")

    def value(self, data: Any) -> Any:
        """Plain data, the names of its keys among it."""
        return self._value(data, {}) if self.secrets else data

    def _value(self, data: Any, known: dict[str, str]) -> Any:
        if isinstance(data, str):
            if data not in known:
                known[data] = self.text(data)
            return known[data]
        if isinstance(data, Mapping):
            return {self._value(key, known): self._value(each, known) for key, each in data.items()}
        if isinstance(data, list):
            return [self._value(each, known) for each in data]
        if isinstance(data, tuple):
            return tuple(self._value(each, known) for each in data)
        return data

    def record(self, record: AttemptRecord) -> AttemptRecord:
        """What is stored of an attempt."""
        if not self.secrets:
            return record
        failure = record.failure
        if failure:
            failure = structs.replace(
                failure, message=self.text(failure.message), traceback=self.text(failure.traceback)
            )
        names = [name for name in record.__struct_fields__ if name not in _NOT_FOREIGN]
        cleaned = {name: self.value(getattr(record, name)) for name in names}
        return structs.replace(record, failure=failure, **cleaned)

    def stream(self) -> RedactedStream:
        """A new stream with these secrets."""
        return RedactedStream(self)


NOTHING_SECRET = Redactor({})


class RedactedStream:
    """Holds back just enough bytes to see a secret that has only half arrived."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What may be written now."""
        if not self._redactor:
            return data
        clean, self._held = self._redactor.first_part(self._held + data)
        return clean

    def end(self) -> bytes:
        """The rest."""
        rest, self._held = self._redactor.whole(self._held), b""
        return rest


def _without_scheme(value: str) -> list[str]:
    """The token of a header such as `Bearer TOKEN`, which is a secret without its first word too."""
    match = _SCHEME.fullmatch(value)
    return [match["rest"]] if match and len(match["rest"]) >= SHORTEST else []
