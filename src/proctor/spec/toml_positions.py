"""TOML into nodes with places: values from the standard library, places from a second look at valid text.

`tomllib` decides what is valid and what it means, so the scanner only has to find where things are.
"""

from __future__ import annotations

import datetime as dt
import re
import tomllib
from typing import Any

from proctor.errors import SpecError
from proctor.spec.json_positions import Lines
from proctor.spec.node import MAX_DEPTH, Mark, Node, scalar, spend

Path = tuple[str | int, ...]
_PLACE = re.compile(
    r"(?P<message>.*) \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)", re.DOTALL
)
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_DIGITS = re.compile(r"[0-9_]{4000,}")
_SPACE = re.compile(r"[ \t]*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ATOM = re.compile(r"[^,\]}#\n]*")
# tomllib takes quadratic time over the parts of a dotted key. Anchored at the start of a word: linear itself.
_ENDLESS_KEY = re.compile(r"""(?<![\w"'-])(?:[\w"'-]++[ \t]*+\.[ \t]*+){200}""", re.ASCII)
_STRINGS = (
    re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}(?!")', re.DOTALL),
    re.compile(r"'''.*?'{3,5}(?!')", re.DOTALL),
    re.compile(r'"(?:[^"\\]|\\.)*"'),
    re.compile(r"'[^']*'"),
)


class _Scanner:
    """Records the place of each key and value of a text that `tomllib` has accepted."""

    def __init__(self, source: str, file: str) -> None:
        self.source = source
        self.lines = Lines(source, file)
        self.at = 0
        self.keys: dict[Path, Mark] = {}
        self.values: dict[Path, Mark] = {}
        self.lengths: dict[Path, int] = {}

    def run(self) -> None:
        table: Path = ()
        while self.skip(_BLANK):
            if self.source.startswith("[", self.at):
                table = self.header()
            else:
                self.assignment(table)

    def skip(self, pattern: re.Pattern[str]) -> bool:
        """Pass over what matches; whether anything is left."""
        self.at = pattern.match(self.source, self.at).end()  # type: ignore[union-attr]  # each matches nothing too
        return self.at < len(self.source)

    def header(self) -> Path:
        start = self.at
        array = self.source.startswith("[[", self.at)
        self.at += 2 if array else 1
        parts = self.key()
        self.at += 2 if array else 1
        path: Path = ()
        for part, mark in parts[:-1]:
            path = (*path, part)
            self.keys.setdefault(path, mark)
            path = self.inside(path)
        name, mark = parts[-1]
        path = (*path, name)
        self.keys.setdefault(path, mark)
        self.values.setdefault(path, self.lines.mark(start))
        if array:
            self.lengths[path] = self.lengths.get(path, 0) + 1
            path = self.inside(path)
            self.values[path] = self.lines.mark(start)
        return path

    def inside(self, path: Path) -> Path:
        """The last entry of an array of tables, or the path itself."""
        return (*path, self.lengths[path] - 1) if path in self.lengths else path

    def assignment(self, table: Path) -> None:
        parts = self.key()
        path = table
        for part, mark in parts:
            path = (*path, part)
            self.keys.setdefault(path, mark)
            self.values.setdefault(path, mark)
        self.at += 1
        self.value(path)

    def key(self) -> list[tuple[str, Mark]]:
        """A dotted key, up to and not including what follows it."""
        parts: list[tuple[str, Mark]] = []
        while True:
            self.skip(_SPACE)
            mark = self.lines.mark(self.at)
            match = _BARE.match(self.source, self.at) or self.string()
            self.at = match.end()
            raw = match.group()
            parts.append((raw if raw[0] not in "\"'" else tomllib.loads(f"k={raw}")["k"], mark))
            self.skip(_SPACE)
            if not self.source.startswith(".", self.at):
                return parts
            self.at += 1

    def string(self) -> re.Match[str]:
        matches = (pattern.match(self.source, self.at) for pattern in _STRINGS)
        return next(match for match in matches if match)

    def value(self, path: Path) -> None:
        self.skip(_SPACE)
        self.values[path] = self.lines.mark(self.at)
        first = self.source[self.at]
        if first in "\"'":
            self.at = self.string().end()
        elif first == "[":
            self.array(path)
        elif first == "{":
            self.inline_table(path)
        else:
            self.skip(_ATOM)

    def array(self, path: Path) -> None:
        self.at += 1
        index = 0
        while self.skip(_BLANK) and self.source[self.at] != "]":
            self.value((*path, index))
            index += 1
            self.skip(_BLANK)
            if self.source[self.at] == ",":
                self.at += 1
        self.at += 1

    def inline_table(self, path: Path) -> None:
        self.at += 1
        while self.skip(_BLANK) and self.source[self.at] != "}":
            self.assignment(path)
            self.skip(_BLANK)
            if self.source[self.at] == ",":
                self.at += 1
        self.at += 1


def parse_toml(source: str, file: str = "") -> Node | None:
    """The tree of one TOML document; None when there is nothing in it."""
    if endless := _ENDLESS_KEY.search(source):
        mark = Lines(source, file).mark(endless.start())
        raise mark.error(f"nested deeper than {MAX_DEPTH} levels by a dotted key")
    try:
        data = tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        raise _syntax(error, source, file) from None
    except RecursionError:
        raise SpecError(f"nested deeper than {MAX_DEPTH} levels", file=file) from None
    except ValueError:
        digits = _DIGITS.search(source)
        mark = Lines(source, file).mark(digits.start()) if digits else Mark(file)
        raise mark.error("not valid TOML: the number has too many digits") from None
    if not data:
        return None
    _check_size(data, file)
    scanner = _Scanner(source, file)
    scanner.run()
    return _tree(data, (), scanner, Mark(file, 1, 1))


def _syntax(error: tomllib.TOMLDecodeError, source: str, file: str) -> SpecError:
    match = _PLACE.fullmatch(str(error))
    if match is None:
        return SpecError(f"not valid TOML: {error}", file=file)
    end = Lines(source, file).mark(len(source))
    line = int(match["line"]) if match["line"] else end.line
    column = int(match["column"]) if match["column"] else end.column
    message = match["message"][0].lower() + match["message"][1:]
    if message.startswith("cannot overwrite a value"):
        message = "a key is given twice: its value ends here"
    return SpecError(f"not valid TOML: {message}", file=file, line=line, column=column)


def _check_size(data: Any, file: str) -> None:
    level, depth, count = [data], 0, 0
    while level:
        if depth > MAX_DEPTH:
            raise SpecError(f"nested deeper than {MAX_DEPTH} levels", file=file)
        inner = [each.values() if isinstance(each, dict) else each for each in level]
        count += sum(map(len, inner))
        spend(count, Mark(file))
        level = [item for items in inner for item in items if isinstance(item, dict | list)]
        depth += 1


def _tree(value: Any, path: Path, places: _Scanner, parent: Mark) -> Node:
    mark = places.values.get(path, parent)
    if isinstance(value, dict):
        node = Node({key: _tree(item, (*path, key), places, mark) for key, item in value.items()}, mark)
    elif isinstance(value, list):
        node = Node([_tree(item, (*path, at), places, mark) for at, item in enumerate(value)], mark)
    else:
        is_date = isinstance(value, dt.date | dt.time)
        node = scalar(value.isoformat() if is_date else value, mark)
    node.key_mark = places.keys.get(path)
    return node
