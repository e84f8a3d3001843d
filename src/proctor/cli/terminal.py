"""The only way to the terminal: whatever a command prints, nobody else's text can steer the screen.

Names, parameters and messages come from strangers. Colours and progress lines are Proctor's own, and go
through `styled`, `progress` and `direct`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

_OWN = int.from_bytes(os.urandom(6))
"""Marks Proctor's own colours: text from elsewhere cannot know it."""
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_STYLED = re.compile(rf"\x1b\[{_OWN}:([0-9;]+)m")


def styled(text: str, code: str) -> str:
    """The text in a style of ECMA-48, such as `1` for bold, for standard output."""
    if not isinstance(sys.stdout, GuardedStream):
        return f"\x1b[{code}m{text}\x1b[0m"
    return f"\x1b[{_OWN}:{code}m{text}\x1b[{_OWN}:0m"


def direct(stream: TextIO) -> TextIO:
    """The stream behind the guard, for what moves the cursor."""
    return stream.behind if isinstance(stream, GuardedStream) else stream


def progress(line: str = "", room: int = 100) -> None:
    """Replace the line of progress on standard error; without a text, remove it."""
    stream = direct(sys.stderr)
    stream.write(f"\r\x1b[2K{_UNSAFE.sub('�', line[:room])}")
    stream.flush()


class GuardedStream:
    """A text stream that shows control characters as `�` instead of sending them."""

    def __init__(self, behind: TextIO) -> None:
        self.behind = behind

    def write(self, text: str) -> int:
        """Pass the text on, made harmless."""
        if _UNSAFE.search(text):
            own = _STYLED.split(text)
            text = _UNSAFE.sub("�", own[0]) + "".join(
                f"\x1b[{code}m{_UNSAFE.sub('�', rest)}"
                for code, rest in zip(own[1::2], own[2::2], strict=True)
            )
        return self.behind.write(text)

    def writelines(self, lines: Any) -> None:
        """Several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)


@contextmanager
def guarded() -> Iterator[None]:
    """Put the guard in front of standard output and standard error."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (GuardedStream(each) for each in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
