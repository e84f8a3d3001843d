"""A container engine's command line. podman and docker differ in this table and nowhere else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import SandboxError
from proctor.processes import host_environment
from proctor.sandbox.programs import missing_program

DOCKER_SOCKET = Path("/var/run/docker.sock")
ASK_S = 60.0
LIMITS = ("memory", "pids", "cpus")
_LAST_LINES = 20
_REMOVING = "joining network namespace of container"
_TRIES = 30
_AGAIN_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """How one engine is spoken to."""

    name: str
    program: str
    run: tuple[str, ...]
    """Options of every container, beyond those that both engines know."""
    remove: tuple[str, ...]
    """The command that kills and removes containers at once, up to their names."""
    owners: str
    """Format of `ps` that gives id, owner, place and lock of each container, between tabs."""
    build: tuple[str, ...]
    """The command that builds an image, up to its options."""
    builds_inside: bool
    """Whether a build is all in the process that we start, so that this can be in a network of ours."""
    build_marks: bool
    """Whether a build leaves working containers that can be told by a build argument."""
    compose: tuple[tuple[str, ...], ...]
    """Programs that serve compose files, in the order to try."""
    compose_hint: str
    initialises: bool
    """Whether `init` makes the network of a container before anything runs in it."""
    runtimes: tuple[str, ...] = ()
    """Runtimes to try by name when the usual one fails."""

    def obstacle(self) -> str:
        """Why its sandboxes cannot work here, as far as a quick look can tell."""
        if not shutil.which(self.program):
            return f"{self.name} is not installed"
        return (_no_daemon() if self.name == "docker" else "") or missing_program()


def _no_daemon() -> str:
    host = os.environ.get("DOCKER_HOST", "")
    if host and not host.startswith("unix://"):
        return f"DOCKER_HOST is {host}: sandboxes share sockets with an engine, which must be on this machine"
    socket = Path(host.removeprefix("unix://")) if host else DOCKER_SOCKET
    if not socket.exists():
        return f"no docker engine answers at {socket}"
    if not os.access(socket, os.R_OK | os.W_OK):
        return f"{socket} may not be used by this account (add it to the group docker)"
    return ""


PODMAN = Engine(
    name="podman",
    program="podman",
    run=("--http-proxy=false",),
    remove=("rm", "--force", "--time", "0", "--volumes", "--ignore"),
    owners='{{.ID}}\t{{index .Labels "proctor.owner"}}\t{{index .Labels "proctor.place"}}'
    '\t{{index .Labels "proctor.lock"}}',
    build=("build", "--isolation", "oci", "--network", "host", "--force-rm", "--cap-drop", "CAP_NET_RAW"),
    builds_inside=True,
    build_marks=True,
    compose=(("podman-compose",),),
    compose_hint="install podman-compose",
    initialises=True,
    runtimes=("crun", "runc"),
)
DOCKER = Engine(
    name="docker",
    program="docker",
    run=(),
    remove=("rm", "--force", "--volumes"),
    owners='{{.ID}}\t{{.Label "proctor.owner"}}\t{{.Label "proctor.place"}}\t{{.Label "proctor.lock"}}',
    build=("build",),
    builds_inside=False,
    build_marks=False,
    compose=(("docker", "compose"), ("docker-compose",)),
    compose_hint="install the compose plugin of docker",
    initialises=False,
)


_OF_ENGINES = (
    "XDG_*", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_*", "CONTAINER*", "REGISTRY_*", "STORAGE_*", "BUILDAH_*",
    "BUILDKIT_*", "BUILDX_*", "PODMAN_*", "_CONTAINERS_*",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjustment:
    """The options that an engine needs on this machine; found by trying, see `container.adjust`."""

    options: tuple[str, ...] = ()
    """Before the command: another runtime."""
    ulimits: tuple[str, ...] = ()
    """For containers and builds: limits that this account may set."""
    limits: tuple[str, ...] = LIMITS
    """Limits that the engine really sets here, through control groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command of the engine answered."""

    code: int
    out: str
    err: str

    @property
    def reason(self) -> str:
        """Its last words, for an error message."""
        lines = (self.err.strip() or self.out.strip()).splitlines()
        return lines[-1].removeprefix("Error: ") if lines else f"exit code {self.code}"

    @property
    def last_lines(self) -> str:
        """The last lines of both streams."""
        return "\n".join(f"{self.out}\n{self.err}".strip().splitlines()[-_LAST_LINES:])


def engine_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of a command of podman or docker, and of programs beside it."""
    return host_environment(*_OF_ENGINES, network=True, extra=extra)


async def call(
    argv: Sequence[str],
    *,
    timeout_s: float | None = ASK_S,
    env: Mapping[str, str] | None = None,
    stdin: int | None = None,
    cwd: Path | None = None,
) -> Answer:
    """Run a command of the engine to its end; SandboxError when it cannot run or takes too long.

    Without an `env` it gets that of engines.
    """
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL if stdin is None else stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=engine_environment() if env is None else env,
            cwd=cwd,
            start_new_session=True,
        )
    )
    try:
        async with asyncio.timeout(timeout_s):
            process = await asyncio.shield(starting)
            out, err = await process.communicate()
    except TimeoutError:
        await end(await starting)
        command = " ".join(argv[:3])
        raise SandboxError(f"`{command} …` did not end within {timeout_s:g} s") from None
    except OSError as error:
        raise SandboxError(f"cannot run {argv[0]}: {error.strerror}") from error
    except BaseException:
        await end(await starting)  # also when it had only begun to start
        raise
    return Answer(
        code=process.returncode or 0, out=out.decode(errors="replace"), err=err.decode(errors="replace")
    )


async def ask(argv: Sequence[str]) -> Answer:
    """Ask the engine about containers. podman fails while any of them is being removed: ask it again."""
    for _ in range(_TRIES):
        said = await call(argv)
        if said.code == 0 or _REMOVING not in said.err:
            break
        await asyncio.sleep(_AGAIN_S)
    return said


async def end(process: asyncio.subprocess.Process) -> None:
    """Kill a command with its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await asyncio.shield(process.wait())
