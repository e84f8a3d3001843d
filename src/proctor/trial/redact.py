"""Take secrets out of bytes, streams, files and plain data before anything is kept.

Values are known; their names are shown instead. Without secrets nothing is looked at. A secret can have
several shapes (plain, escaped, base64, hex, URL). Finding one is in two steps: a cheap look for fixed bytes
in a simplified copy of the data says whether a shape is there at all; only then a tolerant pattern is applied
to the data itself. Almost all data has no secret in it.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal
from urllib.parse import unquote_to_bytes

from msgspec import structs

from proctor.model.record import AttemptRecord
from proctor.model.secret import SHORTEST, credentials_in

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

    def also(self, name: str, value: str) -> Redactor:
        """One that takes out one more value."""
        return Redactor({**self.secrets, name: value})

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
        # Most of what is left; whether something is a Mapping is dear to ask.
        if data is None or isinstance(data, int | float):
            return data
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


Kind = Literal["plain", "base64", "hex"]
STRETCH = 7
"""A shape takes at most this many times the length of its secret: URL-encoded three times over."""
_LINE = 16
"""In a secret of several lines each line of this length counts too: patches put marks before lines."""
_URL_SAFE = bytes.maketrans(b"-_", b"+/")
_LOWER = bytes.maketrans(b"ABCDEF", b"abcdef")
_ENCODED = re.compile(rb"%[0-9A-Fa-f]{2}")
_BASE64_GAP = rb"(?:\s|\\[nr]?){0,16}+"
_HEX_GAP = rb"(?:\s|\\[nrx]?|[:-]){0,16}+"
_MOST_ROUNDS = 3
_LONGEST_BYTE = 42
"""What one byte of a shape takes at most: nine for one that is encoded again and again, and a gap."""
_WINDOW = 1 << 15
"""Searched at once. Against some data a pattern takes a microsecond per byte, and no other thread runs."""
_PIECE = 1 << 20
"""Decoded at once, for the same reason."""


@dataclass(frozen=True)
class Shape:
    """One way in which one secret can be written."""

    kind: Kind
    needle: bytes
    """What it is in the simplified copy of the data."""
    marker: bytes
    """What is written instead."""

    @cached_property
    def pattern(self) -> re.Pattern[bytes]:
        """What it is in the data itself."""
        if self.kind == "hex":
            return re.compile(_HEX_GAP.join(re.escape(bytes([each])) for each in self.needle), re.IGNORECASE)
        if self.kind == "base64":
            return re.compile(_BASE64_GAP.join(_either(each, safe=True) for each in self.needle))
        return re.compile(b"".join(_either(each) for each in self.needle))

    def spans(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Where it is in the data: start, end, and what is written instead."""
        pattern = self.pattern
        if self.kind == "plain" and b"%" not in data and b"+" not in data:
            pattern = re.compile(re.escape(self.needle))
        reach = len(self.needle) * _LONGEST_BYTE
        window, at = max(_WINDOW, reach), 0
        while at < len(data):
            after = at + window
            for match in pattern.finditer(data, at, after + reach):
                if match.start() >= after:
                    break
                yield *match.span(), self.marker
                at = match.end()
            at = max(at, after)


def _either(byte: int, *, safe: bool = False) -> bytes:
    """A byte as it is or URL-encoded, once or several times."""
    single = re.escape(bytes([byte]))
    if safe and byte in b"+/":
        single = b"[+-]" if byte == ord("+") else b"[/_]"
    elif byte == ord(" ") and not safe:
        single = b"[ +]"
    digits = f"{byte:02x}"
    return rb"(?:%s|%%(?:25){0,3}%s%s)" % (single, _digit(digits[0]), _digit(digits[1]))


def _digit(digit: str) -> bytes:
    return f"[{digit}{digit.upper()}]".encode() if digit.isalpha() else digit.encode()


def shapes(value: str, name: str) -> Iterator[Shape]:
    """Every shape of one secret."""
    marker = f"[redacted:{name}]".encode()
    seen: set[bytes] = set()
    lines = [line.strip() for line in value.splitlines()] if "\n" in value else []
    for text in (value, *(line for line in lines if len(line) >= _LINE)):
        raw = text.encode(errors="surrogateescape")
        for needle in (raw, *_escaped(text)):
            if needle not in seen:
                seen.add(needle)
                yield Shape("plain", needle, marker)
        yield Shape("hex", raw.hex().encode(), marker)
        for before in range(3):
            yield Shape("base64", _inner_base64(raw, before), marker)


def _escaped(text: str) -> Iterator[bytes]:
    """As JSON and as Python write it, also inside another text of that kind."""
    for ascii_only in (True, False):
        once = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        for each in (once, once.replace("/", "\\/"), json.dumps(once, ensure_ascii=ascii_only)[1:-1]):
            yield each.encode(errors="surrogateescape")
    yield repr(text)[1:-1].encode(errors="surrogateescape")
    yield repr(text.encode(errors="surrogateescape"))[2:-1].encode()


def _inner_base64(raw: bytes, before: int) -> bytes:
    """The characters that depend on the secret alone when `before` bytes of something else come first."""
    first = (before * 8 + 5) // 6
    last = (before + len(raw)) * 8 // 6
    return b64encode(b"\0" * before + raw)[first:last]


@dataclass(frozen=True)
class Shapes:
    """All shapes of all secrets."""

    plain: tuple[Shape, ...]
    base64: tuple[Shape, ...]
    hex: tuple[Shape, ...]

    @classmethod
    def of(cls, found: list[Shape]) -> Shapes:
        """By kind; longer ones first, because a secret may contain another."""
        ordered = sorted(found, key=lambda each: -len(each.needle))
        kinds: tuple[Kind, ...] = ("plain", "base64", "hex")
        return cls(*(tuple(each for each in ordered if each.kind == kind) for kind in kinds))

    def present(self, data: bytes) -> list[Shape]:
        """The shapes that are in the data, as far as a quick look can tell."""
        found = [each for each in self.plain if each.needle in data]
        joined = data.replace(b"\\n", b"").replace(b"\\r", b"") if b"\\" in data else data
        copy = joined.translate(_URL_SAFE, b" \t\r\n\\")
        found += [each for each in self.base64 if each.needle in copy]
        copy = joined.translate(_LOWER, b" \t\r\n:-\\x")
        found += [each for each in self.hex if each.needle in copy]
        if _ENCODED.search(data):
            longest = max((len(each.needle) for each in (*self.plain, *self.base64)), default=0)
            pieces = (data[at : at + _PIECE + 9 * longest] for at in range(0, len(data), _PIECE))
            encoded = dict.fromkeys(each for piece in pieces for each in self._encoded(piece))
            found += [each for each in encoded if each not in found]
        return found

    def _encoded(self, data: bytes) -> Iterator[Shape]:
        for _ in range(_MOST_ROUNDS):
            decoded, spaced = unquote_to_bytes(data), unquote_to_bytes(data.replace(b"+", b" "))
            if decoded == data:
                return
            data = decoded
            yield from (each for each in self.plain if each.needle in data or each.needle in spaced)
            copy = data.translate(_URL_SAFE, b" \t\r\n")
            yield from (each for each in self.base64 if each.needle in copy)


NOTHING_SECRET = Redactor({})
