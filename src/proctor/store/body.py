"""A record's body as it is stored, of which no more is decoded than a reader asks for.

Decoding numbers is most of what reading a large run costs, and most readers want few of them. So what is
wanted most comes first: the iterations of an experiment, with its aggregates last; a rollout's aggregates.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from proctor.errors import StoreError

FIRST, LAST = "iterations", "metrics"
_ORDER = (FIRST, "ledger", "usage", "failure", "notes", "phases_s", "artifacts", LAST)
_OPENING = b'{"iterations":'
_SPELT = {name: f'"{name}":'.encode() for name in _ORDER}
_scan = json.JSONDecoder().raw_decode


def ordered(parts: Mapping[str, Any]) -> dict[str, Any]:
    """The parts that are not empty, in the order in which they are stored."""
    names = _ORDER if parts.get(FIRST) else (LAST, *_ORDER[:-1])
    return {name: value for name in names if (value := parts.get(name))}


class Body:
    """One stored body. `get` decodes up to the part that is asked for."""

    __slots__ = ("_at", "_data", "_known", "_text")

    def __init__(self, data: bytes) -> None:
        self._data = data if data[:1] == b"{" else zlib.decompress(data)
        self._text = ""
        self._at = 1
        self._known: dict[str, Any] = {}

    def mentions(self, quoted: bytes) -> bool:
        """Whether a name in its JSON spelling occurs anywhere: what is not mentioned need not be decoded."""
        return quoted in self._data

    def get(self, name: str) -> Any:
        """One part; None when there is no such part."""
        known = self._known
        if name not in known and _SPELT[name] in self._data:
            self._decode(name)
        return known.get(name)

    def text(self, name: str) -> str:
        """One part as it is written; empty when there is none. Not for a part that `get` has passed."""
        return self._decode(name, to_the_end=name == LAST and self._data.startswith(_OPENING))

    def _decode(self, name: str, *, to_the_end: bool = False) -> str:
        """Go on decoding until this part is known; how it is written. The last part need not be decoded."""
        text = self._text = self._text or self._data.decode()
        at = self._at
        while text[at] == '"':
            colon = text.index('"', at + 1) + 1
            key, start = text[at + 1 : colon - 1], colon + 1
            if to_the_end and key == name:
                return text[start:-1]
            try:
                self._known[key], end = _scan(text, start)
            except ValueError as error:
                raise StoreError(f"a stored record is damaged: {error}") from error
            self._at = at = end + (text[end] == ",")
            if key == name:
                return text[start:end]
        return ""
