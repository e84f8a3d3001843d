"""A task's compose file, read and checked. What would reach beyond its own containers is refused.

The engine would do what the file says with the rights of Proctor's user, so only keys that are known to
stay inside are let through: no privileges, no devices, no folders of the host but the task's own.

`${NAME}` is filled in as compose programs do, with the names that Harbor sets. A name that is not set is
empty. Variables of this machine are never among them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from proctor.disk import read_small
from proctor.errors import TaskError
from proctor.model.task import TaskEnvironment

MAIN_IMAGE = "proctor-main-image"
"""Placeholder for the image of the main service until that is made."""
LOGS = {
    "VERIFIER_LOGS": "/logs/verifier",
    "AGENT_LOGS": "/logs/agent",
    "ARTIFACTS": "/logs/artifacts",
}
_NAME = re.compile(r"[A-Za-z_]\w*")
_PLAIN = re.compile(r"[^,:\x00-\x1f]*")
_MEGABYTE = 1 << 20
_BARE = re.compile(r"\$\$|\$\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)")
_MOST_BYTES = 256 << 10
_MOST_VALUES = 50_000
_DEEPEST = 50
_TOP = {"version", "name", "services", "networks", "volumes"}
_SERVICE = {
    "build", "cap_drop", "command", "cpus", "depends_on", "deploy", "entrypoint", "env_file", "environment",
    "expose", "healthcheck", "hostname", "image", "init", "labels", "mem_limit", "networks", "pids_limit",
    "platform", "pull_policy", "read_only", "restart", "shm_size", "stdin_open", "stop_grace_period",
    "stop_signal", "tmpfs", "tty", "ulimits", "user", "volumes", "working_dir",
}  # fmt: skip
_BUILD = {"context", "dockerfile", "args", "target"}
_NETWORK = {"driver", "internal", "labels"}
_VOLUME = {"labels", "driver"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """What matters of a compose file."""

    file: Path
    main: str
    image: str | None
    """The image of the main service, when it names one and has nothing to build."""
    context: Path | None
    """The folder from which the main service is built."""
    dockerfile: Path | None
    document: Mapping[str, Any]
    """The file's content, without nulls and with absolute paths, so it can be in any folder."""

    def made_of(self, wanted: TaskEnvironment) -> tuple[str | None, Path | None, Path | None]:
        """The image of the main service, or the context and the Dockerfile that it is built from.

        Harbor lays the file over its own, which builds the task's Dockerfile or takes its prebuilt image; an
        `image` beside a Dockerfile is then only a name for what is built.
        """
        if self.context is not None:
            return None, self.context, self.dockerfile
        if self.image and (wanted.image or not wanted.dockerfile):
            return self.image, None, None
        return wanted.image, wanted.folder, wanted.dockerfile


def variables_of(wanted: TaskEnvironment) -> dict[str, str]:
    """What `${NAME}` in a task's compose file means before its sandbox exists."""
    assert wanted.compose is not None
    return {
        **{name: value for name, value in wanted.env.items() if "$" not in value},
        **harbor_variables(
            wanted.compose.parent,
            prebuilt=wanted.image,
            cpus=wanted.cpus,
            memory_bytes=wanted.memory_bytes,
        ),
    }


def read(file: Path, variables: Mapping[str, str] | None = None, *, main: str = "") -> Composition:
    """Read, fill in variables and check; TaskError names the place and what is wrong there.

    `main` names the service that is the sandbox, also when the file does not mention it.
    """
    folder = file.parent.resolve()
    data = fill(_load(file), variables or harbor_variables(folder), f"{file}")
    _known(data, _TOP, f"{file}")
    services = dict(_mapping(data.get("services"), f"{file}: services"))
    if not services:
        raise TaskError(f"{file}: there is no service")
    main = main or _main(list(services), file)
    services = {name: services[name] or {} for name in services} | ({} if main in services else {main: {}})
    for name, service in services.items():
        _check_service(_mapping(service, f"{file}: service {name}"), folder, f"{file}: service {name}")
    networks = _mapping(data.get("networks"), f"{file}: networks")
    for name, network in networks.items():
        where = f"{file}: network {name}"
        _known(_mapping(network, where), _NETWORK, where)
        if _mapping(network, where).get("driver", "bridge") != "bridge":
            raise TaskError(f"{where}: only the driver bridge is allowed")
    volumes = _mapping(data.get("volumes"), f"{file}: volumes")
    for name, volume in volumes.items():
        _known(_mapping(volume, f"{file}: volume {name}"), _VOLUME, f"{file}: volume {name}")
    context, dockerfile = _build_of(_mapping(services[main], ""), folder, f"{file}: service {main}")
    image = _mapping(services[main], "").get("image")
    return Composition(
        file=file,
        main=main,
        image=str(image) if image and image != MAIN_IMAGE and context is None else None,
        context=context,
        dockerfile=dockerfile,
        document={
            "services": {name: _absolute(service, folder) for name, service in services.items()},
            "networks": {name: dict(network or {}) for name, network in networks.items()},
            "volumes": {name: dict(volume or {}) for name, volume in volumes.items()},
        },
    )


def _absolute(service: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A checked service that no longer depends on where its file is."""
    found = dict(service)
    if "volumes" in found:
        found["volumes"] = [
            parts(each)[1] if _is_log(each) else _absolute_volume(each, folder)
            for each in found["volumes"] or ()
        ]
    if files := found.get("env_file"):
        found["env_file"] = [str(folder / each) for each in ([files] if isinstance(files, str) else files)]
    if build := found.get("build"):
        given = {"context": build} if isinstance(build, str) else dict(build)
        found["build"] = {**given, "context": str(folder / given.get("context", "."))}
    return found


def _absolute_volume(volume: Any, folder: Path) -> Any:
    """A checked volume with nothing of it that was not checked: engines have options that name other folders.

    A folder of the task is only read: all attempts share it. Whoever could write there would change the task
    for the others, or put a link to anywhere on this machine in its place after it was checked.
    """
    source, target, read_only = parts(volume)
    if _is_bind(volume):
        return f"{(folder / source).resolve()}:{target}:ro"
    if not isinstance(volume, str):
        return {key: volume[key] for key in ("type", "source", "target", "read_only") if key in volume}
    name, colon, _ = volume.partition(":")
    return f"{name}:{target}{':ro' * read_only}" if colon else volume


def _load(file: Path) -> Mapping[str, Any]:
    try:
        data = yaml.safe_load(read_small(file, _MOST_BYTES))
        _check_size(data)
    except OSError as error:
        raise TaskError(f"{file}: not a compose file: {error.strerror or error}") from error
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise TaskError(f"{file}: not a compose file: {error}") from error
    return _mapping(data, f"{file}")


def _check_size(data: Any) -> None:
    """ValueError for a document that is far larger than its file, or contains itself: aliases make both."""
    number, rest = 0, [(data, 0)]
    while rest:
        value, depth = rest.pop()
        number += 1
        if number > _MOST_VALUES or depth > _DEEPEST:
            raise ValueError("too large or too deep with its aliases written out")
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        rest.extend((each, depth + 1) for each in inner)


def pairs(given: Any, variables: Mapping[str, str]) -> dict[str, str]:
    """Names and values, written as a mapping or as a list; a name alone takes the variable of that name."""
    if isinstance(given, dict):
        named = {str(name): value for name, value in given.items()}
    else:
        split = (str(each).partition("=") for each in given or ())
        named = {name: value if equals else None for name, equals, value in split}
    found = {name: variables.get(name) if value is None else _text(value) for name, value in named.items()}
    return {name: value for name, value in found.items() if value is not None}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def parts(volume: Any) -> tuple[str, str, bool]:
    """The folder of the task that a checked volume shows, its path inside, and whether it is read-only."""
    if isinstance(volume, str):
        source, colon, rest = volume.partition(":")
        target, _, options = rest.partition(":")
        read_only = "ro" in options.split(",")
        return (source if _is_bind(volume) else "", target if colon else source, read_only)
    target = str(volume.get("target", ""))
    return (str(volume.get("source", "")) if _is_bind(volume) else "", target, bool(volume.get("read_only")))


def _main(names: list[str], file: Path) -> str:
    if "main" in names or (file.parent / "Dockerfile").is_file():
        return "main"
    if len(names) == 1:
        return names[0]
    raise TaskError(f"{file}: which of {', '.join(names)} is the sandbox? Name it 'main'")


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise TaskError(f"{where}: a mapping is expected")
    return value


def _known(value: Mapping[str, Any], keys: set[str], where: str) -> None:
    for key in value:
        if key not in keys and not key.startswith("x-"):
            raise TaskError(f"{where}: '{key}' is not allowed in a task's compose file")


def _check_service(service: Mapping[str, Any], folder: Path, where: str) -> None:
    _known(service, _SERVICE, where)
    for volume in _listed(service.get("volumes"), f"{where}: volumes"):
        _check_volume(volume, folder, where)
    files = service.get("env_file") or []
    for each in [files] if isinstance(files, str) else _listed(files, f"{where}: env_file"):
        if not isinstance(each, str):
            raise TaskError(f"{where}: env_file: the name of a file is expected")
        _inside(each, folder, f"{where}: env_file")
    _copies(service, where)
    _build_of(service, folder, where)


def companions(file: Path) -> int:
    """How many containers a compose file starts beside the sandbox, whatever its variables are."""
    services = _mapping(_load(file).get("services"), f"{file}: services")
    alone = len(services) == 1 and not (file.parent / "Dockerfile").is_file()
    copies = sum(
        _copies(_mapping(service, f"{file}: service {name}"), f"{file}: service {name}")
        for name, service in services.items()
    )
    return copies - ("main" in services or alone)


def _copies(service: Mapping[str, Any], where: str) -> int:
    number = _mapping(service.get("deploy"), f"{where}: deploy").get("replicas", 1)
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise TaskError(f"{where}: deploy: replicas is a whole number, without variables")
    return number


def _check_volume(volume: Any, folder: Path, where: str) -> None:
    if not isinstance(volume, str):
        _mapping(volume, f"{where}: volumes")
    source = volume.partition(":")[0] if isinstance(volume, str) else str(volume.get("source", ""))
    _, target, _ = parts(volume)
    for path in (source, target):
        if not _PLAIN.fullmatch(path):
            raise TaskError(f"{where}: volumes: '{path}' has a character that means something to engines")
    if _is_bind(volume) and not _is_log(volume):
        _inside(source, folder, f"{where}: volumes")


def _is_log(volume: Any) -> bool:
    """Whether a volume is one of the log folders that Harbor shares with this machine."""
    source, target, _ = parts(volume)
    return source in LOGS.values() and target.rstrip("/") in LOGS.values()


def _listed(value: Any, where: str) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise TaskError(f"{where}: a list is expected")
    return value or []


def _is_bind(volume: Any) -> bool:
    """Whether a volume is a folder of the task rather than one of the engine's own."""
    if isinstance(volume, str):
        return ":" in volume and volume.startswith((".", "/", "~", "$"))
    return volume.get("type") not in {"volume", "tmpfs"}


def _inside(path: str, folder: Path, where: str) -> Path:
    """A path of the task's own folder, also after every link."""
    place = (folder / path).resolve()
    if "$" in path or path.startswith("~") or not place.is_relative_to(folder):
        raise TaskError(f"{where}: '{path}' is outside the task's folder {folder}")
    return place


def _build_of(service: Mapping[str, Any], folder: Path, where: str) -> tuple[Path | None, Path | None]:
    build = service.get("build")
    if build is None:
        return None, None
    given = {"context": build} if isinstance(build, str) else _mapping(build, f"{where}: build")
    _known(given, _BUILD, f"{where}: build")
    context = _inside(str(given.get("context", ".")), folder, f"{where}: build")
    dockerfile = _inside(str(given.get("dockerfile", "Dockerfile")), context, f"{where}: build")
    return context, dockerfile


def harbor_variables(
    folder: Path,
    *,
    main_image: str = MAIN_IMAGE,
    prebuilt: str | None = None,
    cpus: float | None = None,
    memory_bytes: int | None = None,
) -> dict[str, str]:
    """What Harbor sets for a compose file in a folder."""
    found = {"CONTEXT_DIR": str(folder.resolve()), "MAIN_IMAGE_NAME": main_image}
    for name, path in LOGS.items():
        found |= {f"HOST_{name}_PATH": path, f"ENV_{name}_PATH": path}
    if prebuilt:
        found["PREBUILT_IMAGE_NAME"] = prebuilt
    if cpus:
        found["CPUS"] = f"{cpus:g}"
    if memory_bytes:
        found["MEMORY"] = f"{memory_bytes // _MEGABYTE}M"
    return found


def fill(value: Any, variables: Mapping[str, str], where: str) -> Any:
    """A document with the variables in its texts filled in; TaskError for `${NAME:?why}` without a value."""
    if isinstance(value, str):
        return _filled(value, variables, where)
    if isinstance(value, list):
        return [fill(each, variables, where) for each in value]
    if isinstance(value, dict):
        return {key: fill(each, variables, where) for key, each in value.items()}
    return value


def used(file: Path) -> list[str]:
    """The variables that a compose file uses without a default; none of a file that cannot be read."""
    try:
        data = _load(file)
    except TaskError:
        return []  # reading it for the sandbox says what is wrong
    found: dict[str, None] = {}
    _collect(data, found)
    return list(found)


def _collect(value: Any, found: dict[str, None]) -> None:
    if isinstance(value, str):
        found |= dict.fromkeys(
            match[1] or match[2] for match in _BARE.finditer(value) if match[1] or match[2]
        )
    for each in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
        _collect(each, found)


def protect(value: Any) -> Any:
    """A document in which no program finds another variable."""
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, list):
        return [protect(each) for each in value]
    if isinstance(value, dict):
        return {key: protect(each) for key, each in value.items()}
    return value


def _filled(text: str, variables: Mapping[str, str], where: str) -> str:
    pieces: list[str] = []
    at = 0
    while (found := text.find("$", at)) >= 0:
        pieces.append(text[at:found])
        at = found + 1
        if text[at : at + 1] == "$":
            pieces.append("$")
            at += 1
        elif text[at : at + 1] == "{":
            end = _end(text, at + 1, where)
            pieces.append(_braced(text[at + 1 : end], variables, where))
            at = end + 1
        elif name := _NAME.match(text, at):
            pieces.append(variables.get(name[0], ""))
            at = name.end()
        else:
            raise TaskError(f"{where}: '{text}': write a dollar sign that begins no variable as $$")
    return "".join([*pieces, text[at:]])


def _end(text: str, at: int, where: str) -> int:
    """Where the brace that was opened before `at` is closed."""
    depth = 1
    for place in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if not depth:
            return place
    raise TaskError(f"{where}: '{text}': a brace is not closed")


def _braced(body: str, variables: Mapping[str, str], where: str) -> str:
    name = _NAME.match(body)
    kind = re.match(r":?[-+?]|$", body[name.end() :]) if name else None
    if not name or not kind:
        raise TaskError(f"{where}: '${{{body}}}' is not a variable")
    value = variables.get(name[0])
    given = bool(value) if kind[0].startswith(":") else value is not None
    rest = body[name.end() + kind.end() :]
    if kind[0].endswith("+"):
        return _filled(rest, variables, where) if given else ""
    if given or not kind[0]:
        return value or ""
    if kind[0].endswith("?"):
        raise TaskError(f"{where}: {name[0]} has no value: {_filled(rest, variables, where)}")
    return _filled(rest, variables, where)
