"""A record's body as it is stored, of which no more is decoded than a reader asks for.

Decoding numbers is most of what reading a large run costs, and most readers want few of them. So what is
wanted most comes first: the iterations of an experiment, with its aggregates last; of a rollout what it used.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from proctor.store.damage import decodes

FIRST, LAST = "iterations", "metrics"
SYSTEM = ("system_changes", "suspect")
_ORDER = (FIRST, "ledger", "usage", "failure", "notes", "phases_s", "image", *SYSTEM, "artifacts", LAST)
_OF_ROLLOUTS = (LAST, "usage", *(name for name in _ORDER[1:-1] if name != "usage"))
_OPENING, _CLOSING = b'{"iterations":', b',"metrics":{'
_SPELT = {name: f'"{name}":'.encode() for name in _ORDER}
_END = b'}],"'
_NEXT = tuple(_SPELT[name] for name in _ORDER[1:])
"""Where the iterations end: after the bracket no text can go on with a quote and a part's name."""
_scan = json.JSONDecoder().raw_decode


@lru_cache(maxsize=64)
def _spelt(name: str) -> bytes:
    return json.dumps(name).encode() + b":"


@lru_cache(maxsize=64)
def _numbers(name: str) -> re.Pattern[bytes]:
    return re.compile(re.escape(_spelt(name)) + rb"(-?[0-9][-+.0-9eE]*)")


def ordered(parts: Mapping[str, Any]) -> dict[str, Any]:
    """The parts that are not empty, in the order in which they are stored."""
    names = _ORDER if parts.get(FIRST) else _OF_ROLLOUTS
    return {name: value for name in names if (value := parts.get(name))}


def flat_end(data: bytes) -> int:
    """Where the iterations end if they come first and hold plain values; 0 when that is not certain."""
    start = len(_OPENING) + 1
    end = data.find(_END, start) + 1 if data.startswith(_OPENING) else 0
    return end if end and data.startswith(_NEXT, end + 2) and is_flat(data, start, end) else 0


def is_flat(data: bytes, start: int, end: int) -> bool:
    """Whether objects hold plain values: in compact JSON what is nested follows its colon at once."""
    return data.find(b":[", start, end) < 0 and data.find(b":{", start, end) < 0


def column_of(data: bytes, name: str, start: int, end: int) -> tuple[float, ...]:
    """The finite numbers of that name in flat objects, in order."""
    values = tuple(map(float, _numbers(name).findall(data, start, end)))
    return values if math.isfinite(sum(values)) else tuple(filter(math.isfinite, values))


class Body:
    """One stored body. `get` decodes up to the part that is asked for."""

    __slots__ = ("_at", "_data", "_flat", "_known", "_text")

    @decodes
    def __init__(self, data: bytes) -> None:
        self._data = data if data[:1] == b"{" else zlib.decompress(data)
        self._text = ""
        self._at = 1
        self._flat = -1
        self._known: dict[str, Any] = {}

    def mentions(self, quoted: bytes) -> bool:
        """Whether a name in its JSON spelling occurs anywhere: what is not mentioned need not be decoded."""
        return quoted in self._data

    @decodes
    def get(self, name: str) -> Any:
        """One part; None when there is no such part."""
        known = self._known
        if name not in known:
            if _SPELT[name] not in self._data:
                known[name] = None  # asked for again and again, it is looked for once
            elif name == FIRST and self._at > 1 and self._data.startswith(_OPENING):
                # Passed over by `column`.
                known[name] = _scan(self._data.decode(), len(_OPENING))[0]
            else:
                self._decode(name)
        return known.get(name)

    @decodes
    def column(self, name: str) -> tuple[float, ...]:
        """One number of every iteration that has it, in order; of flat rows nothing else is decoded."""
        end = self._flat if self._flat >= 0 else self._flat_end()
        if not end:
            rows = self.get(FIRST) or ()
            return tuple([value for row in rows if (value := _number(row.get(name))) is not None])
        return column_of(self._data, name, len(_OPENING), end)

    def _flat_end(self) -> int:
        end = self._flat = flat_end(self._data)
        if end and self._at == 1:
            self._at = end + 2
        return end

    @decodes
    def inside(self, part: str, name: str) -> Any:
        """One thing inside a part; it alone is decoded where between first and last part its name is once."""
        data, spelt = self._data, _spelt(name)
        end = self._flat if self._flat >= 0 else self._flat_end()
        last = data.find(_CLOSING, end) if end else -1
        at = data.find(spelt, end, last) if last > 0 else -1
        if at > 0 and data.find(spelt, at + 1, last) < 0:
            return _scan(data[at + len(spelt) : last].decode(), 0)[0]
        found = self.get(part) if spelt in data else None
        return found.get(name) if isinstance(found, dict) else None

    @decodes
    def text(self, name: str) -> bytes:
        """One part as it is written; empty when there is none. Not for a part that `get` has passed."""
        data, last = self._data, name == LAST and self._data.startswith(_OPENING)
        end = (self._flat if self._flat >= 0 else self._flat_end()) if last else 0
        at = data.find(_CLOSING, end) if end else -1
        # Between the first and the last part everything that was opened is closed again.
        if at > end and data.count(b"{", end, at) == data.count(b"}", end, at):
            return data[at + len(_CLOSING) - 1 : -1]
        return self._decode(name, to_the_end=last).encode()

    def _decode(self, name: str, *, to_the_end: bool = False) -> str:
        """Go on decoding until this part is known; how it is written. The last part need not be decoded."""
        text = self._text = self._text or self._data.decode()
        at = self._at
        while text[at] == '"':
            colon = text.index('"', at + 1) + 1
            key, start = text[at + 1 : colon - 1], colon + 1
            if to_the_end and key == name:
                return text[start:-1]
            self._known[key], end = _scan(text, start)
            self._at = at = end + (text[end] == ",")
            if key == name:
                return text[start:end]
        return ""


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None
