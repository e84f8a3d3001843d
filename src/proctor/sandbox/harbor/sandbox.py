"""One of Harbor's environments as a sandbox of ours.

What it promises is less than our own sandboxes do, and `info` says so in every record: which limits hold is
the provider's affair, and a process that hides from its own variables may outlive the agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import posixpath
import secrets
import shlex
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proctor.errors import HostError, LastingSandboxError, SandboxError
from proctor.sandbox.base import Download, ExecResult, Network, OnOutput, SandboxInfo, SandboxRequest
from proctor.sandbox.harbor import archive
from proctor.sandbox.harbor.line import Refused
from proctor.sandbox.time_limit import Seconds, ends_within

if TYPE_CHECKING:
    from proctor.sandbox.harbor.backend import HarborBackend

_MARK = "PROCTOR_SANDBOX"
_COMMAND = "PROCTOR_COMMAND"
_TEMPORARY = "/tmp"  # noqa: S108 - inside
_SLACK_S = 30
"""What Harbor's own time limit is longer than ours, which comes first."""
_END_S = 60.0
_ARCHIVE_BYTES = 64 << 20
"""What names and padding may add to an archive; a larger one does not leave the environment."""
_LASTING = frozenset(
    {"ValueError", "ValidationError", "ImportError", "ModuleNotFoundError", "FileNotFoundError"}
)
"""Errors of Harbor that will come again: it refuses what is asked for."""
_KILL = """\
for round in 1 2 3 4 5; do
  found=
  for each in /proc/[0-9]*; do
    if tr '\\0' '\\n' <"$each/environ" 2>/dev/null | grep -qx -- "$1"; then
      kill -9 "${each#/proc/}" && found=1
    fi
  done
  [ -n "$found" ] || exit 0
done
"""
_PACK = """\
if [ -d "$1" ]; then tar -cf "$2" -C "$1" . && echo folder $(wc -c <"$2")
elif [ -e "$1" ]; then
  tar -cf "$2" -C "$(dirname -- "$1")" -- "$(basename -- "$1")" && echo file $(wc -c <"$2")
else echo nothing 0
fi
"""
_FRESH = 'rm -rf -- "$1" && mkdir -p -- "$1" && chmod "$2" -- "$1"'
_UNKNOWN = "Harbor's environments do not tell what they use"


class HarborSandbox:
    """One sandbox; see `proctor.sandbox.base.Sandbox`."""

    def __init__(self, backend: HarborBackend, request: SandboxRequest) -> None:
        self._backend, self._request = backend, request
        self._numbers = itertools.count(1)
        self._folder: Path | None = None
        self._promises: Mapping[str, bool] = {}
        self._running = False

    async def start(self) -> None:
        """Have Harbor make it; what it refuses is refused again next time."""
        limits, root = self._request.limits, self._request.root
        self._folder = Path(tempfile.mkdtemp(prefix="proctor-harbor-"))
        empty = self._folder / "empty"
        empty.mkdir()
        config = {
            "docker_image": root.image,
            "cpus": limits.cpus and math.ceil(limits.cpus),
            "memory_mb": limits.memory_bytes and limits.memory_bytes >> 20,
            "storage_mb": limits.storage_bytes and limits.storage_bytes >> 20,
        }
        self._backend.note(self._request.name, root.definition)
        try:
            self._promises = await self._ask(
                "start",
                kind=self._backend.kind,
                folder=str(self._folder),
                definition=str(root.definition or empty),
                config={name: value for name, value in config.items() if value is not None},
                network=limits.network,
                allowed_hosts=list(limits.allowed_hosts),
            )
        except BaseException:
            with contextlib.suppress(SandboxError):
                await self.stop()
            raise
        self._running = True
        self._backend.running.add(self)

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
        """Run a command. Its output comes when it has ended."""
        number = str(next(self._numbers))
        marks = {_MARK: self._request.name, _COMMAND: f"{self._request.name}-{number}"}
        command = f"{shlex.join(argv)} < {await self._input(stdin, number)}"
        started = time.perf_counter()
        limit_s = None if callable(timeout_s) else timeout_s
        working = asyncio.ensure_future(
            self._command(command, {**self._request.env, **(env or {}), **marks}, cwd, user, limit_s)
        )
        try:
            if not await ends_within(working, timeout_s):
                working.cancel()
                await self._kill(f"{_COMMAND}={marks[_COMMAND]}")
                return ExecResult(exit_code=137, timed_out=True, wall_s=time.perf_counter() - started)
            found = await working
        except asyncio.CancelledError:
            working.cancel()
            with contextlib.suppress(SandboxError):
                await self._kill(f"{_COMMAND}={marks[_COMMAND]}")
            raise
        out, err = found["stdout"].encode(), found["stderr"].encode()
        if on_output:
            if out:
                on_output("stdout", out)
            if err:
                on_output("stderr", err)
        return ExecResult(
            exit_code=found["exit_code"],
            wall_s=time.perf_counter() - started,
            stdout=out[-keep_bytes:] if keep_bytes else b"",
            stderr=err[-keep_bytes:] if keep_bytes else b"",
        )

    async def upload(self, source: Path, target: str) -> None:
        """Copy a file, or a folder's content, in."""
        if not target.startswith("/"):
            raise SandboxError(f"upload to {target!r}: the path inside must be absolute")
        folder, name = target, "."
        if not source.is_dir():
            folder, name = posixpath.split(target + source.name if target.endswith("/") else target)
        inside = self._inside("tar")
        with tempfile.TemporaryDirectory(dir=self._folder) as place:
            file = Path(place) / "upload.tar"
            await asyncio.to_thread(archive.write, source, name, file)
            await self._ask("upload", source=str(file), target=inside)
        script = 'mkdir -p -- "$2" && tar -xpf "$1" -C "$2"; code=$?; rm -f -- "$1"; exit $code'
        await self._as_root(["sh", "-c", script, "sh", inside, folder or "/"], f"cannot copy to {target}")

    async def download(self, source: str, target: Path, *, max_bytes: int = 1 << 30) -> Download:
        """Copy a file or a folder's content out; only plain files and folders come."""
        inside = self._inside("tar")
        said = await self._as_root(["sh", "-c", _PACK, "sh", source, inside], f"cannot read {source}")
        kind, _, size = said.partition(" ")
        if kind == "nothing":
            raise FileNotFoundError(f"{source} does not exist in sandbox {self._request.name}")
        with tempfile.TemporaryDirectory(dir=self._folder) as place:
            file = Path(place) / "download.tar"
            fits = size.isdigit() and int(size) <= max_bytes + _ARCHIVE_BYTES
            if fits:
                await self._ask("download", source=inside, target=str(file))
            await self._as_root(["rm", "-f", "--", inside], f"cannot remove {inside}")
            if not fits:
                return Download(dropped=(source,), dropped_count=1)
            return await asyncio.to_thread(
                archive.unpack, file, target, max_bytes=max_bytes, single=kind == "file"
            )

    async def set_network(self, network: Network, allowed_hosts: Sequence[str] = ()) -> None:
        """Change the network, where Harbor can."""
        await self._ask("set_network", network=network, allowed_hosts=list(allowed_hosts))

    async def end_processes(self, fresh: Sequence[str] = ()) -> None:
        """End all that commands of ours have started, as far as their variables tell; empty folders."""
        await self._kill(f"{_MARK}={self._request.name}")
        for path in fresh:
            mode = "777" if path.startswith("/logs/") else "755"
            await self._as_root(["sh", "-c", _FRESH, "sh", path, mode], f"cannot create {path} again")

    async def stop(self) -> None:
        """Have Harbor delete it; what it does not delete is tried again at the end and the next start."""
        self._backend.running.discard(self)
        folder, self._folder, self._running = self._folder, None, False
        if folder is None:
            return
        try:
            await self._backend.delete(self._request.name)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def info(self) -> SandboxInfo:
        """What was asked of Harbor, and what nobody holds."""
        limits, name = self._request.limits, self._backend.name
        promised, said = self._promises, f"not enforced: {name} does not say that it holds this limit"
        enforced = {"network": f"{name}: {limits.network}, by Harbor's word"}
        if limits.cpus is not None:
            enforced["cpus"] = f"{name}, by Harbor's word" if promised.get("cpus") else said
        if limits.memory_bytes is not None:
            enforced["memory"] = f"{name}, by Harbor's word" if promised.get("memory") else said
        if limits.pids is not None:
            enforced["pids"] = "not enforced: Harbor has no such limit"
        if limits.storage_bytes is not None:
            enforced["storage"] = said
        enforced["verifier"] = (
            "not enforced: a process that clears its variables outlives the agent, and changes of system "
            "files are not looked at"
        )
        used = ("cpu_s", "peak_memory_bytes")
        ledger: dict[str, Any] = dict.fromkeys(used) | {"unknown": dict.fromkeys(used, _UNKNOWN)}
        return SandboxInfo(backend=name, name=self._request.name, enforced=enforced, ledger=ledger)

    async def _command(
        self,
        command: str,
        env: Mapping[str, str],
        cwd: str | None,
        user: str | None,
        timeout_s: float | None,
    ) -> Mapping[str, Any]:
        root = self._request.root
        limit = None if timeout_s is None else math.ceil(timeout_s) + _SLACK_S
        found: Mapping[str, Any] = await self._ask(
            "exec",
            command=command,
            cwd=cwd or root.workdir,
            env=dict(env),
            user=user or root.user,
            timeout_s=limit,
        )
        return found

    async def _input(self, stdin: bytes | None, number: str) -> str:
        if stdin is None:
            return "/dev/null"
        inside = self._inside(number)
        with tempfile.NamedTemporaryFile(dir=self._folder) as file:
            file.write(stdin)
            file.flush()
            await self._ask("upload", source=file.name, target=inside)
        return inside

    async def _kill(self, mark: str) -> None:
        await self._as_root(["sh", "-c", _KILL, "sh", mark], "cannot end processes")

    async def _as_root(self, argv: Sequence[str], problem: str) -> str:
        """A command of our own, which no mark ends; what it printed last."""
        try:
            async with asyncio.timeout(_END_S):
                found = await self._command(f"{shlex.join(argv)} </dev/null", {}, "/", "root", _END_S)
        except TimeoutError:
            raise HostError(
                f"{problem} in sandbox {self._request.name}: no answer within {_END_S:g} s"
            ) from None
        if found["exit_code"]:
            raise SandboxError(f"{problem} in sandbox {self._request.name}: {found['stderr'].strip()[-500:]}")
        return str(found["stdout"]).strip().rpartition("\n")[2]

    def _inside(self, what: str) -> str:
        return f"{_TEMPORARY}/.proctor-{secrets.token_hex(8)}-{what}"

    async def _ask(self, what: str, **fields: Any) -> Any:
        if not self._running and what not in {"start", "stop"}:
            raise SandboxError(f"sandbox {self._request.name} is not running")
        try:
            return await (await self._backend.bridge()).ask(what, key=self._request.name, **fields)
        except Refused as error:
            lasting = error.kind in _LASTING and what in {"start", "set_network"}
            raise (LastingSandboxError if lasting else SandboxError)(
                f"{self._backend.name} cannot {what.replace('_', ' ')}: {error.kind}: {str(error)[:1500]}"
            ) from error
