"""A parsed value that remembers where it was written, and typed reading with errors that name the place.

The three parsers make trees of these, so that one grammar gives one kind of error for YAML, TOML and JSON.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from proctor.errors import SpecError

MAX_DEPTH = 64
MAX_NODES = 100_000
YES = frozenset({"yes", "on"})
NO = frozenset({"no", "off"})


class Mark(NamedTuple):
    """A place: in a file, or behind a label where there is no file."""

    file: str = ""
    line: int | None = None
    column: int | None = None
    label: str = ""

    def error(self, message: str) -> SpecError:
        """What is wrong here, ready to raise."""
        text = f"{self.label}: {message}" if self.label else message
        return SpecError(text, file=self.file, line=self.line, column=self.column)

    def __str__(self) -> str:
        parts = (self.file or None, self.line, self.column, self.label or None)
        return ":".join(str(part) for part in parts if part is not None)


NOWHERE = Mark()


class Lines:
    """Line and column of an offset."""

    def __init__(self, source: str, file: str) -> None:
        self.file = file
        self.starts = [0, *(match.end() for match in re.finditer("\n", source))]

    def mark(self, offset: int) -> Mark:
        """Where an offset is, both counted from one."""
        line = bisect_right(self.starts, offset)
        return Mark(self.file, line, offset - self.starts[line - 1] + 1)


@dataclass(slots=True, eq=False)
class Node:
    """A mapping of nodes, a list of nodes or a scalar, with its place."""

    value: Any
    mark: Mark = NOWHERE
    key_mark: Mark | None = None
    """Where its key is, when it is an item of a mapping."""
    text: str | None = None
    """A YAML scalar exactly as written, where that says more than its value: 1.10, 0755."""

    @property
    def place(self) -> Mark:
        """Where a reader would look for it: at its key if it has one."""
        return self.key_mark or self.mark


def spend(count: int, mark: Mark) -> None:
    """Refuse a document with more values than any spec needs."""
    if count > MAX_NODES:
        raise mark.error(f"more than {MAX_NODES:,} values; a spec is smaller")


def plain(node: Node) -> Any:
    """The value without places."""
    if isinstance(node.value, dict):
        return {key: plain(item) for key, item in node.value.items()}
    if isinstance(node.value, list):
        return [plain(item) for item in node.value]
    return node.value


def from_plain(value: Any, *, file: str = "", path: tuple[str, ...] = ()) -> Node:
    """A tree from data that was never text; each node's place is its path."""
    mark = Mark(file=file, label=".".join(path))
    if len(path) > MAX_DEPTH:
        raise mark.error(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        items = {str(key): from_plain(item, file=file, path=(*path, str(key))) for key, item in value.items()}
        return Node(items, mark)
    if isinstance(value, list | tuple):
        return Node(
            [from_plain(item, file=file, path=(*path, str(at))) for at, item in enumerate(value)], mark
        )
    return scalar(value, mark)


def scalar(value: Any, mark: Mark, text: str | None = None) -> Node:
    """A leaf; refuses what JSON cannot hold, because trial keys and stored specs are JSON."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise mark.error("the text contains half of a surrogate pair, which cannot be encoded") from None
    elif isinstance(value, float) and not math.isfinite(value):
        raise mark.error(f"{value} is not a finite number")
    elif not (value is None or isinstance(value, bool | int | float)):
        raise mark.error(f"{type(value).__name__} is not a kind of value that a spec can hold")
    return Node(value, mark, text=text)


def found(value: Any) -> str:
    """What a value is, in a person's words, for the end of an error message."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {_short(repr(value))}"
        case str():
            return f"the text '{_short(value)}'"
        case dict():
            return "a mapping"
        case _:
            return "a list"


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"


def nearest(word: str, known: Iterable[str], synonyms: Mapping[str, str] | None = None) -> str:
    """The end of a message about an unknown word: the likely one, or all there are."""
    from difflib import get_close_matches

    choices = sorted(known)
    meant = (synonyms or {}).get(word)
    close = [meant] if meant in choices else get_close_matches(word[:100], choices, 1, 0.6)
    if not close:
        folded = {each.lower().replace("-", "_"): each for each in choices}
        close = get_close_matches(word[:100].lower().replace("-", "_"), folded, 1, 0.6)
        close = [folded[each] for each in close]
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; known: {', '.join(choices)}" if choices else ""


def wrong(node: Node, expected: str) -> SpecError:
    """The error for a value of the wrong type."""
    return node.mark.error(f"expected {expected}, found {found(node.value)}")


def mapping(node: Node, expected: str = "a mapping") -> dict[str, Node]:
    """The items of a mapping."""
    if not isinstance(node.value, dict):
        raise wrong(node, expected)
    return node.value


def fields(
    node: Node, known: Collection[str], *, synonyms: Mapping[str, str] | None = None, what: str = "a mapping"
) -> dict[str, Node]:
    """The items of a mapping whose keys are all known. A key with nothing behind it means its default."""
    items = mapping(node, what)
    for key, item in items.items():
        if key not in known:
            raise item.place.error(f"'{_short(key)}' is not a key here{nearest(key, known, synonyms)}")
    return {key: item for key, item in items.items() if item.value is not None}


def each(items: Mapping[str, Node], readers: Mapping[str, Callable[[Node], Any]]) -> dict[str, Any]:
    """What the readers make of the keys that are theirs. What they refuse is named by its key."""
    return {key: readers[key](labelled(item, key)) for key, item in items.items() if key in readers}


def labelled(node: Node, key: str) -> Node:
    """A node whose errors name its key, unless its place already says more."""
    if node.mark.label or isinstance(node.value, dict | list):
        return node
    return Node(node.value, node.mark._replace(label=f"'{key}'"), node.key_mark, node.text)


def sequence(node: Node, expected: str = "a list") -> list[Node]:
    """The items of a list."""
    if not isinstance(node.value, list):
        raise wrong(node, expected)
    return node.value


def text(node: Node, expected: str = "text") -> str:
    """Text that is not empty."""
    if not isinstance(node.value, str):
        raise wrong(node, expected)
    if not node.value.strip():
        raise node.mark.error(f"expected {expected}, found empty text")
    return node.value


def whole(node: Node, *, minimum: int = 0, maximum: int = 2**63 - 1) -> int:
    """A whole number; 1e4 counts as one."""
    value = node.value
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong(node, "a whole number")
    if value < minimum:
        raise node.mark.error(f"expected at least {minimum}, found {value}")
    if value > maximum:
        raise node.mark.error(f"expected at most {maximum}, found {_short(str(value))}")
    return value


def number(node: Node, *, above: float | None = None, minimum: float | None = None) -> float:
    """A number as a float."""
    value = node.value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong(node, "a number")
    if above is not None and value <= above:
        raise node.mark.error(f"expected more than {above:g}, found {value:g}")
    if minimum is not None and value < minimum:
        raise node.mark.error(f"expected at least {minimum:g}, found {value:g}")
    try:
        return float(value)
    except OverflowError:
        raise node.mark.error("the number is too large") from None


def flag(node: Node) -> bool:
    """True or false; the words yes, no, on and off are understood where a truth value is due."""
    if isinstance(node.value, str) and node.value.lower() in YES | NO:
        return node.value.lower() in YES
    if not isinstance(node.value, bool):
        raise wrong(node, "true or false")
    return node.value


def choice(node: Node, options: Collection[str]) -> str:
    """One of a few words."""
    if not isinstance(node.value, str):
        raise wrong(node, f"one of {', '.join(options)}")
    if node.value not in options:
        raise node.mark.error(f"'{_short(node.value)}' is not allowed here{nearest(node.value, options)}")
    return node.value


def scalar_text(node: Node) -> str:
    """Any scalar as text, exactly as it was written where that is known."""
    value = node.value
    if value is None or isinstance(value, dict | list):
        raise wrong(node, "one value")
    if isinstance(value, str):
        return value
    if node.text is not None:
        return node.text
    return str(value).lower() if isinstance(value, bool) else str(value)
