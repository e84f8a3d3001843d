"""What sandboxes with our init inside have in common, and the back ends that make them.

The init runs commands, takes files in and out and ends processes; where it came from makes no difference.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from proctor import owner
from proctor.disk import write_all
from proctor.errors import HostError, SandboxError
from proctor.sandbox import reaper
from proctor.sandbox.base import PATH, Before, Download, ExecResult, Network, OnOutput, SandboxRequest
from proctor.sandbox.certificates import CaBundle
from proctor.sandbox.init.line import Line
from proctor.sandbox.init.session import Session, last_line
from proctor.sandbox.limits import Group
from proctor.sandbox.network import SandboxNetwork
from proctor.sandbox.network_rules import NetworkRules
from proctor.sandbox.sample import Sample, sample_of
from proctor.sandbox.seccomp import build_filter
from proctor.sandbox.storage import StorageWatch, Watched
from proctor.sandbox.time_limit import Seconds
from proctor.sandbox.transfer import Unpacker, Unpacking, packed, sealed

NOT_COUNTED = "no control group counts the CPU time of this sandbox"
_TRANSFER_S = 600.0
_GIVEN = "/proc/self/fd/0"
"""A program that came as standard input."""
_made = itertools.count()
"""Back ends of this process: each has a folder of its own, because each removes it when it closes."""


class ServedBackend:
    """What the sandboxes of one back end share: a folder, a filter, a watch over the disk."""

    def __init__(
        self,
        home: Path,
        folder: str,
        *,
        cache_dir: Path | None = None,
        network_allow: Sequence[str] = (),
        ca_bundle: CaBundle | None = None,
    ) -> None:
        self.ca_bundle = ca_bundle
        self.network_rules = NetworkRules(allow=tuple(network_allow))
        self.cache_dir = (cache_dir or home / "cache").absolute()
        self.state_dir = home.absolute() / folder
        number = next(_made)
        name = owner.owner_name()
        self.folder = self.state_dir / (f"{name}-{number}" if number else name)
        self.watch = StorageWatch(Path("/"))
        self.running: set[ServedSandbox] = set()
        """Those that must be stopped."""
        self._opening = asyncio.Lock()
        self._numbers = itertools.count()
        self._filter = -1
        self._programs: dict[Path, int] = {}
        self._holds = False

    def filter_descriptor(self) -> int:
        """The system call filter, in a descriptor that all sandboxes share."""
        if self._filter < 0:
            self._filter = os.memfd_create("filter", os.MFD_CLOEXEC)
            write_all(self._filter, build_filter())
        return self._filter

    def program_descriptor(self, program: Path) -> int:
        """A program of ours in a descriptor that all sandboxes share and none can change."""
        if program not in self._programs:
            self._programs[program] = sealed(program.read_bytes())
        return self._programs[program]

    def open_folder(self) -> Path:
        """The folder of this process, marked as ours."""
        if not self._holds:
            self.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            # First, so that the folder is never seen without its owner.
            owner.hold(reaper.lock_of(self.folder))
            self._holds = True
        if not (self.folder / reaper.OWNER_FILE).exists():
            self.folder.mkdir(exist_ok=True, mode=0o700)
            reaper.write_owner(self.folder, keeper=None, cgroups=[])
        return self.folder

    async def close(self) -> None:
        """Stop what is still running and leave nothing."""
        await asyncio.gather(*(each.stop() for each in list(self.running)), return_exceptions=True)
        await self._remove_folder()
        if self._holds:
            owner.release(reaper.lock_of(self.folder), remove=True)
            self._holds = False
        if self._filter >= 0:
            os.close(self._filter)
            self._filter = -1
        while self._programs:
            os.close(self._programs.popitem()[1])

    async def _remove_folder(self) -> None:
        raise NotImplementedError


class ServedSandbox:
    """The methods of `proctor.sandbox.base.Sandbox` that need nothing but the init's socket."""

    def __init__(self, request: SandboxRequest, backend: ServedBackend) -> None:
        self._request = request
        self._shared = backend
        self._session = Session(request.name)
        self._group: Group | None = None
        self.init_pid = 0
        """A process of the sandbox as this machine sees it; 0 where that is not known."""
        self._watched: Watched | None = None
        self._oom_seen = 0
        self._env: dict[str, str] = {}
        self._network: SandboxNetwork | None = None
        self._networks: dict[Network, None] = {}
        """Which it had, in the order of their first use."""
        self._ledger: dict[str, Any] = {"ca_bundle": backend.ca_bundle.digest} if backend.ca_bundle else {}

    @property
    def alive(self) -> bool:
        """Whether it still takes commands."""
        return self._session.alive

    async def stop(self) -> None:
        """End every process and remove everything. Safe to call twice."""
        raise NotImplementedError

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
        result = await self._session.run(
            argv,
            stdin=stdin,
            timeout_s=timeout_s,
            on_output=on_output,
            keep_bytes=keep_bytes,
            **self._surroundings(env, cwd, user),
        )
        return self._with_oom(result)

    async def exec_after(
        self,
        before: Before,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        **options: Any,
    ) -> ExecResult:
        """Make everything ready and run a command, in one process and one message."""
        where = self._surroundings(env, cwd, user)
        async with packed(before.copies, self._shared.folder) as streams:
            result = await self._session.run(
                argv, quiet=before.quiet, fresh=before.fresh, streams=streams, **where, **options
            )
        return self._with_oom(result)

    async def dial(
        self,
        program: Path,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        timeout_s: float | None = None,
    ) -> tuple[ExecResult, Line]:
        """Run a program of ours that is no file inside, with our line as its standard output."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with ours, theirs:
            result = await self._session.run(
                [_GIVEN, *arguments],
                stdin=self._shared.program_descriptor(program),
                stdout=theirs.fileno(),
                timeout_s=timeout_s,
                **self._surroundings(env, cwd, user),
            )
            line = Line(ours, self._hung_up)
        self._session.lines.add(line)
        return self._with_oom(result), line

    def _hung_up(self, line: Line) -> None:
        """What happened while the line was open is no doing of a later command."""
        self._session.lines.discard(line)
        self._session.output_paused_s += line.paused_s
        if self._group:
            self._oom_seen = self._group.oom_kills()

    def _surroundings(
        self, env: Mapping[str, str] | None, cwd: str | None, user: str | None
    ) -> dict[str, Any]:
        """In what a command runs unless it says otherwise."""
        root = self._request.root
        return {
            "env": {**self._env, **env} if env else self._env,
            "cwd": cwd or root.workdir,
            "user": user or root.user,
        }

    async def upload(self, source: Path, target: str) -> None:
        """Copy a file, or a folder's content, to an absolute path inside; it belongs to root there."""
        async with packed([(source, target)], self._shared.folder) as (stream,):
            result = await self._builtin(["receive", stream.target], stdin=stream.fd)
        if result.exit_code:
            raise SandboxError(
                f"upload to {stream.target} in {self._session.name} failed: {last_line(result)}"
            )

    async def download(self, source: str, target: Path, *, max_bytes: int = 1 << 30) -> Download:
        """Copy a file or folder out. Links, devices and whatever else could reach the host are dropped."""
        unpacker = Unpacker(target, max_bytes)
        unpacking = Unpacking(unpacker)

        def take(stream: str, data: bytes) -> None:
            if stream == "stdout":
                unpacking.take(data)

        try:
            argv = ["send", source, str(max_bytes)]
            result = await self._builtin(argv, on_output=take)
        except BaseException:
            unpacking.give_up("the download broke off")
            raise
        finally:
            await unpacking.end()
        if result.exit_code == 127 and not unpacker.result().files:
            raise FileNotFoundError(f"{source} does not exist in sandbox {self._session.name}")
        if unpacker.error or not unpacker.complete:
            reason = unpacker.error or last_line(result) or "the stream ended early"
            kind = HostError if unpacker.by_host else SandboxError
            raise kind(f"download of {source} from {self._session.name} failed: {reason}")
        return unpacker.result()

    async def end_processes(self, fresh: Sequence[str] = ()) -> None:
        """End every process inside but the init, then make each path of `fresh` an empty folder of root."""
        await self._session.end_processes()
        if fresh:
            result = await self._builtin(["fresh", *fresh])
            if result.exit_code:
                raise SandboxError(f"cannot create {', '.join(fresh)} again: {last_line(result)}")

    async def _builtin(self, argv: Sequence[str], **options: Any) -> ExecResult:
        """Run something of the init's own, as root of the inside."""
        return await self._session.run(
            argv, env={}, cwd="/", user="0:0", builtin=True, keep_bytes=4096, timeout_s=_TRANSFER_S, **options
        )

    async def set_network(self, network: Network, allowed_hosts: Sequence[str] = ()) -> None:
        """Change the network for every later command; SandboxError when it does not come up."""
        if self._network is None:
            raise SandboxError(f"sandbox {self._request.name} is not running")
        await self._change_network(self._network, network, allowed_hosts)
        self._networks[network] = None
        request, bundle = self._request, self._shared.ca_bundle
        trust = bundle.env if bundle else {}
        self._env = {"PATH": PATH, **trust, **self._network.env, **request.root.env, **request.env}

    async def listen(self, port: int = 0) -> socket.socket:
        """A socket on the inside's loopback, served out here; at another port where that one is taken."""
        try:
            return await self._session.listen(port)
        except SandboxError:
            return await self._session.listen(0)

    async def _connect(self) -> None:
        """Give it the network that was asked for, once it runs."""
        limits = self._request.limits
        self._network = SandboxNetwork(self._session, self._shared.network_rules, self._network_lost)
        await self.set_network(limits.network, limits.allowed_hosts)

    async def _change_network(
        self, connected: SandboxNetwork, network: Network, allowed_hosts: Sequence[str]
    ) -> None:
        """Change it, as who the back end may enter the sandbox's network."""
        raise NotImplementedError

    def _with_networks(self, enforced: Mapping[str, str]) -> dict[str, str]:
        """How limits are enforced, with every network that it had and not only the first."""
        if not self._networks:
            return dict(enforced)
        kind = enforced["network"].partition(":")[0]
        return {**enforced, "network": f"{kind}: {', '.join(self._networks)}"}

    def _watch(self, name: str, measure: Callable[[], Awaitable[tuple[int, int]]]) -> None:
        """Keep an eye on the disk that it uses."""
        limit_bytes = self._request.limits.storage_bytes
        self._watched = Watched(limit_bytes=limit_bytes, measure=measure, end=self._end_for_storage)
        self._shared.watch.add(name, self._watched)

    def sample(self) -> Sample | None:
        """What it uses now; None where no control group counts, or when it has ended."""
        if self._group is None:
            return None
        disk_bytes = self._watched.used_bytes if self._watched else 0
        return sample_of(self._group, pid=self.init_pid, disk_bytes=disk_bytes)

    def _with_oom(self, result: ExecResult) -> ExecResult:
        """Whether the kernel killed a process for memory while the command ran."""
        if self._group is None:
            return result
        kills, before = self._group.oom_kills(), self._oom_seen
        self._oom_seen = kills
        return replace(result, oom_killed=True) if kills > before else result

    def _used(self, counted: Mapping[str, Any]) -> dict[str, Any]:
        """The ledger: what the kernel `counted`, and what the init knows of the commands that it collected.

        CPU time is the kernel's or unknown: the init does not learn what processes used that were killed.
        """
        session = self._session
        paused = {"output_paused_s": session.output_paused_s} if session.output_paused_s else {}
        found = {
            **paused,
            "cpu_s": None,
            "peak_memory_bytes": session.peak_process_bytes,
            "read_bytes": session.read_bytes,
            "write_bytes": session.write_bytes,
            **counted,
            **self._ledger,
        }
        if found["cpu_s"] is None:
            found["unknown"] = {"cpu_s": NOT_COUNTED}
        return found

    def _network_lost(self, reason: str) -> None:
        self._ledger["network_lost"] = reason

    async def _end_for_storage(self, reason: str, by_host: bool) -> None:
        self._ledger["storage_exceeded"] = reason
        self._ledger["host_full"] = by_host
        await self._session.end_processes()
