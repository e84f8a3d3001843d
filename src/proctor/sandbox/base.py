"""What every sandbox can do, and what one is asked for."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, runtime_checkable

from proctor.errors import SandboxError
from proctor.sandbox.time_limit import Seconds

if TYPE_CHECKING:
    import asyncio

    from proctor.sandbox.image.sharing import Exchange

Network = Literal["none", "public", "allowlist"]
OnOutput = Callable[[Literal["stdout", "stderr"], bytes], None]
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where commands are looked for unless the image or the request says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the inside may use. None: no limit asked for."""

    cpus: float | None = None
    memory_bytes: int | None = None
    storage_bytes: int | None = None
    pids: int | None = 512
    network: Network = "none"
    allowed_hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """Where the root file system comes from, made by `sandbox.image`."""

    layers: tuple[Path, ...] = ()
    """Read-only folders, lowest first. Empty for `host-root`: the host's own system by allow-list."""
    host: bool = False
    """The host's system is the lowest layer: not reproducible elsewhere."""
    binds: Mapping[str, Path] = field(default_factory=dict)
    """Path inside → file or folder of the host, read-only there: a Python, a wheel house."""
    writable: Mapping[str, Path] = field(default_factory=dict)
    """Path inside → folder of the inside's users, writable there: the caches of a build."""
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = "root"
    entrypoint: tuple[str, ...] = ()
    """What a container of the image would start; a sandbox does not, the harness may."""
    image: str | None = None
    """For podman and docker: the reference of the built image."""
    compose: Path | None = None
    """For podman and docker: the file whose main service the sandbox is, with its companions beside it."""
    service: str = "main"
    """The service of that file that the sandbox is, which it need not mention."""
    companions: Mapping[str, str] = field(default_factory=dict)
    """For podman and docker: the images of the other services of that file, made before they start."""
    definition: Path | None = None
    """For Harbor's environments: the folder with what they are built from."""
    digest: str = ""
    image_name: str = ""
    """Full name of the image it is or is built on, as `docker.io/library/debian:12`; empty for the host."""
    image_digest: str = ""
    """`sha256:…`: the digest of that image's manifest, or its id where it came from an engine or a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RootOptions:
    """How the roots of a run's sandboxes are made."""

    host_root: bool = False
    """Whether this machine's own system takes the place of every image that a task names."""
    network_allow: tuple[str, ...] = ()
    """What builds may reach beyond the internet: addresses, ranges, names."""
    project: str | None = None
    """On whose behalf a server makes them; None: a person of this machine does."""
    exchange: Exchange | None = None
    """Where machines leave layers of built images for each other; None: nothing is shared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRequest:
    """One sandbox to make."""

    name: str
    """Unique on this machine; part of every label, folder and cgroup it leaves."""
    root: Root
    limits: Limits = field(default_factory=Limits)
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    state: Path | None = None
    """Changes saved from an earlier sandbox of the same root (`save_state`), to begin with."""
    granted: Mapping[str, str] = field(default_factory=dict)
    """Variables of this machine that `${NAME}` of a compose file may use."""
    hidden: tuple[str, ...] = field(default=(), repr=False)
    """Values that no command line may show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """How one command inside ended."""

    exit_code: int
    timed_out: bool = False
    oom_killed: bool = False
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_memory_bytes: int | None = None
    stdout: bytes = b""
    """The last bytes of each stream, up to the limit asked for; `on_output` sees all of it."""
    stderr: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """What came out. The inside decides what is there, so leaving things out is no error."""

    files: int = 0
    bytes: int = 0
    dropped: tuple[str, ...] = ()
    """Links, devices, sockets, what was too big or could not be read; the first hundred names."""
    dropped_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxInfo:
    """What a sandbox is and what it has used so far."""

    backend: str
    name: str
    enforced: Mapping[str, str] = field(default_factory=dict)
    """Limit → how it is enforced here, or 'not enforced: <why>'."""
    ledger: Mapping[str, Any] = field(default_factory=dict)
    """peak_memory_bytes, cpu_s, throttled_s, output_paused_s, oom_kills, host_oom, read_bytes, write_bytes,
    disk_bytes; memory_free_bytes of the host at its start where host_oom is true; storage_exceeded where it
    was ended for the disk it used, and host_full where others had filled that; network_lost where what
    connected it ended by itself. What is None could not be measured: `unknown` has the reason."""


class Sandbox(Protocol):
    """An isolated place. Its failures raise SandboxError; what runs inside never does."""

    async def start(self) -> None:
        """Make it. After an error nothing is left behind."""

    async def exec(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        stdin: bytes | None = None,
        timeout_s: Seconds | None = None,
        on_output: OnOutput | None = None,
        keep_bytes: int = 1 << 20,
    ) -> ExecResult:
        """Run a command inside. At the time limit its whole tree is killed; daemons of earlier ones stay."""

    async def upload(self, source: Path, target: str) -> None:
        """Copy a file, or a folder's content, to an absolute path inside; it belongs to root there.

        Links below the source are copied as links and never followed.
        """

    async def download(self, source: str, target: Path, *, max_bytes: int = 1 << 30) -> Download:
        """Copy a file or a folder's content out; FileNotFoundError when nothing is there.

        Links, devices, set-id bits and whatever else could reach the host are dropped, and so is what does
        not fit into `max_bytes`.
        """

    async def stop(self) -> None:
        """End every process and remove everything. Safe to call twice."""

    def info(self) -> SandboxInfo:
        """What it is, which limits hold, what it used."""


class Backend(Protocol):
    """Creates sandboxes of one kind. One per process; it owns what they share."""

    name: str

    def sandbox(self, request: SandboxRequest) -> Sandbox:
        """One sandbox, not yet started."""

    async def reap(self) -> tuple[str, ...]:
        """Remove what killed processes left; a line for each thing removed."""

    async def close(self) -> None:
        """Stop what is still running and leave nothing."""


def can(sandbox: Sandbox, protocol: type) -> bool:
    """Whether a sandbox has the methods of a protocol; looked up once for all of its kind."""
    return _has_methods(type(sandbox), protocol)


@cache
def _has_methods(kind: type, protocol: type) -> bool:
    return issubclass(kind, protocol)


# What follows are methods that some kinds of sandboxes have beyond those of the protocol, each with what is
# done where a kind does not have it.


async def set_network(sandbox: Sandbox, network: Network, allowed_hosts: Sequence[str] = ()) -> None:
    """Change the network of a running sandbox; SandboxError when its kind cannot, or it does not come up."""
    change = getattr(sandbox, "set_network", None)
    if change is None:
        raise SandboxError(
            f"the network of a {sandbox.info().backend} sandbox cannot be changed while it runs, and the "
            "task gives its agent or its tests another one; use another sandbox, or one network for all "
            "(--network)"
        )
    await change(network, allowed_hosts)


async def listen(sandbox: Sandbox, port: int = 0) -> socket.socket:
    """A listening socket on the inside's loopback, served out here; SandboxError when its kind has none.

    It works without any network, and reaches nothing else. Where the port is taken, another one is chosen.
    """
    make = getattr(sandbox, "listen", None)
    if make is None:
        raise SandboxError(f"nothing outside can be reached from a {sandbox.info().backend} sandbox")
    found: socket.socket = await make(port)
    return found


async def ended(task: asyncio.Task[Any]) -> None:
    """Wait until a task has ended, if need be by SandboxError or because it was cancelled.

    What cancels the caller meanwhile is raised: `await task` could not tell the two apart.
    """
    import asyncio  # reading commands that name this module need no event loop

    await asyncio.wait({task})
    if not task.cancelled() and (error := task.exception()) and not isinstance(error, SandboxError):
        raise error


async def host_failure(sandbox: Sandbox) -> str:
    """Why a sandbox was lost, if the machine around it is the reason; empty when that cannot be proven."""
    known = getattr(sandbox, "host_failure", None)
    return str(await known()) if known else ""


def standing(sandbox: Sandbox) -> Sequence[str]:
    """Folders that are already empty in a sandbox that has just started."""
    found: Sequence[str] = getattr(sandbox, "standing", ())
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What is made ready, as root of the inside, before a command starts."""

    quiet: bool = False
    """Every other process inside is ended first."""
    fresh: Sequence[str] = ()
    """Folders to delete and create again, as `end_processes` does."""
    copies: Sequence[tuple[Path, str]] = ()
    """What is uploaded, and where to."""


async def exec_after(sandbox: Sandbox, before: Before, argv: Sequence[str], **options: Any) -> ExecResult:
    """Make everything ready, then run a command; SandboxError when the former failed."""
    if not (before.quiet or before.fresh or before.copies):
        return await sandbox.exec(argv, **options)
    if in_one_go := getattr(sandbox, "exec_after", None):
        result: ExecResult = await in_one_go(before, argv, **options)
        return result
    if before.quiet or before.fresh:
        await end_processes(sandbox, fresh=before.fresh)
    for source, target in before.copies:
        await sandbox.upload(source, target)
    return await sandbox.exec(argv, **options)


class Line(Protocol):
    """A socket to a program inside that stays."""

    def listen(self, hear: Callable[[bytes], None]) -> None:
        """From now on what comes goes there, and nothing at all says that the other side has gone."""

    def charge(self, size_bytes: int) -> None:
        """Count so many bytes more than came, for what took longer to understand than its size tells."""

    def send(self, data: bytes) -> None:
        """Send all of it, as it is taken; what a program that has gone would have got is lost."""

    def close(self) -> None:
        """Hang up."""


async def dial(
    sandbox: Sandbox, program: Path, arguments: Sequence[str], **options: Any
) -> tuple[ExecResult, Line] | None:
    """Run a static program of ours that is no file inside, until it leaves a process behind that we talk to.

    Its standard output is the other end of the line. None where a kind of sandbox passes no descriptors.
    """
    run = getattr(sandbox, "dial", None)
    found: tuple[ExecResult, Line] | None = await run(program, arguments, **options) if run else None
    return found


async def end_processes(sandbox: Sandbox, *, fresh: Sequence[str] = ()) -> None:
    """End everything an agent may have left running; then no one inside can touch what comes next.

    Each path of `fresh` becomes an empty folder of root afterwards, whatever stood there: a folder, a file,
    or a link, also among its parents. For `/tests` and `/logs/verifier` before a verifier. Below `/logs`
    every account may write.
    """
    if end := getattr(sandbox, "end_processes", None):
        await end(fresh)
        return
    await sandbox.exec(["sh", "-c", "kill -9 -1"], user="root", cwd="/")
    for path in fresh:
        script = 'rm -rf -- "$1" && mkdir -p -- "$1" && chmod "$2" -- "$1"'
        mode = "777" if path.startswith("/logs/") else "755"
        result = await sandbox.exec(["sh", "-c", script, "sh", path, mode], user="root", cwd="/")
        if result.exit_code:
            raise SandboxError(f"cannot create {path} again inside {sandbox.info().name}")


class Companion(Protocol):
    """Another service of a sandbox's compose file, as far as a task may look into it."""

    async def exec(
        self, argv: Sequence[str], *, user: str | None = None, timeout_s: float | None = None
    ) -> ExecResult:
        """Run a command there."""

    async def download(self, source: str, target: Path, *, max_bytes: int) -> Download:
        """As `Sandbox.download`."""


@runtime_checkable
class HasServices(Protocol):
    """A sandbox with companions."""

    def companion(self, service: str) -> Companion:
        """The service of that name; SandboxError when there is none."""


def companion(sandbox: Sandbox, service: str) -> Companion:
    """A service beside a sandbox; SandboxError when the sandbox has none."""
    if not can(sandbox, HasServices):
        raise SandboxError(f"there is no service '{service}' here; services need podman or docker")
    return cast("HasServices", sandbox).companion(service)
