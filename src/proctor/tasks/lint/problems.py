"""What a check of a task finds, and what it knows of the task's image."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from proctor.disk import read_small
from proctor.model.task import Task, TaskEnvironment

Level = Literal["error", "warning", "hint"]
LEVELS: tuple[Level, ...] = ("error", "warning", "hint")
MAX_TEXT_BYTES = 1 << 20
_PLACE = re.compile(r"^(?P<place>[^\s:][^:]*(?::\d+)?): (?P<message>.*)$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to know about a task."""

    level: Level
    """`error`: mend it before anybody runs it; `warning`: it will bite; `hint`: it might be better."""
    place: str
    """File and, where it is known, line."""
    message: str
    """The same text in every task that has the same fault, so that many can be shown as one."""
    detail: str = ""
    """What differs: a name, a value."""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """What was found in one task."""

    name: str
    path: Path
    findings: tuple[Problem, ...]
    unproven: tuple[Literal["oracle", "nop"], ...] = ()
    """What no run here has shown: that the oracle passes, that doing nothing fails."""

    @property
    def errors(self) -> list[Problem]:
        """What keeps the task from being run, or makes its results worthless."""
        return self.of("error")

    def of(self, level: Level) -> list[Problem]:
        """The findings of one level."""
        return [finding for finding in self.findings if finding.level == level]


@dataclass(frozen=True, slots=True, kw_only=True)
class InImage:
    """A file of the task's folder that its image holds."""

    source: Path
    path: str
    """Where it is in the image."""
    place: str
    """The line of the Dockerfile that copies it."""
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageContent:
    """What is known of an image without building it."""

    files: tuple[InImage, ...] = ()
    problems: tuple[str, ...] = ()
    """What is wrong with its Dockerfile, each with its place."""
    missing: tuple[tuple[str, str], ...] = ()
    """Lines of COPY, each with a source that is not in the build context."""


LookInside = Callable[[TaskEnvironment], ImageContent]


@dataclass(frozen=True)
class ReviewedTask:
    """A task under review, with its files read at most once."""

    task: Task
    image: ImageContent = field(default_factory=ImageContent)
    _texts: dict[Path, str] = field(default_factory=dict)

    def text(self, file: Path) -> str:
        """A small text file; nothing for what is large, binary, a link or gone."""
        if file not in self._texts:
            self._texts[file] = _read(file)
        return self._texts[file]

    @cached_property
    def test_folders(self) -> tuple[Path, ...]:
        """Every folder of tests: the task's and its steps'."""
        return self._folders("tests")

    @cached_property
    def solution_folders(self) -> tuple[Path, ...]:
        """Every folder of solutions."""
        return self._folders("solution")

    def _folders(self, name: str) -> tuple[Path, ...]:
        steps = (self.task.path / "steps" / step.name / name for step in self.task.steps)
        return tuple(each for each in (self.task.path / name, *steps) if each.is_dir())


def from_text(level: Level, text: str, folder: Path) -> Problem:
    """A message that begins with its place, and may end with a hint."""
    match = _PLACE.match(text)
    place, message = (match["place"], match["message"]) if match else (str(folder), text)
    said, _, hint = message.partition("; ")
    return Problem(level, place, said, hint=hint)


def line_with(pattern: re.Pattern[str], text: str) -> tuple[int, re.Match[str]] | None:
    """The first line outside of comments that has something, and what it has."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.lstrip().startswith("#") and (match := pattern.search(line)):
            return number, match
    return None


def _read(file: Path) -> str:
    try:
        return "" if file.is_symlink() else read_small(file, MAX_TEXT_BYTES).decode()
    except (OSError, UnicodeDecodeError):
        return ""
