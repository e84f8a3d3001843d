"""TOML and JSON into nodes with places: values from the standard library, places from a second look.

The library decides what is valid and what it means, so the scanner only has to find where things are.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import tomllib
from typing import Any

from proctor.errors import SpecError
from proctor.spec.node import MAX_DEPTH, Lines, Mark, Node, scalar, spend

KeyPath = tuple[str | int, ...]
_PLACE = re.compile(
    r"(?P<message>.*) \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)", re.DOTALL
)
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_DIGITS = re.compile(r"[0-9_]{4000,}")
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


class Places:
    """The place of each key and value of a text that the library has accepted."""

    def __init__(self, source: str, file: str = "", *, is_json: bool = False) -> None:
        self.source = source
        self.is_json = is_json
        self.lines = Lines(source, file)
        self.at = 0
        self.keys: dict[KeyPath, Mark] = {}
        self.values: dict[KeyPath, Mark] = {}
        self.lengths: dict[KeyPath, int] = {}
        if is_json:
            self._value(())
        else:
            self._document()

    def of(self, path: KeyPath) -> Mark | None:
        """Where a key is, or the entry of a list; None when it is not written down."""
        return self.keys.get(path) or self.values.get(path)

    def _document(self) -> None:
        table: KeyPath = ()
        while self._skip():
            if self.source.startswith("[", self.at):
                table = self._header()
            else:
                self._assignment(table)

    def _skip(self, pattern: re.Pattern[str] = _BLANK) -> bool:
        """Pass over what matches; whether anything is left."""
        self.at = pattern.match(self.source, self.at).end()  # type: ignore[union-attr]  # each matches nothing too
        return self.at < len(self.source)

    def _header(self) -> KeyPath:
        start = self.at
        array = self.source.startswith("[[", self.at)
        self.at += 2 if array else 1
        parts = self._key()
        self.at += 2 if array else 1
        path: KeyPath = ()
        for part, mark in parts[:-1]:
            path = (*path, part)
            self.keys.setdefault(path, mark)
            path = self._inside(path)
        name, mark = parts[-1]
        path = (*path, name)
        self.keys.setdefault(path, mark)
        self.values.setdefault(path, self.lines.mark(start))
        if array:
            self.lengths[path] = self.lengths.get(path, 0) + 1
            path = self._inside(path)
            self.values[path] = self.lines.mark(start)
        return path

    def _inside(self, path: KeyPath) -> KeyPath:
        """The last entry of an array of tables, or the path itself."""
        return (*path, self.lengths[path] - 1) if path in self.lengths else path

    def _assignment(self, table: KeyPath) -> None:
        parts = self._key()
        path = table
        for part, mark in parts:
            path = (*path, part)
            if self.is_json and path in self.keys:
                line = self.keys[path].line
                raise mark.error(f"'{part}' is given twice; the first is in line {line}")
            self.keys.setdefault(path, mark)
            self.values.setdefault(path, mark)
        self.at += 1  # '=', or ':' in JSON
        self._value(path)

    def _key(self) -> list[tuple[str, Mark]]:
        """A dotted key, up to and not including what follows it."""
        parts: list[tuple[str, Mark]] = []
        while True:
            self._skip()
            mark = self.lines.mark(self.at)
            match = _BARE.match(self.source, self.at) or self._string()
            self.at = match.end()
            raw = match.group()
            parts.append((raw if raw[0] not in "\"'" else self._text(raw), mark))
            self._skip()
            if not self.source.startswith(".", self.at):
                return parts
            self.at += 1

    def _text(self, raw: str) -> str:
        found: str = json.loads(raw) if self.is_json else tomllib.loads(f"k={raw}")["k"]
        return found

    def _string(self) -> re.Match[str]:
        matches = (pattern.match(self.source, self.at) for pattern in _STRINGS)
        return next(match for match in matches if match)

    def _value(self, path: KeyPath) -> None:
        self._skip()
        self.values[path] = self.lines.mark(self.at)
        first = self.source[self.at]
        if first in "\"'":
            self.at = self._string().end()
        elif first == "[":
            self._items(path, "]")
        elif first == "{":
            self._items(path, "}")
        else:
            self._skip(_ATOM)

    def _items(self, path: KeyPath, closing: str) -> None:
        """The inside of a list, or of a table between braces."""
        self.at += 1
        index = 0
        while self._skip() and self.source[self.at] != closing:
            if closing == "]":
                self._value((*path, index))
            else:
                self._assignment(path)
            index += 1
            self._skip()
            if self.source[self.at] == ",":
                self.at += 1
        self.at += 1


def parse_json(source: str, file: str = "") -> Node | None:
    """The tree of one JSON document; None when there is nothing in it."""
    if not source.strip(" \t\r\n"):
        return None
    try:
        data = json.loads(source)
    except json.JSONDecodeError as error:
        message = error.msg[0].lower() + error.msg[1:].removesuffix(" at").removesuffix(" starting")
        following = source[error.pos : error.pos + 1]
        if following in {"}", "]"} and source[: error.pos].rstrip().endswith(","):
            message = f"a comma before '{following}'"
        raise Mark(file, error.lineno, error.colno).error(f"not valid JSON: {message}") from None
    except RecursionError:
        raise SpecError(f"nested deeper than {MAX_DEPTH} levels", file=file) from None
    except ValueError:
        raise _too_many_digits("JSON", source, file) from None
    _check_size(data, file)
    return _tree(data, (), Places(source, file, is_json=True), Mark(file, 1, 1))


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
        raise _too_many_digits("TOML", source, file) from None
    if not data:
        return None
    _check_size(data, file)
    return _tree(data, (), Places(source, file), Mark(file, 1, 1))


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


def _too_many_digits(language: str, source: str, file: str) -> SpecError:
    digits = _DIGITS.search(source)
    mark = Lines(source, file).mark(digits.start()) if digits else Mark(file)
    return mark.error(f"not valid {language}: the number has too many digits")


def _check_size(data: Any, file: str) -> None:
    level, depth, count = [data] if isinstance(data, dict | list) else [], 0, 0
    while level:
        if depth > MAX_DEPTH:
            raise SpecError(f"nested deeper than {MAX_DEPTH} levels", file=file)
        inner = [each.values() if isinstance(each, dict) else each for each in level]
        count += sum(map(len, inner))
        spend(count, Mark(file))
        level = [item for items in inner for item in items if isinstance(item, dict | list)]
        depth += 1


def _tree(value: Any, path: KeyPath, places: Places, parent: Mark) -> Node:
    mark = places.values.get(path, parent)
    if isinstance(value, dict):
        for key in value:
            scalar(key, places.keys.get((*path, key), mark))
        node = Node({key: _tree(item, (*path, key), places, mark) for key, item in value.items()}, mark)
    elif isinstance(value, list):
        node = Node([_tree(item, (*path, at), places, mark) for at, item in enumerate(value)], mark)
    else:
        is_date = isinstance(value, dt.date | dt.time)
        node = scalar(value.isoformat() if is_date else value, mark)
    node.key_mark = places.keys.get(path)
    return node
