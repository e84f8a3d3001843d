"""The container of a sandbox: its command line, and how it is started and removed by the engine."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor.disk import opened
from proctor.errors import SandboxError
from proctor.sandbox.base import Limits, SandboxRequest
from proctor.sandbox.capabilities import CAPABILITIES, MASK
from proctor.sandbox.certificates import BUNDLE_PATH
from proctor.sandbox.container.engine import Adjustment, Answer, Engine, call
from proctor.sandbox.container.usage import restore
from proctor.sandbox.limits import SPARE_PIDS, rlimit_fields
from proctor.sandbox.overlay import HOST_NAME, SHM_BYTES

CONTROL = "control"
INIT = "/run/.proctor/init"
SOCKET_FOLDER = "/run/.proctor/socket"
"""Where the init and the folder of its socket are inside, both read-only."""
ARGUMENTS = ("container", f"{SOCKET_FOLDER}/{CONTROL}")
START_S = 120.0
_GONE = ("no such container", "no container with")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostParts:
    """What a container gets from this machine."""

    name: str
    labels: Mapping[str, str]
    program: Path
    folder: Path
    """Holds the socket and nothing else."""
    resolver: Path
    """How names are found inside, once there is a network."""
    ca_bundle: Path | None = None
    """Certificates that the inside is to trust."""
    selinux: bool = False
    """SELinux would keep the init from a socket of ours unless the container is left unlabelled."""


def run_command(engine: Engine, fit: Adjustment, request: SandboxRequest, parts: HostParts) -> list[str]:
    """The command that starts a container with our init as its first process."""
    image = request.root.image
    if not image:
        raise SandboxError(f"a sandbox of {engine.name} needs an image, but {request.name} has none")
    return [
        engine.program, *fit.options, "run", "--detach", "--rm", "--name", parts.name,
        *(word for name, value in parts.labels.items() for word in ("--label", f"{name}={value}")),
        "--pull", "never", "--hostname", HOST_NAME, "--user", "0:0", "--workdir", "/",
        "--cap-drop", "all", *(word for name in CAPABILITIES for word in ("--cap-add", name)),
        *(word for option in security_options(parts) for word in ("--security-opt", option)),
        "--no-healthcheck", "--log-driver", "none", "--shm-size", str(SHM_BYTES),
        "--network", "none",
        *limit_options(request.limits, fit),
        *fit.ulimits,
        *engine.run,
        *(word for source, target in mounts(request, parts) for word in ("--mount", _bind(source, target))),
        "--entrypoint", INIT, image, *ARGUMENTS,
    ]  # fmt: skip


def security_options(parts: HostParts) -> tuple[str, ...]:
    """No program gains rights, set-uid or not."""
    return ("no-new-privileges", *(("label=disable",) if parts.selinux else ()))


def rights(parts: HostParts) -> dict[str, Any]:
    """What root may do in any service of a compose file. Raw sockets would pass by the rules of a network."""
    return {
        "cap_drop": ["ALL"],
        "cap_add": list(CAPABILITIES),
        "security_opt": list(security_options(parts)),
    }


def limit_options(limits: Limits, fit: Adjustment) -> tuple[str, ...]:
    """Limits through control groups, where the engine can set them here."""
    found: list[str] = []
    if "pids" in fit.limits:
        found += ["--pids-limit", "-1" if limits.pids is None else str(limits.pids + SPARE_PIDS)]
    if "memory" in fit.limits and limits.memory_bytes is not None:
        size = f"{limits.memory_bytes}b"
        found += ["--memory", size, "--memory-swap", size]
    if "cpus" in fit.limits and limits.cpus is not None:
        found += ["--cpus", f"{limits.cpus:g}"]
    return tuple(found)


def mounts(request: SandboxRequest, parts: HostParts) -> Iterator[tuple[Path, str]]:
    """What of the host is bound in, read-only."""
    yield parts.program, INIT
    yield parts.folder, SOCKET_FOLDER
    if not request.root.compose:
        yield parts.resolver, "/etc/resolv.conf"
    if parts.ca_bundle:
        yield parts.ca_bundle, BUNDLE_PATH
    for target, source in request.root.binds.items():
        yield source, target


def init_fields(request: SandboxRequest, fit: Adjustment) -> list[str]:
    """The settings of the init: the folder to work in, capabilities to keep and limits of each process."""
    return [
        "S1",
        f"w{request.root.workdir}",
        f"k{MASK}",
        *rlimit_fields(request.limits, fit.limits),
    ]


def _bind(source: Path, target: str) -> str:
    if "," in f"{source}{target}" or '"' in f"{source}{target}":
        raise SandboxError(f"cannot bind {source} into a container: its path has a comma or a quote")
    return f"type=bind,src={source},dst={target},ro"


@contextlib.contextmanager
def listening(folder: Path, name: str, backlog: int = 1) -> Iterator[socket.socket]:
    """A socket in a folder, for the inits of containers; when this ends, its name is gone."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        with opened(folder, os.O_PATH | os.O_DIRECTORY) as parent:
            listener.bind(f"/proc/self/fd/{parent}/{name}")  # socket paths are short, those of folders not
        (folder / name).chmod(0o666)
        listener.listen(backlog)
        listener.setblocking(False)
        try:
            yield listener
        finally:
            (folder / name).unlink(missing_ok=True)


class SingleContainer:
    """One container and nothing else."""

    def __init__(
        self,
        engine: Engine,
        fit: Adjustment,
        request: SandboxRequest,
        parts: HostParts,
        enter: Sequence[str] | None = None,
    ) -> None:
        self._engine = engine
        self._fit = fit
        self._name = parts.name
        self._folder = parts.folder
        self._state = request.state
        self._enter = enter
        self._command = run_command(engine, fit, request, parts)

    async def up(self) -> None:
        """`run --detach`; with changes to begin with `create`, and `start` after they are in parts."""
        if self._state is None:
            await self._call(self._command)
            return
        at = self._command.index("run")
        words = [word for word in self._command[at + 1 :] if word != "--detach"]
        await self._call([*self._command[:at], "create", *words])
        await restore(self._engine, self._fit, self._name, self._state, self._enter)
        await self._call([*self._command[:at], "start", self._name])

    async def _call(self, command: Sequence[str]) -> None:
        # When the container runs out of memory, its monitor leaves a file where it was started.
        said = await call(command, timeout_s=START_S, cwd=self._folder)
        if said.code:
            raise SandboxError(f"{self._engine.name} could not start a container: {said.reason}")

    async def down(self) -> None:
        """`rm --force` without a grace period."""
        await remove(self._engine, self._fit, [self._name])


async def remove(engine: Engine, fit: Adjustment, names: list[str]) -> None:
    """Kill and remove containers; those that have gone already are no error."""
    said = Answer(code=0, out="", err="")
    for _ in range(2):  # the engine may be removing it just now, by itself
        said = await call([engine.program, *fit.options, *engine.remove, *names], timeout_s=START_S)
        if said.code == 0 or any(text in said.err.lower() for text in _GONE):
            return
    raise SandboxError(f"{engine.name} could not remove {', '.join(names)}: {said.reason}")
