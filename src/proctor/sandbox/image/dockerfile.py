"""A Dockerfile as instructions with their lines.

Only the grammar: `words` fills in variables, and what instructions mean is in `recipe`. Why there is a
builder of our own is in docs/decisions/0006.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from proctor.errors import TaskError

KNOWN = (
    "ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "MAINTAINER",
    "ONBUILD", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR",
)  # fmt: skip
_DIRECTIVE = re.compile(r"#\s*(\w+)\s*=\s*(.*?)\s*$")
_FLAG = re.compile(r"--([a-z][a-z-]*)(?:=((?:\"[^\"]*\"|'[^']*'|[^\s\"'])*))?(?:\s+|$)")
_MARK = re.compile(r"\d*<<(-?)([\"']?)([^<\"'\s]+)\2")
_RAW_WORD = re.compile(r"(?:\\.|\"(?:\\.|[^\"])*\"|'[^']*'|[^\s\"'])+", re.DOTALL)
_DOCUMENTED = frozenset({"RUN", "COPY", "ADD"})
"""What may be followed by documents."""
MOST_BYTES = 1 << 20


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

    def flag(self, name: str) -> str | None:
        """The last value of a flag; None when it is not given."""
        return next((value for key, value in reversed(self.flags) if key == name), None)

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
        first = " ".join(self.text.partition("\n")[0].split())
        return f"{self.name} {first if len(first) < 100 else first[:97] + '...'}"


def parse_trigger(text: str, where: str, line: int) -> tuple[Instruction, ...]:
    """The instruction that an ONBUILD holds, as if it were written at a line."""
    found = tuple(_Reader(text, where).instructions())
    for each in found:
        if each.name in {"ONBUILD", "FROM", "MAINTAINER"}:
            raise TaskError(f"{where}:{line}: ONBUILD cannot contain {each.name}")
    return tuple(replace(each, line=line) for each in found)


def parse(data: bytes, where: str) -> tuple[Instruction, ...]:
    """Read a Dockerfile; TaskError with the line when it is not one."""
    if len(data) > MOST_BYTES:
        raise TaskError(f"{where}: larger than {MOST_BYTES} bytes; this is not a Dockerfile")
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
        documents = tuple(self._heredocs(text, number)) if name in _DOCUMENTED else ()
        return Instruction(name=name, text=text, line=number, flags=flags, heredocs=documents)

    def _joined(self) -> str:
        """One logical line: continuations joined, comments between them left out."""
        pieces: list[str] = []
        while self._next < len(self._lines):
            line = self._lines[self._next]
            self._next += 1
            if pieces and (not line.strip() or line.lstrip().startswith("#")):
                continue
            bare = line.rstrip()
            if not bare.endswith(self._escape):
                pieces.append(line.strip() if not pieces else line.rstrip())
                break
            pieces.append(bare[: -len(self._escape)].lstrip() if not pieces else bare[: -len(self._escape)])
        return re.sub(r"^(\w+)\s+", r"\1 ", "".join(pieces))

    def _heredocs(self, text: str, number: int) -> Iterator[Heredoc]:
        for mark in _marks(text):
            indent, quote, name = mark.groups()
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
        flags.append((found[1], re.sub(r"[\"']", "", found[2] or "")))
        text = text[found.end() :]
    return tuple(flags), text.strip()


def _marks(text: str) -> Iterator[re.Match[str]]:
    """The words that announce a document; `<<` inside of another word, or before a space, does not."""
    for word in _RAW_WORD.finditer(text):
        if mark := _MARK.fullmatch(word[0]):
            yield mark


def without_marks(text: str) -> str:
    """The text of an instruction with the `<<NAME` of its documents taken out."""
    return _RAW_WORD.sub(lambda word: "" if _MARK.fullmatch(word[0]) else word[0], text).strip()
