"""Kinds of text that requests hold."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator


def printable(text: str) -> str:
    """The text; ValueError where it is more than one line."""
    if not text.isprintable():
        msg = "line breaks and control characters are not allowed here"
        raise ValueError(msg)
    return text


Line = Annotated[str, AfterValidator(printable)]
"""What is shown in one line, and in the server's log: a name, a title, a label."""
