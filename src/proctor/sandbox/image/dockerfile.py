"""A Dockerfile as instructions with their lines, and their text as words.

Only the grammar; what instructions mean is in `recipe`.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from proctor.errors import TaskError

KNOWN = (
    "ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "MAINTAINER",
    "ONBUILD", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR",
)  # fmt: skip
_DIRECTIVE = re.compile(r"#\s*(\w+)\s*=\s*(.*?)\s*$")
_FLAG = re.compile(r"--([a-z][a-z-]*)(?:=(\"[^\"]*\"|\S*))?(?:\s+|$)")
_HEREDOC = re.compile(r"<<(-?)\s*([\"']?)([A-Za-z_][\w.]*)\2")
_MOST_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z_]\w*")
_SPACE = " \t\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heredoc:
    """A document written into the Dockerfile itself."""

    name: str
    content: str
    literal: bool
    """Its name was quoted: variables are left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One instruction, its continuation lines joined."""

    name: str
    text: str
    line: int
    flags: tuple[tuple[str, str], ...] = ()
    heredocs: tuple[Heredoc, ...] = ()

    def json_words(self) -> list[str] | None:
        """The words of the exec form, `["a", "b"]`; None when it is not one."""
        if not self.text.startswith("["):
            return None
        try:
            words = json.loads(self.text)
        except ValueError:
            return None
        return words if isinstance(words, list) and all(isinstance(word, str) for word in words) else None

    def __str__(self) -> str:
        first = self.text.partition("\n")[0]
        return f"{self.name} {first if len(first) < 100 else first[:97] + '...'}"


def parse(data: bytes, where: str) -> tuple[Instruction, ...]:
    """Read a Dockerfile; TaskError with the line when it is not one."""
    if len(data) > _MOST_BYTES:
        raise TaskError(f"{where}: larger than {_MOST_BYTES} bytes; that is no Dockerfile")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise TaskError(f"{where}: not UTF-8 text") from None
    if "\0" in text:
        raise TaskError(f"{where}: contains a NUL byte")
    instructions = tuple(_Reader(text, where).instructions())
    if not any(each.name == "FROM" for each in instructions):
        raise TaskError(f"{where}: there is no FROM")
    return instructions


class _Reader:
    def __init__(self, text: str, where: str) -> None:
        self._lines = text.replace("\r\n", "\n").split("\n")
        self._where = where
        self._next = 0
        self._escape = "\\"
        for line in self._lines:
            directive = _DIRECTIVE.match(line)
            if not directive:
                break
            if directive[1].lower() == "escape" and directive[2] in {"\\", "`"}:
                self._escape = directive[2]

    def instructions(self) -> Iterator[Instruction]:
        while self._next < len(self._lines):
            line = self._lines[self._next].strip()
            if not line or line.startswith("#"):
                self._next += 1
                continue
            yield self._instruction()

    def _instruction(self) -> Instruction:
        number = self._next + 1
        name, _, text = self._joined().partition(" ")
        name = name.upper()
        if name not in KNOWN:
            near = difflib.get_close_matches(name, KNOWN, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise TaskError(f"{self._where}:{number}: '{name[:40]}' is not an instruction{hint}")
        flags, text = _take_flags(text.strip())
        if not text:
            raise TaskError(f"{self._where}:{number}: {name} needs an argument")
        documents = tuple(self._heredocs(text, number)) if name in {"RUN", "COPY", "ADD"} else ()
        return Instruction(name=name, text=text, line=number, flags=flags, heredocs=documents)

    def _joined(self) -> str:
        """One logical line: continuations joined, comments between them left out."""
        pieces: list[str] = []
        while self._next < len(self._lines):
            line = self._lines[self._next]
            self._next += 1
            if pieces and line.lstrip().startswith("#"):
                continue
            bare = line.rstrip()
            if not bare.endswith(self._escape):
                pieces.append(line.strip() if not pieces else line.rstrip())
                break
            pieces.append(bare[: -len(self._escape)].lstrip() if not pieces else bare[: -len(self._escape)])
        return re.sub(r"^(\w+)\s+", r"\1 ", "".join(pieces))

    def _heredocs(self, text: str, number: int) -> Iterator[Heredoc]:
        for indent, quote, name in _HEREDOC.findall(text):
            lines = []
            while True:
                if self._next >= len(self._lines):
                    raise TaskError(f"{self._where}:{number}: the document <<{name} never ends")
                line = self._lines[self._next]
                self._next += 1
                if (line.lstrip("\t") if indent else line) == name:
                    break
                lines.append((line.lstrip("\t") if indent else line) + "\n")
            yield Heredoc(name=name, content="".join(lines), literal=bool(quote))


def _take_flags(text: str) -> tuple[tuple[tuple[str, str], ...], str]:
    flags = []
    while found := _FLAG.match(text):
        flags.append((found[1], (found[2] or "").strip('"')))
        text = text[found.end() :]
    return tuple(flags), text.strip()


def without_marks(text: str) -> str:
    """The text of an instruction with the `<<NAME` of its documents taken out."""
    return _HEREDOC.sub("", text).strip()


class UnknownExpansionError(ValueError):
    """A `${…}` of a kind that is not known here."""


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
        kind = re.match(r":?[-+]", rest)
        if not kind:
            raise UnknownExpansionError(f"${{{body}}}")
        given = bool(value) if kind[0].startswith(":") else value is not None
        other = expand(rest[kind.end() :], self._variables)
        if kind[0].endswith("+"):
            return other if given else ""
        return (value or "") if given else other
