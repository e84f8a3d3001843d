"""Keys as a model writes them: text, with the names of those that are no character in angle brackets."""

from __future__ import annotations

import re
from collections.abc import Mapping

NAMED: Mapping[str, str] = {
    "Enter": "\r", "Tab": "\t", "Esc": "\x1b", "Space": " ", "Backspace": "\x7f", "Delete": "\x1b[3~",
    "Up": "\x1b[A", "Down": "\x1b[B", "Right": "\x1b[C", "Left": "\x1b[D", "Home": "\x1b[H", "End": "\x1b[F",
    "PageUp": "\x1b[5~", "PageDown": "\x1b[6~",
    **{f"F{n}": f"\x1bO{each}" for n, each in enumerate("PQRS", 1)},
    **{f"F{n}": f"\x1b[{each}~" for n, each in enumerate((15, 17, 18, 19, 20, 21, 23, 24), 5)},
}  # fmt: skip
"""Keys by their names."""
_NAMES = re.compile(r"<(?:(?P<control>[CM])-(?P<key>[^<>\s])|(?P<name>\w+))>")


def keys_of(text: str) -> bytes:
    """What a terminal sends for a text with keys in it, as `:wq<Enter>` or `<C-c>`."""

    def key(found: re.Match[str]) -> str:
        if found["control"] == "M":
            return "\x1b" + found["key"]
        if found["control"]:
            return chr(ord(found["key"].upper()) & 0x1F)
        return NAMED.get(found["name"], found[0])

    typed = _NAMES.sub(key, text.replace("\r\n", "\n").replace("\n", "\r"))
    return typed.encode(errors="replace")
