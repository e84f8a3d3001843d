"""What others may follow of an attempt while it runs: the phase it is in, and how long its logs are."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

_PHASES = frozenset({"image", "start", "agent", "verify"})
_EVERY_S = 1.0
"""At most this often a log's growth is told, for each log."""

Note = Callable[[str, Mapping[str, Any]], None]
"""Hears the kind of an event and its data; must be quick."""


class Live:
    """Tells of one attempt."""

    def __init__(self, note: Note, clock: Callable[[], float] = time.monotonic) -> None:
        self._note = note
        self._clock = clock
        self._bytes: dict[str, int] = {}
        self._told: dict[str, float] = {}

    def phase(self, name: str) -> None:
        """A phase begins. Short ones are not told."""
        if name in _PHASES:
            self._note("attempt.phase", {"phase": name})

    def log(self, name: str, data: bytes) -> None:
        """A log has grown."""
        self._bytes[name] = self._bytes.get(name, 0) + len(data)
        now = self._clock()
        if now - self._told.get(name, -_EVERY_S) >= _EVERY_S:
            self._told[name] = now
            self._note("attempt.log", {"name": name, "bytes": self._bytes[name]})
