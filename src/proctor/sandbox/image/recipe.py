"""What a Dockerfile asks for, worked out without doing anything: a base, groups of steps, the final settings.

A group ends with a RUN, because running is what costs; each group becomes one layer.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from proctor.errors import TaskError
from proctor.sandbox.image import dockerfile as words
from proctor.sandbox.image.dockerfile import Instruction, without_marks

SHELL = ("/bin/sh", "-c")
_IGNORED = frozenset(
    {"CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "STOPSIGNAL", "VOLUME"}
)
"""What a container does by itself; here the harness decides what runs."""


class UnsupportedError(Exception):
    """An instruction that only podman or docker can follow."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"{line}: {what}")
        self.line = line
        self.what = what


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How commands run in an image."""

    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = "root"


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeFolder:
    """WORKDIR makes its folder."""

    line: int
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """COPY and ADD from the context or from the Dockerfile's own text."""

    line: int
    sources: tuple[str, ...]
    target: str
    """Absolute; a trailing slash means a folder."""
    texts: tuple[tuple[str, str], ...] = ()
    """Name → content of files that the Dockerfile itself holds."""
    chown: str = ""
    chmod: str = ""
    unpacks: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """RUN, ready to execute."""

    line: int
    argv: tuple[str, ...]
    settings: Settings
    text: str
    """As written, for messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Steps that become one layer."""

    steps: tuple[MakeFolder | Copy, ...]
    run: Run | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything to do over the base, and how commands run in the result."""

    groups: tuple[Group, ...]
    settings: Settings


def base_of(instructions: Sequence[Instruction], where: str) -> str:
    """The image that the last stage stands on, through the stages before it."""
    return _chain(instructions, where)[0]


def _chain(instructions: Sequence[Instruction], where: str) -> tuple[str, list[Instruction], dict[str, str]]:
    """The base, the instructions of the stages that lead to the last one, and the ARGs before the first."""
    given: dict[str, str] = {}
    stages: list[tuple[str, str, list[Instruction]]] = []
    for each in instructions:
        if each.name == "FROM":
            base, name = _from(each, given, where)
            stages.append((base, name, []))
        elif stages:
            stages[-1][2].append(each)
        elif each.name == "ARG":
            given |= _arguments(each, given, given)
        else:
            raise TaskError(f"{where}:{each.line}: {each.name} before the first FROM")
    base, _, body = stages[-1]
    known = stages[:-1]
    while earlier := [index for index, stage in enumerate(known) if stage[1] == base.lower()]:
        base, _, before = known[earlier[-1]]
        known = known[: earlier[-1]]
        body = before + body
    return base, body, given


def _from(each: Instruction, given: Mapping[str, str], where: str) -> tuple[str, str]:
    try:
        found = words.split(each.text, {**_platform(), **given})
    except words.UnknownExpansionError as error:
        raise UnsupportedError(each.line, f"{error} in FROM") from None
    named = len(found) == 3 and found[1].upper() == "AS"
    if not found or not (named or len(found) == 1):
        raise TaskError(f"{where}:{each.line}: FROM takes an image, and perhaps 'AS name'")
    return found[0], found[2].lower() if named else ""


def plan(instructions: Sequence[Instruction], base: Settings, where: str) -> Recipe:
    """Work out the steps over a base; UnsupportedError names what only an engine can do."""
    _, body, given = _chain(instructions, where)
    planner = _Planner(base, given, where)
    for each in body:
        try:
            planner.take(each)
        except words.UnknownExpansionError as error:
            raise UnsupportedError(each.line, f"{error} in {each.name}") from None
    return planner.recipe()


class _Planner:
    def __init__(self, base: Settings, given: Mapping[str, str], where: str) -> None:
        self._env = dict(base.env)
        self._workdir = base.workdir or "/"
        self._user = base.user or "root"
        self._arguments: dict[str, str] = {}
        self._given = {**_platform(), **given}
        self._shell: tuple[str, ...] = SHELL
        self._steps: list[MakeFolder | Copy] = []
        self._groups: list[Group] = []
        self._where = where

    def take(self, each: Instruction) -> None:
        if each.name == "ONBUILD":
            raise UnsupportedError(each.line, "ONBUILD")
        takers = {
            "ADD": self._take_copy,
            "ARG": self._take_argument,
            "COPY": self._take_copy,
            "ENV": self._take_environment,
            "RUN": self._take_run,
            "SHELL": self._take_shell,
            "USER": self._take_user,
            "WORKDIR": self._take_workdir,
        }
        if each.name not in _IGNORED:
            takers[each.name](each)

    def recipe(self) -> Recipe:
        if any(isinstance(step, Copy) or step.path != self._workdir for step in self._steps):
            self._groups.append(Group(steps=tuple(self._steps)))
        return Recipe(groups=tuple(self._groups), settings=self._settings(self._env))

    @property
    def _variables(self) -> dict[str, str]:
        return {**self._arguments, **self._env}

    def _settings(self, env: Mapping[str, str]) -> Settings:
        return Settings(env=dict(env), workdir=self._workdir, user=self._user)

    def _take_argument(self, each: Instruction) -> None:
        self._arguments |= _arguments(each, self._given, self._variables)

    def _take_environment(self, each: Instruction) -> None:
        first = each.text.split(maxsplit=1)
        if "=" not in first[0]:
            if len(first) < 2:
                raise TaskError(f"{self._where}:{each.line}: ENV needs a value")
            self._env[first[0]] = words.expand(first[1], self._variables)
            return
        pairs = {}
        for word in words.split(each.text, self._variables):
            name, equals, value = word.partition("=")
            if not equals or not name:
                raise TaskError(f"{self._where}:{each.line}: ENV takes NAME=value, not {word!r}")
            pairs[name] = value
        self._env |= pairs

    def _take_workdir(self, each: Instruction) -> None:
        path = words.expand(each.text, self._variables)
        self._workdir = posixpath.normpath(posixpath.join(self._workdir, path))
        self._steps.append(MakeFolder(line=each.line, path=self._workdir))

    def _take_user(self, each: Instruction) -> None:
        self._user = words.expand(each.text, self._variables) or "root"

    def _take_shell(self, each: Instruction) -> None:
        found = each.json_words()
        if not found:
            raise TaskError(f'{self._where}:{each.line}: SHELL takes a list: ["/bin/bash", "-c"]')
        self._shell = tuple(found)

    def _take_run(self, each: Instruction) -> None:
        for name, value in each.flags:
            if name != "network" or value not in {"default", "none"}:
                raise UnsupportedError(each.line, f"RUN --{name}")
        argv = tuple(each.json_words() or ())
        if not argv:
            argv = (*self._shell, self._script(each))
        run = Run(line=each.line, argv=argv, settings=self._settings(self._variables), text=str(each))
        self._groups.append(Group(steps=tuple(self._steps), run=run))
        self._steps = []

    def _script(self, each: Instruction) -> str:
        if not each.heredocs:
            return each.text
        if not without_marks(each.text):
            script = "".join(document.content for document in each.heredocs)
            if script.startswith("#!"):
                raise UnsupportedError(each.line, "RUN of a document with #!")
            return script
        return "\n".join([each.text, *(f"{one.content}{one.name}" for one in each.heredocs)])

    def _take_copy(self, each: Instruction) -> None:
        flags, adds = dict(each.flags), each.name == "ADD"
        for name in flags:
            if name not in {"chown", "chmod", "link"}:
                raise UnsupportedError(each.line, f"{each.name} --{name}")
        found = each.json_words() or words.split(without_marks(each.text), self._variables)
        *sources, target = found or [""]
        if not target or not (sources or each.heredocs):
            raise TaskError(f"{self._where}:{each.line}: {each.name} takes sources and a target")
        if adds and any("://" in source or source.startswith("git@") for source in sources):
            raise UnsupportedError(each.line, "ADD of an address")
        if len(sources) + len(each.heredocs) > 1 and not target.endswith("/"):
            raise TaskError(
                f"{self._where}:{each.line}: with several sources the target must end with '/': {target}/"
            )
        texts = tuple(
            (one.name, one.content if one.literal else words.expand_document(one.content, self._variables))
            for one in each.heredocs
        )
        step = Copy(
            line=each.line,
            sources=tuple(sources),
            target=_absolute(self._workdir, target),
            texts=texts,
            chown=words.expand(flags.get("chown", ""), self._variables),
            chmod=words.expand(flags.get("chmod", ""), self._variables),
            unpacks=adds,
            text=str(each),
        )
        self._steps.append(step)


def _absolute(workdir: str, target: str) -> str:
    path = posixpath.normpath(posixpath.join(workdir, target))
    path = "/" + path.lstrip("/")
    is_folder = target.endswith(("/", "/.")) or target == "."
    return f"{path}/" if is_folder and path != "/" else path


def _arguments(each: Instruction, given: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for word in words.split(each.text, known):
        name, equals, value = word.partition("=")
        if equals:
            found[name] = value
        elif name in given:
            found[name] = given[name]
    return found


def _platform() -> dict[str, str]:
    machine = os.uname().machine
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
    names = {"OS": "linux", "ARCH": arch, "PLATFORM": f"linux/{arch}", "VARIANT": ""}
    return {f"{side}{name}": value for side in ("TARGET", "BUILD") for name, value in names.items()}
