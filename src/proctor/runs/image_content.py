"""Which files of a task's folder its image holds: COPY and ADD followed, nothing built.

A reviewer's view: what cannot be worked out (archives, addresses, what a RUN makes) is left out, and a file
that a later RUN removes by name is taken to be gone.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from proctor.disk import read_small
from proctor.errors import TaskError
from proctor.model.task import TaskEnvironment
from proctor.sandbox.image import words
from proctor.sandbox.image.context import Context
from proctor.sandbox.image.dockerfile import MOST_BYTES, Instruction, parse, without_marks
from proctor.tasks.lint.problems import ImageContent, InImage

_REMOVES = re.compile(r"(?:^|[;&|(\n]|\bsudo\s)\s*rm\s+([^;&|\n]*)")


@dataclass(slots=True)
class _Stage:
    """One FROM and what follows: files by their path inside, and the variables that COPY may use."""

    files: dict[str, InImage] = field(default_factory=dict)
    workdir: str = "/"
    variables: dict[str, str] = field(default_factory=dict)


def image_content(environment: TaskEnvironment) -> ImageContent:
    """The files of the build context that the image of an environment holds."""
    if environment.image or environment.folder is None:
        return ImageContent()
    folder, file = _built_from(environment)
    if file is None or not file.is_file():
        return ImageContent()
    try:
        instructions = parse(read_small(file, MOST_BYTES), str(file))
    except (TaskError, OSError) as error:
        return ImageContent(problems=(str(error),))
    reader = _Reader(Context(folder, file), file)
    for each in instructions:
        reader.take(each)
    return ImageContent(
        files=tuple(reader.stage.files.values()),
        problems=tuple(reader.problems),
        missing=tuple(reader.missing),
    )


def _built_from(environment: TaskEnvironment) -> tuple[Path, Path | None]:
    """The build context and the Dockerfile; a compose file may name others."""
    assert environment.folder is not None
    if environment.compose is not None:
        from proctor.sandbox.container import composition

        try:
            composed = composition.read(environment.compose)
        except TaskError:  # said when it is used; its rules are not those of a reviewer
            return environment.folder, environment.dockerfile
        if composed.context and composed.dockerfile:
            return composed.context, composed.dockerfile
        if composed.image:
            return environment.folder, None
    return environment.folder, environment.dockerfile


class _Reader:
    def __init__(self, context: Context, file: Path) -> None:
        self.stage = _Stage()
        self.problems: list[str] = []
        self.missing: list[tuple[str, str]] = []
        self._context = context
        self._file = file
        self._stages: dict[str, _Stage] = {}
        self._arguments: dict[str, str] = {}

    def take(self, each: Instruction) -> None:
        takers = {
            "FROM": self._from,
            "ARG": self._variable,
            "ENV": self._variable,
            "WORKDIR": self._workdir,
            "COPY": self._copy,
            "ADD": self._copy,
            "RUN": self._run,
        }
        try:
            if each.name in takers:
                takers[each.name](each)
        except (words.UnknownExpansionError, words.UnsetVariableError):
            return
        except TaskError as error:
            self.problems.append(str(error))

    def _from(self, each: Instruction) -> None:
        found = words.split(each.text, self._arguments)
        known = self._stages.get(found[0].lower()) if found else None
        self.stage = _Stage()
        if known:
            self.stage = _Stage(dict(known.files), known.workdir, dict(known.variables))
        self._stages[str(len({id(stage) for stage in self._stages.values()}))] = self.stage
        if len(found) == 3:
            self._stages[found[2].lower()] = self.stage

    def _variable(self, each: Instruction) -> None:
        known = self.stage.variables if self._stages else self._arguments
        if each.name == "ENV" and "=" not in each.text.split(maxsplit=1)[0]:
            name, _, value = each.text.partition(" ")
            known[name] = words.expand(value.strip(), known)
            return
        for word in words.split(each.text, known):
            name, equals, value = word.partition("=")
            known[name] = value if equals else self._arguments.get(name, known.get(name, ""))

    def _workdir(self, each: Instruction) -> None:
        path = words.expand(each.text, self.stage.variables)
        self.stage.workdir = posixpath.normpath(posixpath.join(self.stage.workdir, path))

    def _copy(self, each: Instruction) -> None:
        found = each.json_words() or words.split(without_marks(each.text), self.stage.variables)
        *sources, target = found or [""]
        folder = target.endswith(("/", "/.")) or target == "." or len(sources) > 1
        place = posixpath.normpath(posixpath.join(self.stage.workdir, target))
        flags = dict(each.flags)
        for source in sources:
            if "://" in source or source.startswith("git@"):
                continue
            if "from" in flags:
                self._from_stage(flags["from"], source, place, folder=folder)
            else:
                self._from_context(each, source, place, folder=folder)

    def _from_context(self, each: Instruction, source: str, place: str, *, folder: bool) -> None:
        where = f"{self._file}:{each.line}"
        whole = self._context.is_folder(source)
        try:
            selected = self._context.select(source, where)
        except TaskError:
            self.missing.append((where, source))
            return
        for found in selected:
            if found.is_folder or found.is_link:
                continue
            path = posixpath.join(place, found.name) if whole or folder else place
            self.stage.files[path] = InImage(
                source=found.source, path=path, place=where, size=found.status.st_size
            )

    def _from_stage(self, name: str, source: str, place: str, *, folder: bool) -> None:
        stage = self._stages.get(name.lower())
        if stage is None:  # another image
            return
        top = posixpath.normpath(posixpath.join("/", source))
        for path, file in list(stage.files.items()):
            if path == top:
                target = posixpath.join(place, posixpath.basename(path)) if folder else place
            elif path.startswith(f"{top.rstrip('/')}/"):
                target = posixpath.join(place, posixpath.relpath(path, top))
            else:
                continue
            self.stage.files[target] = InImage(
                source=file.source, path=target, place=file.place, size=file.size
            )

    def _run(self, each: Instruction) -> None:
        text = "\n".join([each.text, *(document.content for document in each.heredocs)])
        for pattern in _removed(text, self.stage.workdir, self.stage.variables):
            for path in [path for path in self.stage.files if _is_below(path, pattern)]:
                del self.stage.files[path]


def _removed(text: str, workdir: str, variables: Mapping[str, str]) -> Iterator[str]:
    """What the `rm`s of a script name."""
    for match in _REMOVES.finditer(text):
        try:
            found = words.split(match[1], variables)
        except (words.UnknownExpansionError, words.UnsetVariableError):
            continue
        for word in found:
            if not word.startswith("-") and word.strip("/.*"):
                yield posixpath.normpath(posixpath.join(workdir, word))


def _is_below(path: str, pattern: str) -> bool:
    parts = path.split("/")
    return any(fnmatch.fnmatchcase("/".join(parts[:count]), pattern) for count in range(2, len(parts) + 1))
