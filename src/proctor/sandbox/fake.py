"""A sandbox in memory: files are a dictionary and commands are Python functions.

For tests of agents, verifiers and whole runs without namespaces; it keeps the promises of the protocol, also
the unpleasant ones, and can be told to fail where real ones do.
"""

from __future__ import annotations

import asyncio
import posixpath
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from proctor.errors import SandboxError
from proctor.sandbox.base import Download, ExecResult, Network, OnOutput, SandboxInfo, SandboxRequest
from proctor.sandbox.time_limit import Seconds, ends_within

Files = dict[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeCommand:
    """What a handler sees of a command."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    user: str
    stdin: bytes | None
    files: Files
    """Every file inside by absolute path; change it to change the sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeResult:
    """What a command does: how it ends, what it prints, how long it seems to take."""

    exit_code: int = 0
    stdout: bytes = b""
    stderr: bytes = b""
    takes_s: float = 0.0
    oom_killed: bool = False


Handler = Callable[[FakeCommand], FakeResult]


def succeed(command: FakeCommand) -> FakeResult:
    """A handler under which every command succeeds silently."""
    del command
    return FakeResult()


@dataclass(slots=True)
class Fake:
    """The back end. `handler` runs the commands; `fail_start` fails that many starts first."""

    handler: Handler = succeed
    fail_start: int = 0
    sandboxes: list[FakeSandbox] = field(default_factory=list)
    name: str = "fake"

    def sandbox(self, request: SandboxRequest) -> FakeSandbox:
        """One sandbox, not yet started."""
        made = FakeSandbox(self, request)
        self.sandboxes.append(made)
        return made

    async def reap(self) -> tuple[str, ...]:
        """Nothing outlives its process."""
        return ()

    async def close(self) -> None:
        """Stop what is still running."""
        for sandbox in self.sandboxes:
            await sandbox.stop()


class FakeSandbox:
    """One sandbox; see `proctor.sandbox.base.Sandbox`."""

    def __init__(self, backend: Fake, request: SandboxRequest) -> None:
        self.request = request
        self.files: Files = {}
        self.commands: list[FakeCommand] = []
        self.ended = 0
        """How often everything inside was ended."""
        self.networks: list[tuple[Network, tuple[str, ...]]] = []
        """Each network it was changed to."""
        self.running = False
        self._backend = backend
        self._cpu_s = 0.0

    async def start(self) -> None:
        """Start, or fail if the back end was set to fail."""
        if self._backend.fail_start > 0:
            self._backend.fail_start -= 1
            raise SandboxError(f"sandbox {self.request.name}: told to fail")
        self.running = True

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
        """Call the handler; a command that takes longer than its limit is ended at the limit."""
        self._require()
        root = self.request.root
        command = FakeCommand(
            argv=tuple(argv),
            env={**root.env, **self.request.env, **(env or {})},
            cwd=cwd or root.workdir,
            user=user or root.user,
            stdin=stdin,
            files=self.files,
        )
        self.commands.append(command)
        started = time.perf_counter()
        result = self._backend.handler(command)
        ending = asyncio.ensure_future(asyncio.sleep(result.takes_s))
        timed_out = not await ends_within(ending, timeout_s)
        ending.cancel()
        self._require()
        if on_output and result.stdout:
            on_output("stdout", result.stdout)
        if on_output and result.stderr:
            on_output("stderr", result.stderr)
        return ExecResult(
            exit_code=137 if timed_out else result.exit_code,
            timed_out=timed_out,
            oom_killed=result.oom_killed,
            wall_s=time.perf_counter() - started,
            stdout=result.stdout[-keep_bytes:] if keep_bytes else b"",
            stderr=result.stderr[-keep_bytes:] if keep_bytes else b"",
        )

    async def upload(self, source: Path, target: str) -> None:
        """Copy a file, or a folder's files, in."""
        self._require()
        if not target.startswith("/"):
            raise SandboxError(f"upload to {target!r}: the path inside must be absolute")
        if source.is_dir():
            for file in sorted(source.rglob("*")):
                if file.is_file() and not file.is_symlink():
                    place = posixpath.join(target, file.relative_to(source).as_posix())
                    self.files[place] = file.read_bytes()
        else:
            place = posixpath.join(target, source.name) if target.endswith("/") else target
            self.files[place] = source.read_bytes()

    async def download(self, source: str, target: Path, *, max_bytes: int = 1 << 30) -> Download:
        """Copy a file or folder out, as far as it fits."""
        self._require()
        source = source.rstrip("/") or "/"
        inside = source.rstrip("/") + "/"
        found = {
            path[len(inside) :] if path != source else "": data
            for path, data in sorted(self.files.items())
            if path == source or path.startswith(inside)
        }
        if not found:
            raise FileNotFoundError(f"{source} does not exist in sandbox {self.request.name}")
        count, used, dropped = 0, 0, []
        for name, data in found.items():
            if used + len(data) > max_bytes:
                dropped.append(name)
                continue
            place = target / name if name else target
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
            count, used = count + 1, used + len(data)
        return Download(files=count, bytes=used, dropped=tuple(dropped[:100]), dropped_count=len(dropped))

    async def set_network(self, network: Network, allowed_hosts: Sequence[str] = ()) -> None:
        """There is nothing to reach; the request is remembered."""
        self._require()
        self.networks.append((network, tuple(allowed_hosts)))

    async def listen(self, port: int = 0) -> socket.socket:
        """A socket on this machine's own loopback: what runs in a fake runs here."""
        self._require()
        del port
        return socket.create_server(("127.0.0.1", 0))

    async def stop(self) -> None:
        """End; commands in flight then fail."""
        self.running = False

    async def end_processes(self, fresh: Sequence[str] = ()) -> None:
        """Note it, and empty the folders of `fresh`."""
        self._require()
        self.ended += 1
        for folder in fresh:
            for path in [each for each in self.files if each == folder or each.startswith(f"{folder}/")]:
                del self.files[path]

    def info(self) -> SandboxInfo:
        """Nothing is enforced, and it says so."""
        return SandboxInfo(
            backend="fake",
            name=self.request.name,
            enforced={"everything": "not enforced: this is a fake"},
            ledger={"cpu_s": self._cpu_s, "peak_memory_bytes": 0, "oom_kills": 0, "host_oom": False},
        )

    def _require(self) -> None:
        if not self.running:
            raise SandboxError(f"sandbox {self.request.name} is not running")
