"""A real pseudo-terminal of a chosen width around what a command prints."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_END = b"\x00end of output\x00"
_STEERING = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def shown_in(columns: int, work: Callable[[], object]) -> list[str]:
    """The lines that a terminal with so many columns gets, without colours."""
    parts: list[bytes] = []
    with _terminal(columns, parts):
        work()
    text = b"".join(parts).decode().replace("\r\n", "\n")
    return _STEERING.sub("", text).splitlines()


@contextmanager
def _terminal(columns: int, parts: list[bytes]) -> Iterator[None]:
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))

    def drain() -> None:
        # Up to a mark: a terminal whose other end was closed may drop what nobody has read yet.
        data = b""
        while not data.endswith(_END):
            data += os.read(ours, 1 << 16)
        parts.append(data.removesuffix(_END))

    reader = threading.Thread(target=drain)
    reader.start()
    usual = sys.stdout
    with open(theirs, "w", buffering=1, encoding="utf-8") as screen:  # noqa: PTH123 - a descriptor
        sys.stdout = screen
        try:
            yield
        finally:
            sys.stdout = usual
            screen.write(_END.decode())
            screen.flush()
            reader.join(timeout=30)
    os.close(ours)
