"""JSON into nodes with places, because the standard library's parser forgets where things were."""

from __future__ import annotations

import re
from bisect import bisect_right
from json import JSONDecodeError
from json.decoder import scanstring  # type: ignore[attr-defined]  # the library's own string reader
from typing import Any

from proctor.errors import SpecError
from proctor.spec.node import MAX_DEPTH, Mark, Node, scalar, spend

_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORDS = {"true": True, "false": False, "null": None}


class Lines:
    """Line and column of an offset."""

    def __init__(self, source: str, file: str) -> None:
        self.file = file
        self.starts = [0, *(match.end() for match in re.finditer("\n", source))]

    def mark(self, offset: int) -> Mark:
        """Where an offset is, both counted from one."""
        line = bisect_right(self.starts, offset)
        return Mark(self.file, line, offset - self.starts[line - 1] + 1)


class _Scanner:
    """One pass over the text."""

    def __init__(self, source: str, file: str) -> None:
        self.source = source
        self.lines = Lines(source, file)
        self.at = 0
        self.count = 0

    def error(self, message: str, at: int | None = None) -> SpecError:
        return self.lines.mark(self.at if at is None else at).error(f"not valid JSON: {message}")

    def skip(self) -> str:
        """Pass over space; the character that comes next, empty at the end."""
        self.at = _SPACE.match(self.source, self.at).end()  # type: ignore[union-attr]  # it matches nothing too
        return self.source[self.at : self.at + 1]

    def value(self, depth: int = 0) -> Node:
        following = self.skip()
        mark = self.lines.mark(self.at)
        self.count += 1
        spend(self.count, mark)
        if depth > MAX_DEPTH:
            raise mark.error(f"nested deeper than {MAX_DEPTH} levels")
        if following == "{":
            return Node(self.object(depth), mark)
        if following == "[":
            return Node(self.array(depth), mark)
        if following == '"':
            return scalar(self.string(), mark)
        return scalar(self.word_or_number(following), mark)

    def string(self) -> str:
        try:
            value, self.at = scanstring(self.source, self.at + 1, True)
        except JSONDecodeError as error:
            message = error.msg[0].lower() + error.msg[1:].removesuffix(" at").removesuffix(" starting")
            raise self.error(message, min(error.pos, len(self.source))) from None
        return str(value)

    def word_or_number(self, following: str) -> Any:
        if number := _NUMBER.match(self.source, self.at):
            self.at = number.end()
            digits, fraction, exponent = number.groups()
            try:
                return float(number.group()) if fraction or exponent else int(digits)
            except ValueError:
                raise self.error("the number has too many digits", number.start()) from None
        word = _WORD.match(self.source, self.at)
        if word and word.group() in _WORDS:
            self.at = word.end()
            return _WORDS[word.group()]
        if word:
            raise self.error(f"'{word.group()[:40]}' is not a value; text needs double quotes")
        if following in {"}", "]"}:
            raise self.error(f"expected a value before '{following}'")
        raise self.error(
            (f"expected a value, found '{following}'") if following else "the document ends too early"
        )

    def object(self, depth: int) -> dict[str, Node]:
        items: dict[str, Node] = {}
        self.at += 1
        if self.skip() == "}":
            self.at += 1
            return items
        while True:
            if self.skip() != '"':
                raise self.error("expected a key in double quotes")
            key_mark = self.lines.mark(self.at)
            key = str(scalar(self.string(), key_mark).value)
            if key in items:
                raise key_mark.error(f"'{key}' is given twice; the first is in line {items[key].place.line}")
            if self.skip() != ":":
                raise self.error("expected ':' after the key")
            self.at += 1
            items[key] = self.value(depth + 1)
            items[key].key_mark = key_mark
            if self.closes("}"):
                return items

    def array(self, depth: int) -> list[Node]:
        items: list[Node] = []
        self.at += 1
        if self.skip() == "]":
            self.at += 1
            return items
        while True:
            items.append(self.value(depth + 1))
            if self.closes("]"):
                return items

    def closes(self, bracket: str) -> bool:
        """Whether the collection ends here; else a comma did, and another item is due."""
        following = self.skip()
        if following not in {",", bracket}:
            raise self.error(f"expected ',' or '{bracket}'")
        self.at += 1
        if following == "," and self.skip() == bracket:
            raise self.error(f"a comma before '{bracket}'")
        return following == bracket


def parse_json(source: str, file: str = "") -> Node | None:
    """The tree of one JSON document; None when there is nothing in it."""
    scanner = _Scanner(source, file)
    if not scanner.skip():
        return None
    node = scanner.value()
    if scanner.skip():
        raise scanner.error("something follows the end of the document")
    return node
