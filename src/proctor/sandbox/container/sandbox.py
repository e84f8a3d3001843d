"""One container as a sandbox: the engine makes and removes it, our init inside does everything between."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.errors import SandboxError
from proctor.sandbox import network
from proctor.sandbox.base import SandboxInfo, SandboxRequest
from proctor.sandbox.container import usage
from proctor.sandbox.container.command import CONTROL, Place, init_fields
from proctor.sandbox.container.engine import Adjustment, call
from proctor.sandbox.container.launch import Launch, launch_of
from proctor.sandbox.init.served import PATH, ServedSandbox
from proctor.sandbox.storage import Watched

if TYPE_CHECKING:
    from proctor.sandbox.container.backend import Containers

_CONNECT_S = 20.0
_READY_S = 30.0
_SETTLE_S = 30.0


class ContainerSandbox(ServedSandbox):
    """One sandbox; see `proctor.sandbox.base.Sandbox`."""

    def __init__(self, backend: Containers, request: SandboxRequest, fit: Adjustment | None = None) -> None:
        super().__init__(request, backend.uploads)
        self._backend = backend
        self._fit = fit
        self._place: Place | None = None
        self._launch: Launch | None = None
        self._proxy: network.AllowListProxy | None = None
        self._changes: tuple[Path, ...] = ()
        self._enforced: dict[str, str] = {}

    async def start(self) -> None:
        """Make it. After an error nothing is left behind."""
        if self._place:
            raise SandboxError(f"sandbox {self._request.name} was started before")
        fit = self._fit or await self._backend.adjustment()
        self._place = await self._backend.place(self._request)
        self._backend.began(self)
        try:
            self._launch = launch_of(self._backend.engine, fit, self._request, self._place)
            await self._make(self._launch, fit, self._place)
        except BaseException:
            with contextlib.suppress(SandboxError):  # the first error tells more; the reaper finds the rest
                await self.stop()
            raise

    async def stop(self) -> None:
        """End every process and remove everything. Safe to call twice."""
        launch, self._launch = self._launch, None
        place = self._place
        if place is None:
            return
        self._backend.watch.remove(place.name)
        await self._note_usage()
        self._session.close()
        try:
            if self._proxy:
                await self._proxy.stop()
                self._proxy = None
            if launch:
                await launch.down()
        finally:
            shutil.rmtree(place.folder, ignore_errors=True)
            self._backend.ended(self)

    def info(self) -> SandboxInfo:
        """What it is, which limits hold, what it used."""
        ledger = self._used()
        if self._group:
            ledger |= usage.used(self._group)
        return SandboxInfo(
            backend=self._backend.name,
            name=self._request.name,
            enforced=self._enforced,
            ledger=ledger | self._ledger,
        )

    async def _make(self, launch: Launch, fit: Adjustment, place: Place) -> None:
        with _listening(place.folder) as listener:
            starting = asyncio.create_task(launch.up())
            try:
                line = await self._connected(listener, starting)
                with line:
                    pid = _peer(line)
                    self._greet(line, init_fields(self._request, fit))
                await self._session.ready(_READY_S)
                await starting
            finally:
                await _settled(starting)
        await self._look_at(pid)
        await self._connect(pid)
        self._env = {"PATH": PATH, **self._env, **self._request.root.env, **self._request.env}

    async def _connected(self, listener: socket.socket, starting: asyncio.Task[None]) -> socket.socket:
        """The line to the init, or why there will be none."""
        loop = asyncio.get_running_loop()
        accepting = asyncio.create_task(loop.sock_accept(listener))
        try:
            await asyncio.wait([accepting, starting], return_when=asyncio.FIRST_COMPLETED)
            if not accepting.done():
                await starting
                await asyncio.wait([accepting], timeout=_CONNECT_S)
            if not accepting.done():
                raise SandboxError(
                    f"the container of {self._request.name} started, but its init did not answer within "
                    f"{_CONNECT_S:.0f} s (is the image made for this processor?)"
                )
            return accepting.result()[0]
        finally:
            accepting.cancel()

    def _greet(self, line: socket.socket, fields: Sequence[str]) -> None:
        """Hand over the socket to serve and the filter, as the keeper does for sandboxes of our own."""
        line.setblocking(True)
        with self._session.open() as control:
            data = b"\0".join(os.fsencode(field) for field in fields) + b"\0"
            socket.send_fds(line, [data], [control.fileno(), self._backend.filter_descriptor()])

    async def _look_at(self, pid: int) -> None:
        """Find where the kernel counts for this container and where its changes go, and watch those."""
        limits, backend = self._request.limits, self._backend
        self._group = usage.group_of(pid) if pid else None
        enter = backend.as_root()
        self._changes = await usage.find_changes(pid, enter) if pid and enter is not None else ()
        self._enforced = usage.enforcement(
            limits,
            self._group,
            network=f"{backend.name}: {limits.network}",
            storage=bool(self._changes),
        )
        if self._changes and self._place:
            backend.watch.folder = self._changes[0].parent
            watched = Watched(
                limit_bytes=limits.storage_bytes, measure=self._measure, end=self._end_for_storage
            )
            backend.watch.add(self._place.name, watched)

    async def _connect(self, pid: int) -> None:
        limits = self._request.limits
        if limits.network == "allowlist":
            self._proxy = network.AllowListProxy(limits.allowed_hosts)
            await self._proxy.start(await self._session.listen(network.PROXY_PORT))
            self._env = network.proxy_environment()
        elif limits.network == "public" and not await self._close_link_local(pid):
            self._enforced["network"] += " (link-local addresses stay reachable)"

    async def _close_link_local(self, pid: int) -> bool:
        """Clouds hand out credentials on link-local addresses; the inside cannot take this route away."""
        enter = self._backend.as_root()
        if not pid or enter is None:
            return False
        route = ["ip", "route", "add", "blackhole", "169.254.0.0/16"]
        with contextlib.suppress(SandboxError):
            said = await call([*enter, "nsenter", f"--net=/proc/{pid}/ns/net", *route])
            return said.code == 0
        return False

    async def _measure(self) -> tuple[int, int]:
        enter = self._backend.as_root()
        if not self._changes or enter is None:
            raise SandboxError(f"the changes of {self._request.name} cannot be measured")
        return await usage.disk_usage(self._changes, enter)

    async def _note_usage(self) -> None:
        """What only a running container can tell."""
        group, self._group = self._group, None
        if group:
            self._ledger = {**usage.used(group), **self._ledger}
        if self._changes:
            with contextlib.suppress(SandboxError):
                self._ledger["disk_bytes"] = (await self._measure())[0]
            self._changes = ()


async def _settled(starting: asyncio.Task[None]) -> None:
    """Let the engine end by itself: killed between making and starting a container it forgets the process."""
    try:
        await asyncio.wait([starting], timeout=_SETTLE_S)
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)


@contextlib.contextmanager
def _listening(folder: Path) -> Iterator[socket.socket]:
    """A socket in a folder, for one caller; it is gone before anything else runs inside."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        parent = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            listener.bind(f"/proc/self/fd/{parent}/{CONTROL}")  # socket paths are short, those of folders not
        finally:
            os.close(parent)
        (folder / CONTROL).chmod(0o666)
        listener.listen(1)
        listener.setblocking(False)
        try:
            yield listener
        finally:
            (folder / CONTROL).unlink(missing_ok=True)


def _peer(line: socket.socket) -> int:
    """The init's process id here; 0 when it is not of this machine."""
    raw = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", raw)[0]
    return pid
