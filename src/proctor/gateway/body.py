"""A request's JSON body: read once, changed in single places, all else byte for byte as it came."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from json.decoder import JSONDecoder, scanstring  # type: ignore[attr-defined]
from typing import Any

_SPACE = re.compile(r"[ \t\r\n]*")
LARGE = 1 << 20
"""Bodies above this are read in a thread, so that nobody else waits for one."""
_MOST_OPENINGS = 500_000
"""Brackets and braces in a large body: 3 bytes of `[],` become 64 in memory."""
_MOST_COMMAS = 1_000_000
"""The same for numbers: no model reads so many, and nothing else runs while a long list is decoded."""
REMOVED = object()
"""In place of a value: the key goes too."""


class BodyError(ValueError):
    """The body is not an object in JSON, or asks for what the gateway does not pass on."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object. A key that comes twice is refused: the provider may take the one that was not checked."""
    values = dict(pairs)
    if len(values) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = counts.most_common(1)[0][0]
        raise BodyError(f"the key '{twice[:100]}' comes twice in one object of the request's body")
    return values


_DECODER = JSONDecoder(object_pairs_hook=_unique)


@dataclass(frozen=True, slots=True)
class Body:
    """A JSON object as text, as values, and where each of its values is in the text."""

    text: str
    values: Mapping[str, Any]
    spans: tuple[tuple[str, int, int, int], ...]
    """Key, where it begins, and start and end of its value."""

    @classmethod
    def read(cls, data: bytes) -> Body:
        """BodyError when it is no JSON object."""
        if len(data) > LARGE and data.count(b"[") + data.count(b"{") > _MOST_OPENINGS:
            raise BodyError(f"the request's body has more than {_MOST_OPENINGS:,} lists and objects")
        if len(data) > LARGE and data.count(b",") > _MOST_COMMAS:
            raise BodyError(f"the request's body has more than {_MOST_COMMAS:,} commas")
        try:
            text = data.decode()
            return cls(text, *_members(text))
        except BodyError:
            raise
        except (ValueError, IndexError, RecursionError) as error:
            raise BodyError("the request's body is not a JSON object") from error

    def changed(self, changes: Mapping[str, Any]) -> bytes:
        """The body with other values for these keys, in place; keys that it does not have are put first."""
        parts: list[str] = []
        at = 0
        left = len(self.spans)
        for key, begin, start, end in self.spans:
            if changes.get(key) is REMOVED:
                # With the comma that follows it, or, behind the last member, the one before.
                following = _skip(self.text, end)
                if self.text[following] == ",":
                    parts.append(self.text[at:begin])
                    at = _skip(self.text, following + 1)
                else:
                    parts = ["".join(parts) + self.text[at:begin]]
                    parts[0] = parts[0].rstrip(" \t\r\n").removesuffix(",")
                    at = end
                left -= 1
            elif key in changes:
                parts += [self.text[at:start], json.dumps(changes[key])]
                at = end
        text = "".join([*parts, self.text[at:]])
        known = {key for key, *_ in self.spans}
        new = {key: value for key, value in changes.items() if key not in known and value is not REMOVED}
        if new:
            opening = text.index("{") + 1
            joint = "," if left else ""
            text = text[:opening] + json.dumps(new)[1:-1] + joint + text[opening:]
        return text.encode()


def _members(text: str) -> tuple[dict[str, Any], tuple[tuple[str, int, int, int], ...]]:
    """The members of the object that the text is. Values are read by the C decoder, one call each."""
    values: dict[str, Any] = {}
    spans: list[tuple[str, int, int, int]] = []
    at = _expect(text, _skip(text, 0), "{")
    if text[at] == "}":
        at += 1
    else:
        while True:
            begin = at
            key, at = scanstring(text, _expect(text, at, '"', skip=False))
            if key in values:
                raise BodyError(f"the key '{key[:100]}' comes twice in the request's body")
            start = _expect(text, _skip(text, at), ":")
            values[key], at = _DECODER.raw_decode(text, start)
            spans.append((key, begin, start, at))
            at = _skip(text, at)
            if text[at] == "}":
                at += 1
                break
            at = _expect(text, at, ",")
    if _skip(text, at) != len(text):
        raise ValueError(at)
    return values, tuple(spans)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _expect(text: str, at: int, mark: str, *, skip: bool = True) -> int:
    """The place behind a mark that must be here, and behind the space that follows it."""
    if text[at] != mark:
        raise ValueError(at)
    return _skip(text, at + 1) if skip else at + 1
