"""The text of an instruction as words, with variables filled in as a Dockerfile means them."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping

_NAME = re.compile(r"[A-Za-z_]\w*")
_SPACE = " \t\n"


class UnknownExpansionError(ValueError):
    """A `${…}` of a kind that is not known here."""


class UnsetVariableError(ValueError):
    """A `${NAME:?why}` of a variable that has no value."""


def expand(text: str, variables: Mapping[str, str]) -> str:
    """The text as one word."""
    words = _Words(text, variables, split=False).read()
    return words[0] if words else ""


def expand_document(text: str, variables: Mapping[str, str]) -> str:
    """A document with its variables filled in; quotes are text there."""
    words = _Words(text, variables, split=False, quotes="").read()
    return words[0] if words else ""


def split(text: str, variables: Mapping[str, str]) -> list[str]:
    """The text as words."""
    return _Words(text, variables, split=True).read()


class _Words:
    def __init__(self, text: str, variables: Mapping[str, str], *, split: bool, quotes: str = "\"'") -> None:
        self._text = text
        self._at = 0
        self._variables = variables
        self._split = split
        self._quotes = quotes
        self._words: list[str] = []
        self._word: str | None = None

    def read(self) -> list[str]:
        quote = ""
        while self._at < len(self._text):
            char = self._text[self._at]
            self._at += 1
            if quote == "'" and char != "'":
                self._add(char)
            elif char == quote:
                quote = ""
            elif not quote and char in self._quotes:
                quote = char
                self._add("")
            elif char == "\\" and self._at < len(self._text):
                self._add(self._escaped(inside=bool(quote) or not self._quotes))
            elif char == "$":
                self._add(self._variable())
            elif self._split and not quote and char in _SPACE:
                self._end()
            else:
                self._add(char)
        self._end()
        return self._words

    def _add(self, text: str) -> None:
        self._word = (self._word or "") + text

    def _end(self) -> None:
        if self._word is not None:
            self._words.append(self._word)
            self._word = None

    def _escaped(self, *, inside: bool) -> str:
        """What a backslash makes of the next character; inside quotes it is mostly a backslash."""
        char = self._text[self._at]
        self._at += 1
        return f"\\{char}" if inside and char not in f"{self._quotes[:1]}$\\" else char

    def _variable(self) -> str:
        if self._text[self._at : self._at + 1] == "{":
            return self._braced()
        name = _NAME.match(self._text, self._at)
        if not name:
            return "$"
        self._at = name.end()
        return self._variables.get(name[0], "")

    def _braced(self) -> str:
        end, depth = self._at + 1, 1
        while end < len(self._text) and depth:
            depth += {"{": 1, "}": -1}.get(self._text[end], 0)
            end += 1
        body = self._text[self._at + 1 : end - 1]
        self._at = end
        name = _NAME.match(body)
        if depth or not name:
            raise UnknownExpansionError(f"${{{body}}}")
        value, rest = self._variables.get(name[0]), body[name.end() :]
        if not rest:
            return value or ""
        kind = re.match(r":?[-+?]|##?|%%?|//?", rest)
        if not kind:
            raise UnknownExpansionError(f"${{{body}}}")
        if kind[0][0] in "#%/":
            return _changed(value or "", kind[0], expand(rest[kind.end() :], self._variables))
        given = bool(value) if kind[0].startswith(":") else value is not None
        other = expand(rest[kind.end() :], self._variables)
        if kind[0].endswith("+"):
            return other if given else ""
        if kind[0].endswith("?") and not given:
            raise UnsetVariableError(f"{name[0]}: {other or 'it has no value'}")
        return (value or "") if given else other


def _changed(value: str, kind: str, pattern: str) -> str:
    """`${a#pattern}`, `${a%pattern}` and `${a/pattern/other}`."""
    if kind[0] == "/":
        wanted, _, other = pattern.partition("/")
        found = re.compile(_regex(wanted))
        return found.sub(lambda _: other, value, count=0 if kind == "//" else 1) if wanted else value
    lengths = range(len(value) + 1) if len(kind) == 1 else range(len(value), -1, -1)
    for length in lengths:
        piece = value[:length] if kind[0] == "#" else value[len(value) - length :]
        if fnmatch.fnmatchcase(piece, pattern):
            return value[length:] if kind[0] == "#" else value[: len(value) - length]
    return value


def _regex(pattern: str) -> str:
    """A shell pattern as a regular expression that may match anywhere."""
    return fnmatch.translate(pattern).removesuffix("\\z").removesuffix("\\Z")
