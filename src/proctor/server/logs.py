"""The server's log: one line for each thing said, whatever the names in it hold.

Names and messages come from callers, tasks and agents. A line break in one could make a line that looks like
the server's own, and an escape sequence could change what a terminal shows of the others.
"""

from __future__ import annotations

import logging

_FORMAT = "%(asctime)s %(name)s %(levelname)s: %(message)s"
_INDENT = "    "


class LineFormatter(logging.Formatter):
    """Escapes control characters; the lines of a traceback are set in."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name of the library
        """The line of a record."""
        return escaped(super().formatMessage(record))

    def formatException(self, ei: object) -> str:  # noqa: N802 - same
        """Its traceback."""
        lines = super().formatException(ei).split("\n")  # type: ignore[arg-type]
        return "\n".join(_INDENT + escaped(line) for line in lines)


def escaped(text: str) -> str:
    """A text without control characters, each as Python would write it."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def log_lines() -> None:
    """Let this process log warnings and errors to its standard error, line by line."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter(_FORMAT))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
