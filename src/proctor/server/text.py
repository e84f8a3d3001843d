"""Kinds of text that requests hold."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator


def _printable(text: str) -> str:
    if not text.isprintable():
        msg = "line breaks and control characters are not allowed here"
        raise ValueError(msg)
    return text


Line = Annotated[str, AfterValidator(_printable)]
"""What is shown in one line, and in the server's log: a name, a title, a label."""
