"""What every sandbox with our init inside has in common: commands, files in and out, processes ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proctor.errors import SandboxError
from proctor.sandbox.base import Before, Download, ExecResult, Network, OnOutput, SandboxRequest
from proctor.sandbox.certificates import CaBundle
from proctor.sandbox.init import copies
from proctor.sandbox.init.session import Session
from proctor.sandbox.init.uploads import Uploads
from proctor.sandbox.limits import Group

if TYPE_CHECKING:
    from proctor.sandbox.network import SandboxNetwork

NOT_COUNTED = "no control group counts the CPU time of this sandbox"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where commands are looked for unless the image or the request says otherwise."""


class ServedSandbox:
    """The methods of `proctor.sandbox.base.Sandbox` that need nothing but the init's socket."""

    def __init__(self, request: SandboxRequest, uploads: Uploads, ca_bundle: CaBundle | None) -> None:
        self._request = request
        self._ca_bundle = ca_bundle
        self._uploads = uploads
        self._session = Session(request.name)
        self._group: Group | None = None
        self._oom_seen = 0
        self._env: dict[str, str] = {}
        self._network: SandboxNetwork | None = None
        self._networks: dict[Network, None] = {}
        """Which it had, in the order of their first use."""
        self._ledger: dict[str, Any] = {"ca_bundle": ca_bundle.digest} if ca_bundle else {}

    @property
    def alive(self) -> bool:
        """Whether it still takes commands."""
        return self._session.alive

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
        streams = await self._uploads.streams(before.copies)
        try:
            result = await self._session.run(
                argv, quiet=before.quiet, fresh=before.fresh, streams=streams, **where, **options
            )
        finally:
            self._uploads.give_back(streams)
        return self._with_oom(result)

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
        stream = await self._uploads.stream(source, target)
        try:
            await copies.upload(self._session, stream)
        finally:
            self._uploads.give_back([stream])

    async def download(self, source: str, target: Path, *, max_bytes: int = 1 << 30) -> Download:
        """Copy a file or folder out. Links, devices and whatever else could reach the host are dropped."""
        return await copies.download(self._session, source, target, max_bytes=max_bytes)

    async def download_last(self, source: str, target: Path, *, max_bytes: int) -> Download:
        """End every process and copy a file or folder out, in one message."""
        return await copies.download(self._session, source, target, max_bytes=max_bytes, quiet=True)

    async def end_processes(self, fresh: Sequence[str] = ()) -> None:
        """End every process inside but the init, then make each path of `fresh` an empty folder of root."""
        await self._session.end_processes()
        if fresh:
            await copies.make_fresh(self._session, fresh)

    async def set_network(self, network: Network, allowed_hosts: Sequence[str] = ()) -> None:
        """Change the network for every later command; SandboxError when it does not come up."""
        connected = self._require_network()
        await self._change_network(connected, network, allowed_hosts)
        self._networks[network] = None
        request = self._request
        trust = self._ca_bundle.env if self._ca_bundle else {}
        self._env = {"PATH": PATH, **trust, **connected.env, **request.root.env, **request.env}

    def _with_networks(self, enforced: Mapping[str, str]) -> dict[str, str]:
        """How limits are enforced, with every network that it had and not only the first."""
        kind = enforced["network"].partition(":")[0]
        return (
            {**enforced, "network": f"{kind}: {', '.join(self._networks)}"}
            if self._networks
            else dict(enforced)
        )

    def _require_network(self) -> SandboxNetwork:
        if self._network is None:
            raise SandboxError(f"sandbox {self._request.name} is not running")
        return self._network

    async def _change_network(
        self, connected: SandboxNetwork, network: Network, allowed_hosts: Sequence[str]
    ) -> None:
        """Change it, as who the back end may enter the sandbox's network."""
        raise NotImplementedError

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
