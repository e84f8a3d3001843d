"""The part of an output that a model is shown: its beginning and its end, with what is left out counted."""

from __future__ import annotations

import re

from proctor.agents.terminal.screen import Screen

SHOWN = 16_000
"""How many characters of an output are shown."""
_KEPT = 64 << 10


class Window:
    """The beginning and the end of an output, however long it is."""

    def __init__(self) -> None:
        self.head = b""
        self._rest = bytearray()
        self._size = 0

    def add(self, data: bytes) -> None:
        """More of it."""
        self._size += len(data)
        room = _KEPT - len(self.head)
        if room:
            self.head += data[:room]
        self._rest += data[room:]
        if len(self._rest) > 2 * _KEPT:
            del self._rest[:-_KEPT]

    @property
    def tail(self) -> bytes:
        """The end of it; of a short output all."""
        return bytes(self._rest[-_KEPT:]) if len(self._rest) >= _KEPT else self.head + self._rest

    def shown(self, screen: Screen, hidden: re.Pattern[bytes]) -> str:
        """What of it a reader is shown; what is left out is counted."""
        rest = bytes(self._rest[-_KEPT:])
        missing = self._size - len(self.head) - len(rest)
        if not missing:
            screen.feed(_text(hidden.sub(b"", self.head + rest)))
            return _cut(screen.text(), SHOWN)
        screen.feed(_text(self.head))
        if screen.full:
            screen.feed(_text(hidden.sub(b"", rest)))
            return _cut(screen.text(), SHOWN)
        after = Screen()
        after.feed(_text(hidden.sub(b"", rest)))
        head, tail = screen.text()[: SHOWN // 2], after.text()[-SHOWN // 2 :]
        left = self._size - len(head.encode()) - len(tail.encode())
        return f"{head}\n{_left_out(left, 'bytes')}\n{tail}"


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n{_left_out(len(text) - 2 * half, 'characters')}\n{text[-half:]}"


def _left_out(count: int, unit: str) -> str:
    return f"… {count} {unit} of the output left out …"


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
