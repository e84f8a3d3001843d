"""The shapes in which a secret can be written (plain, escaped, base64, hex, URL), and how to find them.

Finding is in two steps. A cheap look for fixed bytes in a simplified copy of the data says whether a shape is
there at all; only then a tolerant pattern is applied to the data itself. Almost all data has no secret in it.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal
from urllib.parse import unquote_to_bytes

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
        for match in pattern.finditer(data):
            yield *match.span(), self.marker


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
            found += [each for each in self._encoded(data) if each not in found]
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
