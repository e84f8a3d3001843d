"""The stages of a Dockerfile: which there are, what each is built on, and which the wanted one needs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from proctor.disk import read_small
from proctor.errors import LastingImageError, TaskError
from proctor.sandbox.image import words
from proctor.sandbox.image.dockerfile import MOST_BYTES, Instruction, parse, parse_trigger
from proctor.sandbox.image.references import SCRATCH, architecture

_NAME = re.compile(r"[a-z][a-z0-9_.-]*")
_FROM = re.compile(r"(?:^|,)\s*from=([^,]*)")

Origin = int | str
"""Where files come from: the number of an earlier stage, or an image."""


class UnsupportedError(Exception):
    """An instruction that only podman or docker can follow."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"{line}: {what}")
        self.line = line
        self.what = what


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """From one FROM to the next."""

    index: int
    line: int
    name: str
    base: Origin
    body: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """All stages of a Dockerfile."""

    where: str
    stages: tuple[Stage, ...]
    before: Mapping[str, str] = field(default_factory=dict)
    """The ARGs before the first FROM and those of the platform: a stage may take them over by name."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Build arguments that were given; they replace what the file says."""

    def target(self, name: str = "") -> int:
        """The stage of a name or number; the last one without."""
        if not name:
            return len(self.stages) - 1
        found = self._stage(name, len(self.stages))
        if found is None:
            names = ", ".join(each.name for each in self.stages if each.name)
            raise TaskError(
                f"{self.where}: there is no stage '{name}'; there are: {names or 'none with a name'}"
            )
        return found

    def base(self, index: int) -> str:
        """The outside image that a stage is built on, through the stages between."""
        base = self.stages[index].base
        return self.base(base) if isinstance(base, int) else base

    def body(self, index: int) -> Iterator[tuple[int, Instruction]]:
        """The instructions over that image, with the stage of each."""
        stage = self.stages[index]
        if isinstance(stage.base, int):
            yield from self.body(stage.base)
            for each in self.stages[stage.base].body:
                if each.name == "ONBUILD":
                    yield from ((index, one) for one in parse_trigger(each.text, self.where, each.line))
        yield from ((index, each) for each in stage.body)

    def origin(self, name: str, index: int) -> Origin:
        """What `--from=name` means in a stage."""
        found = self._stage(name, index)
        return name if found is None else found

    def needed(self, index: int) -> tuple[int, ...]:
        """The stages that must be built for one, itself last."""
        found: list[int] = []
        for origin in self._origins(index):
            if isinstance(origin, int):
                found += self.needed(origin)
        return tuple(dict.fromkeys([*found, index]))

    def bases(self, index: int) -> tuple[str, ...]:
        """The outside images that the build of a stage needs, each once."""
        found: list[str] = []
        for each in self.needed(index):
            found.append(self.base(each))
            found += [origin for origin in self._origins(each) if isinstance(origin, str)]
        return tuple(dict.fromkeys(image for image in found if image != SCRATCH))

    def _origins(self, index: int) -> Iterator[Origin]:
        for stage, each in self.body(index):
            for flag, value in each.flags:
                if flag == "from":
                    yield self.origin(self._expanded(value), stage)
                elif flag == "mount":
                    yield from (self.origin(self._expanded(name), stage) for name in _FROM.findall(value))

    def _expanded(self, text: str) -> str:
        return words.expand(text, {**self.before, **self.arguments})

    def _stage(self, name: str, before: int) -> int | None:
        """The stage that a name or a number means, among those before another."""
        if name.isascii() and name.isdigit() and int(name) < before:
            return int(name)
        matching = (each for each in reversed(self.stages[:before]) if each.name == name.lower() != "")
        return next((each.index for each in matching), None)


def read_stages(
    instructions: Sequence[Instruction], where: str, arguments: Mapping[str, str] | None = None
) -> Stages:
    """Divide a Dockerfile into stages; TaskError when it does not begin with FROM or ARG."""
    given = dict(arguments or {})
    before = platform()
    stages: list[Stage] = []
    bodies: list[list[Instruction]] = []
    for each in instructions:
        if each.name == "FROM":
            base, name = _from(each, {**before, **given}, where)
            known = Stages(where=where, stages=tuple(stages))
            origin = known.origin(base, len(stages)) if not base.isdigit() else base
            stages.append(Stage(index=len(stages), line=each.line, name=name, base=origin, body=()))
            bodies.append([])
        elif bodies:
            bodies[-1].append(each)
        elif each.name == "ARG":
            before |= argument_values(each, {}, {**before, **given}, given)
        else:
            raise TaskError(f"{where}:{each.line}: {each.name} before the first FROM")
    filled = tuple(replace(stage, body=tuple(body)) for stage, body in zip(stages, bodies, strict=True))
    return Stages(where=where, stages=filled, before=before, arguments=given)


def stages_of(file: Path, arguments: Mapping[str, str] | None = None) -> Stages:
    """The stages of a Dockerfile; TaskError when it cannot be read."""
    try:
        data = read_small(file, MOST_BYTES)
    except OSError as error:
        raise TaskError(f"{file}: {error.strerror}") from error
    return read_stages(parse(data, str(file)), str(file), arguments)


def argument_values(
    each: Instruction, inherited: Mapping[str, str], known: Mapping[str, str], given: Mapping[str, str]
) -> dict[str, str]:
    """What an ARG declares: the build argument that was given, else its default, else an inherited value."""
    found = {}
    for word in words.split(each.text, known):
        name, equals, value = word.partition("=")
        if name in given:
            found[name] = given[name]
        elif equals:
            found[name] = value
        elif name in inherited:
            found[name] = inherited[name]
    return found


def _from(each: Instruction, known: Mapping[str, str], where: str) -> tuple[str, str]:
    try:
        found = words.split(each.text, known)
        wanted = {name: words.expand(value, known) for name, value in each.flags}
    except words.UnknownExpansionError as error:
        raise UnsupportedError(each.line, f"{error} in FROM") from None
    except words.UnsetVariableError as error:
        raise TaskError(f"{where}:{each.line}: FROM: {error}") from None
    for name, value in wanted.items():
        if name != "platform":
            raise TaskError(f"{where}:{each.line}: FROM has no option --{name}")
        check_platform(value, f"{where}:{each.line}: FROM --platform")
    named = len(found) == 3 and found[1].upper() == "AS"
    if not found or not found[0] or not (named or len(found) == 1):
        raise TaskError(f"{where}:{each.line}: FROM takes an image, and perhaps 'AS name'")
    if named and not _NAME.fullmatch(found[2].lower()):
        raise TaskError(f"{where}:{each.line}: '{found[2]}' is not a name for a stage")
    return found[0], found[2].lower() if named else ""


def check_platform(wanted: str, where: str) -> None:
    """ImageError unless a platform is this machine's."""
    kind, _, rest = wanted.partition("/")
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(rest.partition("/")[0], rest.partition("/")[0])
    if kind.lower() != "linux" or arch.lower() not in {"", architecture()}:
        raise LastingImageError(
            f"{where}={wanted}: this machine is linux/{architecture()} and cannot run images of another"
        )


def platform() -> dict[str, str]:
    """The build arguments that tell of the platform; target and builder are this machine."""
    names = {"OS": "linux", "ARCH": architecture(), "PLATFORM": f"linux/{architecture()}", "VARIANT": ""}
    return {f"{side}{name}": value for side in ("TARGET", "BUILD") for name, value in names.items()}
