"""A sandbox with companions: a compose project whose main service is the container that we serve.

The task's file stays as it is. A copy of it gives the main service our init, limits and network, and every
part of the project the labels by which it is found again.

Nothing of a service runs before its network has Proctor's rules. podman's `init` makes the network of a
container and starts nothing in it. For docker see `proctor.sandbox.container.holders`.

The other services were started by the engine and have no init of ours, so the engine's own `exec` and `cp`
are used in them. What `cp` sends is a tar that the service may have shaped: only plain files and folders are
taken from it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import tarfile
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from proctor.errors import SandboxError, TaskError
from proctor.processes import host_environment
from proctor.sandbox.base import Download, ExecResult, SandboxRequest
from proctor.sandbox.container import composition, holders, leftovers
from proctor.sandbox.container.command import (
    ARGUMENTS,
    INIT,
    HostParts,
    limit_options,
    mounts,
    rights,
)
from proctor.sandbox.container.composition import LOGS, harbor_variables, protect
from proctor.sandbox.container.engine import Adjustment, Engine, ask, call, end, engine_environment
from proctor.sandbox.container.registry import check_registry
from proctor.sandbox.network_rules import NetworkRules
from proctor.sandbox.overlay import HOST_NAME

Guard = Callable[[Sequence[int]], Awaitable[None]]
"""Sets the rules of the networks of processes."""
PROJECT = "proctor.project"
_SERVICE = "com.docker.compose.service"
_CHUNK = 1 << 18
_OVERHEAD_BYTES = 16 << 20
"""What a tar may have beyond the content of its files."""
_COPY_S = 300.0
_TIMED_OUT = 137
_UP_S = 300.0
_DOWN_S = 120.0
_PASSED = ("XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "DOCKER_*", "CONTAINER*", "REGISTRY_*")
_LIMIT_KEYS = {
    "--pids-limit": "pids_limit",
    "--memory": "mem_limit",
    "--memory-swap": "memswap_limit",
    "--cpus": "cpus",
}


def compose_program(engine: Engine) -> tuple[str, ...]:
    """The program that serves compose files; SandboxError says what to install."""
    for words in engine.compose:
        if shutil.which(words[0]):
            return words
    raise SandboxError(
        f"the task has a compose file, but {engine.name} cannot run compose files here: {engine.compose_hint}"
    )


class ComposeProject:
    """One project per sandbox."""

    def __init__(
        self,
        engine: Engine,
        fit: Adjustment,
        request: SandboxRequest,
        parts: HostParts,
        *,
        rules: NetworkRules,
        guard: Guard,
    ) -> None:
        assert request.root.compose is not None
        self._engine = engine
        self._fit = fit
        self._label = f"{PROJECT}={parts.name}"
        self._guard = guard
        self._rules = rules
        self._waiting = contextlib.ExitStack()
        options = ("--podman-args", " ".join(fit.options)) if fit.options else ()
        self._program = (*compose_program(engine), *options)
        self._folder = parts.folder
        self._file = parts.folder.with_suffix(".json")
        variables = {**request.granted, **request.env, **_variables(request)}
        composed = composition.read(request.root.compose, variables, main=request.root.service)
        document = project(composed, fit, request, parts)
        services = document["services"].values()
        pulled = [each for each in services if each.get("pull_policy") != "never"]
        self._pulled = [str(each["image"]) for each in pulled if each.get("image")]
        if not engine.initialises:
            document = holders.added(document, labels_of(parts), request, parts)
        document, apart = without_values(document, request.hidden)
        self._holders = [name for name in document["services"] if name.endswith(holders.SUFFIX)]
        self._file.touch(mode=0o600)
        self._document = document
        self._write(document)
        self._files = ["-p", parts.name, "-f", str(self._file)]
        self._env = {**_environment(request.env), **apart}

    async def up(self) -> None:
        """Make the networks of all services, give them their rules, and only then start the services."""
        for image in self._pulled:
            here = [self._engine.program, *self._fit.options, "image", "inspect", image]
            if (await call(here)).code:
                await check_registry(image, self._rules)
        if self._engine.initialises:
            # Newer programs tell podman who needs whom, and its `init` starts what others need.
            self._write(without_order(self._document))
            await self._compose("up", "--no-start", "--no-build")
            await self._guard(await self._processes("init"))
            self._write(self._document)
            await self._compose("up", "-d", "--no-build", "--no-recreate")
        else:
            self._waiting.enter_context(holders.waiting(self._folder))
            await self._compose("up", "-d", "--no-build", "--no-deps", *self._holders)
            await self._guard(await self._processes())
            await self._compose("up", "-d", "--no-build")

    def _write(self, document: Mapping[str, Any]) -> None:
        self._file.write_text(json.dumps(protect(document)))

    async def _compose(self, *words: str) -> None:
        command = [*self._program, *self._files, *words]
        said = await call(command, timeout_s=_UP_S, env=self._env, cwd=self._folder)
        if said.code:
            raise SandboxError(f"{self._engine.name} could not start the task's services: {said.last_lines}")

    async def _processes(self, *first: str) -> list[int]:
        """The first process of each container of the project, after a command to all of them."""
        base = [self._engine.program, *self._fit.options]
        # Without --all podman looks at every container of the machine, and fails if one is just going.
        said = await ask([*base, "ps", "--all", "--quiet", "--filter", f"label={self._label}"])
        names = said.out.split()
        if said.code == 0 and names and first:
            said = await call([*base, *first, *names], timeout_s=_UP_S, cwd=self._folder)
        if said.code == 0 and names:
            said = await ask([*base, "inspect", "--format", "{{.State.Pid}}", *names])
        found = said.out.split()
        if said.code or not found or "0" in found:
            raise SandboxError(f"{self._engine.name} could not start the task's services: {said.last_lines}")
        return [int(word) for word in found]

    async def down(self) -> None:
        """`down` without a grace period, volumes and networks included."""
        command = [*self._program, *self._files, "down", "-t", "0", "-v"]
        said = await call(command, timeout_s=_DOWN_S, env=self._env)
        self._waiting.close()
        # Older programs leave the networks.
        await leftovers.remove_project_parts(self._engine, self._fit, self._label)
        self._file.unlink(missing_ok=True)
        if said.code:
            raise SandboxError(f"{self._engine.name} could not remove the task's services: {said.reason}")


def project(
    composed: composition.Composition, fit: Adjustment, request: SandboxRequest, parts: HostParts
) -> dict[str, Any]:
    """The task's compose file and what we lay over it, as one: programs differ in how they join two."""
    labels = labels_of(parts)
    own = composed.document
    services = {
        name: {
            **_prebuilt(service, request.root.companions.get(name)),
            **_ulimits(fit),
            **rights(parts),
            "labels": {**_labels(service), **labels},
        }
        for name, service in own["services"].items()
    }
    main = services[composed.main]
    over = _main_service(fit, request, parts)
    main.pop("build", None)
    own_volumes = [each for each in main.get("volumes", ()) if each not in LOGS.values()]
    services[composed.main] = {**main, **over, "volumes": [*own_volumes, *over["volumes"]]}
    closed = {} if request.limits.network == "public" else {"internal": True}
    networks = {
        name: {**own["networks"].get(name, {}), **closed, "labels": labels}
        for name in ("default", *own["networks"])
    }
    volumes = {name: {**volume, "labels": labels} for name, volume in own["volumes"].items()}
    return {"services": services, "networks": networks, **({"volumes": volumes} if volumes else {})}


def without_order(document: Mapping[str, Any]) -> dict[str, Any]:
    """The project in which no service needs another."""
    services = {
        name: {key: value for key, value in service.items() if key != "depends_on"}
        for name, service in document["services"].items()
    }
    return {**document, "services": services}


def labels_of(parts: HostParts) -> dict[str, str]:
    """What every part of a project is found by."""
    return {**parts.labels, PROJECT: parts.name}


def without_values(
    document: Mapping[str, Any], hidden: Sequence[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The project with names in place of secret variables of its services, and the variables themselves.

    A name alone is taken from the program's own environment; a value would be on the engine's command line.
    """
    apart: dict[str, str] = {}
    services = {}
    for name, service in document["services"].items():
        variables = composition.pairs(service.get("environment"), {})
        secret = {key: text for key, text in variables.items() if any(each in text for each in hidden)}
        for key, value in secret.items():
            if apart.setdefault(key, value) != value or key in host_environment(*_PASSED):
                raise TaskError(f"service {name}: the variable {key} holds a secret and needs another name")
        changed = {"environment": {**variables, **dict.fromkeys(secret)}} if secret else {}
        services[name] = {**service, **changed}
    found = {**document, "services": services}
    if any(json.dumps(each)[1:-1] in json.dumps(found) for each in hidden):
        raise TaskError(
            "the compose file uses a secret outside of 'environment', where other users of the machine see it"
        )
    return found, apart


def _variables(request: SandboxRequest) -> dict[str, str]:
    root, limits = request.root, request.limits
    assert root.compose is not None
    image = root.image or ""
    return harbor_variables(
        root.compose.parent,
        main_image=image,
        prebuilt=image,
        cpus=limits.cpus,
        memory_bytes=limits.memory_bytes,
    )


def _labels(service: Mapping[str, Any]) -> dict[str, Any]:
    """A service's own labels, which may be written as a list."""
    given = service.get("labels") or {}
    return dict(given) if isinstance(given, dict) else dict(str(each).partition("=")[::2] for each in given)


def _main_service(fit: Adjustment, request: SandboxRequest, parts: HostParts) -> dict[str, Any]:
    options = limit_options(request.limits, fit)
    limits: dict[str, Any] = {
        _LIMIT_KEYS[name]: value for name, value in zip(options[::2], options[1::2], strict=True)
    }
    if "pids_limit" in limits:
        limits["pids_limit"] = int(limits["pids_limit"])
    return {
        "image": request.root.image,
        "pull_policy": "never",
        "entrypoint": [INIT, *ARGUMENTS],
        "command": [],
        "user": "0:0",
        "working_dir": "/",
        "hostname": HOST_NAME,
        "restart": "no",
        "healthcheck": {"disable": True},
        "volumes": [f"{source}:{target}:ro" for source, target in mounts(request, parts)],
        **limits,
    }


def _prebuilt(service: Mapping[str, Any], image: str | None) -> dict[str, Any]:
    if image is None:
        return dict(service)
    rest = {key: value for key, value in service.items() if key != "build"}
    return {**rest, "image": image, "pull_policy": "never"}


def _ulimits(fit: Adjustment) -> dict[str, Any]:
    pairs = [word.split("=") for word in fit.ulimits if "=" in word]
    found = {name: int(value.split(":")[0]) for name, value in pairs}
    return (
        {"ulimits": {name: {"soft": value, "hard": value} for name, value in found.items()}} if found else {}
    )


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    """What `${VAR}` in the file may mean: the task's own variables, never those of this machine."""
    return {**given, **host_environment(*_PASSED)}


class Service:
    """One service beside the main one; see `proctor.sandbox.base.Companion`."""

    def __init__(self, engine: Engine, fit: Adjustment, project: str, name: str) -> None:
        self._command = (engine.program, *fit.options)
        self._project = project
        self._name = name

    async def exec(
        self, argv: Sequence[str], *, user: str | None = None, timeout_s: float | None = None
    ) -> ExecResult:
        """Run a command there; at its time limit it is left behind, and ends with its service."""
        options = ["--user", user] if user else []
        try:
            async with asyncio.timeout(timeout_s):
                said = await call(
                    [*self._command, "exec", *options, await self._container(), *argv], timeout_s=None
                )
        except TimeoutError:
            return ExecResult(exit_code=_TIMED_OUT, timed_out=True)
        return ExecResult(exit_code=said.code, stdout=said.out.encode(), stderr=said.err.encode())

    async def download(self, source: str, target: Path, *, max_bytes: int) -> Download:
        """Copy a file or a folder's content out; FileNotFoundError when nothing is there."""
        container = await self._container()
        with tempfile.TemporaryFile() as packed:
            process = await asyncio.create_subprocess_exec(
                *self._command, "cp", f"{container}:{source}", "-",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
                env=engine_environment(),
            )  # fmt: skip
            assert process.stdout is not None
            try:
                async with asyncio.timeout(_COPY_S):
                    while data := await process.stdout.read(_CHUNK):
                        packed.write(data)
                        if packed.tell() > max_bytes + _OVERHEAD_BYTES:
                            raise SandboxError(f"{self._name}:{source} is larger than {max_bytes} bytes")
                    code = await process.wait()
            except TimeoutError:
                raise SandboxError(f"{self._name}:{source} was not copied within {_COPY_S:g} s") from None
            finally:
                await end(process)
            if code:
                raise FileNotFoundError(f"{source} does not exist in service {self._name}")
            packed.seek(0)
            return take_out(packed, target, max_bytes)

    async def _container(self) -> str:
        filters = [f"label={PROJECT}={self._project}", f"label={_SERVICE}={self._name}"]
        asked = [word for each in filters for word in ("--filter", each)]
        said = await ask([*self._command, "ps", *asked, "--format", "{{.ID}}"])
        if not said.out.strip():
            raise SandboxError(f"the service '{self._name}' is not running")
        return said.out.split()[0]


def take_out(packed: object, target: Path, max_bytes: int) -> Download:
    """Write the plain files of a tar of one file or folder to a path that is not there yet."""
    files = used = dropped = 0
    names: list[str] = []
    try:
        with tarfile.open(fileobj=packed, mode="r:") as archive:  # type: ignore[call-overload]
            for member in archive:
                parts = PurePosixPath(member.name).parts
                if ".." in parts or PurePosixPath(member.name).is_absolute():
                    raise SandboxError(f"a copy names '{member.name[:100]}', which leads out of it")
                place = target.joinpath(*parts[1:])
                if member.isdir():
                    place.mkdir(parents=True, exist_ok=True)
                elif member.isreg() and used + member.size <= max_bytes:
                    place.parent.mkdir(parents=True, exist_ok=True)
                    opened = archive.extractfile(member)
                    assert opened is not None
                    with opened, place.open("xb") as sink:
                        shutil.copyfileobj(opened, sink)
                    files, used = files + 1, used + member.size
                else:
                    dropped += 1
                    names += [member.name] if dropped <= 100 else []
    except (tarfile.TarError, OSError, EOFError) as error:
        raise SandboxError(f"a copy could not be read: {error}") from error
    return Download(files=files, bytes=used, dropped=tuple(names), dropped_count=dropped)
