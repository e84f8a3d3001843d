"""What every sandbox can do, and what one is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

Network = Literal["none", "public", "allowlist"]
OnOutput = Callable[[Literal["stdout", "stderr"], bytes], None]


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
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = "root"
    image: str | None = None
    """For podman and docker: the reference of the built image."""
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRequest:
    """One sandbox to make."""

    name: str
    """Unique on this machine; part of every label, folder and cgroup it leaves."""
    root: Root
    limits: Limits = field(default_factory=Limits)
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


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
class SandboxInfo:
    """What a sandbox is and what it has used so far."""

    backend: str
    name: str
    enforced: Mapping[str, str] = field(default_factory=dict)
    """Limit → how it is enforced here, or 'not enforced: <why>'."""
    ledger: Mapping[str, Any] = field(default_factory=dict)
    """peak_memory_bytes, cpu_s, throttled_s, oom_kills, host_oom, read_bytes, write_bytes, disk_bytes."""


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
        timeout_s: float | None = None,
        on_output: OnOutput | None = None,
        keep_bytes: int = 1 << 20,
    ) -> ExecResult:
        """Run a command inside. At the time limit its whole tree is killed; daemons of earlier ones stay."""

    async def upload(self, source: Path, target: str) -> None:
        """Copy a file, or a folder's content, to an absolute path inside."""

    async def download(self, source: str, target: Path, *, max_bytes: int = 1 << 30) -> None:
        """Copy a file or folder out. Links, devices and whatever else could reach the host are dropped."""

    async def stop(self) -> None:
        """End every process and remove everything. Safe to call twice."""

    def info(self) -> SandboxInfo:
        """What it is, which limits hold, what it used."""
