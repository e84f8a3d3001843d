"""What a Dockerfile asks for, worked out without doing anything: groups of steps, the final settings.

A group ends with a RUN, because running is what costs; each group becomes one layer.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from proctor.errors import LastingImageError, TaskError
from proctor.sandbox.image import words
from proctor.sandbox.image.dockerfile import Instruction, parse_trigger, without_marks
from proctor.sandbox.image.mounts import Mount, read_mount
from proctor.sandbox.image.references import Settings
from proctor.sandbox.image.stages import Origin, Stages, UnsupportedError, argument_values

SHELL = ("/bin/sh", "-c")
_IGNORED = frozenset({"CMD", "EXPOSE", "LABEL", "MAINTAINER", "ONBUILD", "STOPSIGNAL", "VOLUME"})
"""What a container does by itself; here the harness decides what runs. ONBUILD speaks to later images."""
_HEALTH_FLAGS = frozenset({"interval", "timeout", "start-period", "start-interval", "retries"})
_COPY_FLAGS = frozenset({"chown", "chmod", "link", "from", "parents", "exclude"})
_ADD_FLAGS = frozenset({"chown", "chmod", "link", "checksum", "exclude", "unpack"})
_GIT = re.compile(r"(?:git@|git://|ssh://|https?://[^#?]+\.git(?:[#?]|$))")
_ADDRESS = re.compile(r"https?://", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeFolder:
    """WORKDIR makes its folder."""

    line: int
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """COPY and ADD from the context, another stage, an image, the Dockerfile's own text or an address."""

    line: int
    sources: tuple[str, ...]
    target: str
    """Absolute; a trailing slash means a folder."""
    origin: Origin | None = None
    """The stage or the image that the sources are in; the context without."""
    texts: tuple[tuple[str, str], ...] = ()
    """Name → content of files that the Dockerfile itself holds."""
    addresses: tuple[str, ...] = ()
    checksum: str = ""
    chown: str = ""
    chmod: str = ""
    unpacks: bool = False
    parents: bool = False
    """Whether files keep the path of their source below the target."""
    exclude: tuple[str, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """RUN, ready to execute."""

    line: int
    argv: tuple[str, ...]
    settings: Settings
    text: str
    """As written, for messages."""
    mounts: tuple[Mount, ...] = ()
    offline: bool = False
    script: str = ""
    """The program to execute, when the Dockerfile itself holds one; the words of `argv` follow it."""


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


def plan(stages: Stages, index: int, base: Settings) -> Recipe:
    """Work out the steps of a stage over its outside image; UnsupportedError names what needs an engine."""
    planner = _Planner(base, stages)
    line = stages.stages[index].line
    first = [(index, each) for text in base.onbuild for each in parse_trigger(text, stages.where, line)]
    for stage, each in (*first, *stages.body(index)):
        try:
            planner.take(stage, each)
        except words.UnknownExpansionError as error:
            raise UnsupportedError(each.line, f"{error} in {each.name}") from None
        except words.UnsetVariableError as error:
            raise TaskError(f"{stages.where}:{each.line}: {each.name}: {error}") from None
    return planner.recipe()


class _Planner:
    def __init__(self, base: Settings, stages: Stages) -> None:
        self._env = dict(base.env)
        self._workdir = base.workdir or "/"
        self._user = base.user or "root"
        self._arguments: dict[str, str] = {}
        self._stages = stages
        self._stage = 0
        self._shell: tuple[str, ...] = SHELL
        self._entrypoint = base.entrypoint
        self._steps: list[MakeFolder | Copy] = []
        self._groups: list[Group] = []
        self._where = stages.where

    def take(self, stage: int, each: Instruction) -> None:
        self._stage = stage
        takers = {
            "ADD": self._take_copy,
            "ARG": self._take_argument,
            "COPY": self._take_copy,
            "ENTRYPOINT": self._take_entrypoint,
            "ENV": self._take_environment,
            "HEALTHCHECK": self._take_healthcheck,
            "RUN": self._take_run,
            "SHELL": self._take_shell,
            "USER": self._take_user,
            "WORKDIR": self._take_workdir,
        }
        if each.name not in {"ADD", "COPY", "RUN", "HEALTHCHECK"} and each.flags:
            raise self._wrong(each, f"{each.name} has no option --{each.flags[0][0]}")
        if each.name == "ONBUILD":
            parse_trigger(each.text, self._where, each.line)
        if each.name not in _IGNORED:
            takers[each.name](each)

    def recipe(self) -> Recipe:
        if any(isinstance(step, Copy) or step.path != self._workdir for step in self._steps):
            self._groups.append(Group(steps=tuple(self._steps)))
        settings = replace(self._settings(self._env), entrypoint=self._entrypoint)
        return Recipe(groups=tuple(self._groups), settings=settings)

    @property
    def _variables(self) -> dict[str, str]:
        return {**self._arguments, **self._env}

    def _settings(self, env: Mapping[str, str]) -> Settings:
        return Settings(env=dict(env), workdir=self._workdir, user=self._user)

    def _wrong(self, each: Instruction, what: str) -> TaskError:
        return TaskError(f"{self._where}:{each.line}: {what}")

    def _take_argument(self, each: Instruction) -> None:
        stages = self._stages
        self._arguments |= argument_values(each, stages.before, self._variables, stages.arguments)

    def _take_environment(self, each: Instruction) -> None:
        first = each.text.split(maxsplit=1)
        if "=" not in first[0]:
            if len(first) < 2:
                raise self._wrong(each, "ENV needs a value")
            self._env[first[0]] = words.expand(first[1], self._variables)
            return
        pairs = {}
        for word in words.split(each.text, self._variables):
            name, equals, value = word.partition("=")
            if not equals or not name:
                raise self._wrong(each, f"ENV takes NAME=value, not {word!r}")
            pairs[name] = value
        self._env |= pairs

    def _take_healthcheck(self, each: Instruction) -> None:
        """Checked, and no more: it asks whether what CMD starts is up, and the harness starts no CMD."""
        kind, _, rest = each.text.partition(" ")
        for name, _ in each.flags:
            if name not in _HEALTH_FLAGS:
                raise self._wrong(each, f"HEALTHCHECK has no option --{name}")
        if kind.upper() not in {"NONE", "CMD"} or (kind.upper() == "NONE") == bool(rest.strip()):
            raise self._wrong(each, "HEALTHCHECK is followed by NONE, or by CMD and a command")

    def _take_workdir(self, each: Instruction) -> None:
        path = words.expand(each.text, self._variables)
        self._workdir = posixpath.normpath(posixpath.join(self._workdir, path))
        self._steps.append(MakeFolder(line=each.line, path=self._workdir))

    def _take_user(self, each: Instruction) -> None:
        self._user = words.expand(each.text, self._variables) or "root"

    def _take_shell(self, each: Instruction) -> None:
        found = each.json_words()
        if not found:
            raise self._wrong(each, 'SHELL takes a list: ["/bin/bash", "-c"]')
        self._shell = tuple(found)

    def _take_entrypoint(self, each: Instruction) -> None:
        words_given = each.json_words()
        self._entrypoint = (*self._shell, each.text) if words_given is None else tuple(words_given)

    def _take_run(self, each: Instruction) -> None:
        script, argv = "", tuple(each.json_words() or ())
        if not argv:
            script, argv = self._script(each)
        run = Run(
            line=each.line,
            argv=argv,
            settings=self._settings(self._variables),
            text=str(each),
            mounts=self._run_flags(each),
            offline=each.flag("network") == "none",
            script=script,
        )
        self._groups.append(Group(steps=tuple(self._steps), run=run))
        self._steps = []

    def _run_flags(self, each: Instruction) -> tuple[Mount, ...]:
        mounts = []
        for name, value in each.flags:
            place = f"{self._where}:{each.line}: RUN --{name}={value}"
            if name == "mount":
                made = read_mount(each, value, self._variables, self._workdir, self._origin, self._where)
                mounts += [made] if made else []
            elif name == "network" and value not in {"default", "none"}:
                raise LastingImageError(f"{place}: builds do not get the network of this machine")
            elif name == "security" and value != "sandbox":
                raise LastingImageError(f"{place}: builds get no rights beyond those of a sandbox")
            elif name not in {"network", "security"}:
                raise UnsupportedError(each.line, f"RUN --{name}")
        return tuple(mounts)

    def _script(self, each: Instruction) -> tuple[str, tuple[str, ...]]:
        """The program and the words of a RUN in shell form, which may have documents."""
        if not each.heredocs:
            return "", (*self._shell, each.text)
        if len(each.heredocs) == 1 and not without_marks(each.text):
            content = each.heredocs[0].content
            return (content, ()) if content.startswith("#!") else ("", (*self._shell, content))
        text = "\n".join([each.text, *(f"{one.content}{one.name}" for one in each.heredocs)])
        return "", (*self._shell, text)

    def _origin(self, name: str) -> Origin:
        return self._stages.origin(name, self._stage)

    def _take_copy(self, each: Instruction) -> None:
        adds = each.name == "ADD"
        for name, _ in each.flags:
            if name not in (_ADD_FLAGS if adds else _COPY_FLAGS):
                raise UnsupportedError(each.line, f"{each.name} --{name}")
        given = each.json_words()
        found = [words.expand(word, self._variables) for word in given] if given else None
        found = found or words.split(without_marks(each.text), self._variables)
        *sources, target = found or [""]
        if not target or not (sources or each.heredocs):
            raise self._wrong(each, f"{each.name} takes sources and a target")
        if adds and any(_GIT.match(source) for source in sources):
            raise UnsupportedError(each.line, "ADD of a git repository")
        if len(sources) + len(each.heredocs) > 1 and not _is_folder(target):
            raise self._wrong(each, f"with several sources the target must end with '/': {target}/")
        texts = tuple(
            (one.name, one.content if one.literal else words.expand_document(one.content, self._variables))
            for one in each.heredocs
        )
        addresses = tuple(source for source in sources if adds and _ADDRESS.match(source))
        step = Copy(
            line=each.line,
            sources=tuple(source for source in sources if source not in addresses),
            target=_absolute(self._workdir, target),
            origin=self._copy_origin(each),
            texts=texts,
            addresses=addresses,
            checksum=self._checksum(each, addresses),
            chown=words.expand(each.flag("chown") or "", self._variables),
            chmod=words.expand(each.flag("chmod") or "", self._variables),
            unpacks=adds and self._truth(each, "unpack", default=True),
            parents=self._truth(each, "parents", default=False),
            exclude=tuple(
                words.expand(value, self._variables) for name, value in each.flags if name == "exclude"
            ),
            text=str(each),
        )
        self._steps.append(step)

    def _copy_origin(self, each: Instruction) -> Origin | None:
        name = each.flag("from")
        if name is None:
            return None
        if not name or each.heredocs:
            raise self._wrong(each, "COPY --from takes a stage or an image, and files that are in it")
        return self._origin(words.expand(name, {**self._stages.before, **self._stages.arguments}))

    def _checksum(self, each: Instruction, addresses: Sequence[str]) -> str:
        wanted = words.expand(each.flag("checksum") or "", self._variables)
        if wanted and len(addresses) != 1:
            raise self._wrong(each, "ADD --checksum is for one address")
        if wanted and not re.fullmatch(r"sha256:[0-9a-f]{64}", wanted):
            raise self._wrong(each, f"ADD --checksum takes sha256: and 64 hexadecimal digits, not {wanted!r}")
        return wanted

    def _truth(self, each: Instruction, name: str, *, default: bool) -> bool:
        value = each.flag(name)
        if value is None:
            return default
        if value.lower() not in {"", "true", "false", "1", "0"}:
            raise self._wrong(each, f"{each.name} --{name} is true or false, not {value!r}")
        return value.lower() in {"", "true", "1"}


def _absolute(workdir: str, target: str) -> str:
    path = posixpath.normpath(posixpath.join(workdir, target))
    path = "/" + path.lstrip("/")
    return f"{path}/" if _is_folder(target) and path != "/" else path


def _is_folder(target: str) -> bool:
    """Whether a target says by itself that it is a folder."""
    return target.endswith(("/", "/.")) or target == "."
