"""What a task's environment asks to be made: an image, or a Dockerfile and its context, and how to run it.

A compose file whose only service is the sandbox itself is such an environment too, and needs no engine. Which
images tasks name is found here as well, without building or starting anything.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proctor.disk import read_small
from proctor.errors import LastingImageError, TaskError
from proctor.model.task import Task, TaskEnvironment
from proctor.sandbox.base import Root

if TYPE_CHECKING:
    from proctor.sandbox.container.composition import Composition

_HARMLESS = {
    "depends_on", "expose", "init", "labels", "networks", "pull_policy", "restart", "stdin_open",
    "stop_grace_period", "stop_signal", "tty", "cap_drop",
}  # fmt: skip
"""What makes no difference to one sandbox that is thrown away."""
_HONOURED = {
    "build", "command", "cpus", "deploy", "entrypoint", "env_file", "environment", "healthcheck", "image",
    "mem_limit", "platform", "tmpfs", "user", "volumes", "working_dir",
}  # fmt: skip
_IDLE = re.compile(
    r"(?:(?:/bin/)?(?:ba)?sh -l?c )?[\"']?(?:sleep (?:infinity|\d+\w?)|tail -f /dev/null)[\"']?"
)
_MOST_ENV_BYTES = _MOST_COMPOSE_BYTES = 1 << 20
_OPTIONAL = ("PREBUILT_IMAGE_NAME", "CPUS", "MEMORY")
"""Harbor's variables that are set only where a task says something about them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One root to make."""

    where: str
    """For messages."""
    image: str | None = None
    folder: Path | None = None
    dockerfile: Path | None = None
    target: str = ""
    """The stage of the Dockerfile; the last one without."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = ""
    user: str = ""
    binds: Mapping[str, Path] = field(default_factory=dict)
    """Path inside → folder of the task, read-only there."""
    own_entrypoint: bool = False
    """A compose file says what to start, and it only waits: the image's entrypoint is not used."""
    folders: tuple[str, ...] = ()
    """Folders that must be there."""

    def dressed(self, root: Root) -> Root:
        """A root with what is said here about how commands run in it."""
        if self.own_entrypoint:
            root = replace(root, entrypoint=())
        if not (self.env or self.workdir or self.user or self.binds):
            return root
        described = [root.digest, sorted(self.env.items()), self.workdir, self.user, sorted(self.binds)]
        return replace(
            root,
            env={**root.env, **self.env},
            workdir=self.workdir or root.workdir,
            user=self.user or root.user,
            binds={**root.binds, **self.binds},
            digest=hashlib.sha256(json.dumps(described).encode()).hexdigest(),
        )


def definition_of(wanted: TaskEnvironment) -> Definition:
    """What an environment asks for; ImageError when it takes several containers."""
    if wanted.compose:
        return _single_service(wanted)
    place = wanted.dockerfile or wanted.folder
    return Definition(
        where=str(place) if place else "the task's environment",
        image=wanted.image,
        folder=wanted.folder,
        dockerfile=wanted.dockerfile,
    )


def _single_service(wanted: TaskEnvironment) -> Definition:
    """What the only service of a compose file asks for; ImageError when it asks for too much.

    What cannot be kept is refused by name: a task that silently runs otherwise would be judged otherwise.
    """
    from proctor.sandbox.container import composition

    file = wanted.compose
    assert file is not None
    variables = composition.variables_of(wanted)
    _check_known(file, wanted, variables)
    main = "main" if wanted.image or wanted.dockerfile else ""
    composed = composition.read(file, variables, main=main)
    services = composed.document["services"]
    if len(services) > 1:
        others = [name for name in services if name != composed.main]
        need = f"service {others[0]} needs" if len(others) == 1 else f"services {', '.join(others)} need"
        raise LastingImageError(
            f"{file}: the {need} podman or docker as sandbox: set PROCTOR_SANDBOX=podman or =docker"
        )
    service = services[composed.main]
    where = f"{file}: service {composed.main}"
    _check(service, where, variables)
    volumes, folders = _volumes(service)
    return replace(main_service(wanted, composed, variables), binds=volumes, folders=folders)


def _check_known(file: Path, wanted: TaskEnvironment, variables: Mapping[str, str]) -> None:
    """Refuse variables whose value is known only when a sandbox starts: the image must not hold them."""
    from proctor.sandbox.container.composition import used

    for name in used(file):
        if name in variables or name in _OPTIONAL:
            continue
        other = (
            ""
            if name in wanted.env
            else f', or put {name} = "${{{name}}}" into [environment.env] of task.toml'
        )
        raise LastingImageError(
            f"{file}: the value of ${{{name}}} is known only when the sandbox starts; use podman or docker "
            f"(PROCTOR_SANDBOX){other}"
        )


def main_service(wanted: TaskEnvironment, composed: Composition, variables: Mapping[str, str]) -> Definition:
    """What a compose file says about its main service, but for the folders it shows there."""
    from proctor.sandbox.container.composition import pairs

    service = composed.document["services"][composed.main]
    image, folder, dockerfile = composed.made_of(wanted)
    build = service.get("build") or {}
    return Definition(
        where=str(composed.file),
        image=image,
        folder=folder,
        dockerfile=dockerfile,
        target=str(build.get("target", "")),
        arguments=pairs(build.get("args"), variables),
        env={**_env_files(service), **pairs(service.get("environment"), variables)},
        workdir=str(service.get("working_dir") or ""),
        user=str(service.get("user") or ""),
        own_entrypoint=service.get("entrypoint") is not None,
    )


def service_definition(composed: Composition, name: str, variables: Mapping[str, str]) -> Definition:
    """What a service beside the main one is built from."""
    from proctor.sandbox.container.composition import pairs

    build = composed.document["services"][name]["build"]
    context = Path(build["context"])
    return Definition(
        where=f"{composed.file}: service {name}",
        folder=context,
        dockerfile=context / str(build.get("dockerfile", "Dockerfile")),
        target=str(build.get("target", "")),
        arguments=pairs(build.get("args"), variables),
    )


def _check(service: Mapping[str, Any], where: str, variables: Mapping[str, str]) -> None:
    for key, value in service.items():
        if key not in _HARMLESS | _HONOURED and not key.startswith("x-"):
            raise LastingImageError(
                f"{where}: '{key}' needs podman or docker; set PROCTOR_SANDBOX=podman or =docker"
            )
        if key in {"command", "entrypoint"} and not _is_idle(value):
            raise LastingImageError(
                f"{where}: '{key}' starts a program of its own, and sandboxes start none: start it in the "
                f"tests or the instruction, or remove it"
            )
    check = service.get("healthcheck") or {"disable": True}
    if not (isinstance(check, dict) and (check.get("disable") or check.get("test") in ("NONE", ["NONE"]))):
        raise LastingImageError(f"{where}: 'healthcheck' belongs in task.toml, as [environment.healthcheck]")
    if platform := service.get("platform"):
        from proctor.sandbox.image.stages import check_platform

        check_platform(str(platform), f"{where}: platform")
    for key, value in _limits(service).items():
        if str(value) not in {"", variables.get("CPUS"), variables.get("MEMORY")}:
            raise LastingImageError(
                f"{where}: '{key}' belongs in task.toml, as cpus or memory_mb of [environment]"
            )


def _limits(service: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: service[key] for key in ("cpus", "mem_limit") if service.get(key)}
    deploy = service.get("deploy") or {}
    resources = deploy.get("resources") or {} if isinstance(deploy, dict) else {}
    for kind in ("limits", "reservations"):
        given = resources.get(kind) if isinstance(resources, dict) else None
        found |= {f"deploy.resources.{kind}.{key}": value for key, value in (given or {}).items()}
    return found


def _is_idle(command: Any) -> bool:
    """Whether a command only keeps a container open."""
    text = " ".join(map(str, command)) if isinstance(command, list) else str(command or "")
    return not text.strip() or bool(_IDLE.fullmatch(" ".join(text.split())))


def _volumes(service: Mapping[str, Any]) -> tuple[dict[str, Path], tuple[str, ...]]:
    """Folders of the task that are shown read-only, and empty folders."""
    from proctor.sandbox.container.composition import LOGS, parts

    binds: dict[str, Path] = {}
    folders: list[str] = []
    given = service.get("tmpfs") or ()
    folders += [str(each).partition(":")[0] for each in ([given] if isinstance(given, str) else given)]
    for volume in service.get("volumes") or ():
        source, target, _ = parts(volume)
        if target.rstrip("/") in LOGS.values():
            continue  # every sandbox has those
        if not source:
            folders.append(target)
        else:
            binds[target] = Path(source)
    return binds, tuple(folders)


def _env_files(service: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in service.get("env_file") or ():
        place = Path(each)
        try:
            lines = read_small(place, _MOST_ENV_BYTES).decode().splitlines()
        except (OSError, ValueError) as error:
            raise TaskError(f"{place}: cannot be read: {error}") from error
        for line in lines:
            name, equals, value = line.strip().removeprefix("export ").partition("=")
            if equals and not name.startswith("#"):
                found[name.strip()] = value.strip().strip("\"'")
    return found


def needed_images(task: Task) -> tuple[str, ...]:
    """Every image that a task names: prebuilt, in its Dockerfiles, in its compose files; each once.

    TaskError when one of these files cannot be read.
    """
    verifiers = [task.verifier, *(step.verifier for step in task.steps)]
    environments = [task.environment, *(each.environment for each in verifiers if each.environment)]
    return tuple(dict.fromkeys(name for each in environments if each for name in _named_images(each)))


def _named_images(environment: TaskEnvironment) -> Iterator[str]:
    if environment.image:
        yield environment.image
    elif environment.dockerfile:
        yield from _in_dockerfile(environment.dockerfile)
    if environment.compose:
        yield from _in_compose(environment.compose)


def _in_dockerfile(file: Path) -> Iterator[str]:
    from proctor.sandbox.image.stages import UnsupportedError, stages_of

    try:
        stages = stages_of(file)
        yield from stages.bases(stages.target())
    except UnsupportedError as error:
        raise TaskError(f"{file}:{error.line}: {error.what}: its image cannot be determined") from error


def _in_compose(file: Path) -> Iterator[str]:
    import yaml

    try:
        value: Any = yaml.safe_load(read_small(file, _MOST_COMPOSE_BYTES))
        services = [each for each in dict(value["services"]).values() if isinstance(each, dict)]
    except (OSError, ValueError, LookupError, TypeError, RecursionError, yaml.YAMLError) as error:
        raise TaskError(f"{file}: cannot be read as a compose file") from error
    for service in services:
        image, build = str(service.get("image") or ""), service.get("build")
        if build:
            place = file.parent / str(build.get("context", ".") if isinstance(build, dict) else build)
            name = str(build.get("dockerfile", "Dockerfile")) if isinstance(build, dict) else "Dockerfile"
            if (place / name).is_file():
                yield from _in_dockerfile(place / name)
        elif image and "$" not in image:
            yield image  # a variable means the image that is made of the task itself
