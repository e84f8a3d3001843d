"""One container as a sandbox: the engine makes and removes it, our init inside does everything between."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.errors import SandboxError
from proctor.sandbox.base import Companion, Network, SandboxInfo, SandboxRequest
from proctor.sandbox.certificates import BUNDLE_PATH
from proctor.sandbox.container import usage
from proctor.sandbox.container.command import CONTROL, HostParts, SingleContainer, init_fields, listening
from proctor.sandbox.container.compose import ComposeProject, Service
from proctor.sandbox.container.engine import Adjustment, call
from proctor.sandbox.init.served import ServedSandbox
from proctor.sandbox.lower import Lower
from proctor.sandbox.network import SandboxNetwork, configure
from proctor.sandbox.network_rules import resolve_rules

if TYPE_CHECKING:
    from proctor.sandbox.container.backend import Containers

Launcher = ComposeProject | SingleContainer
_READ_FIRST = {"hosts", "resolv.conf"}
_COVERED = ("etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/mtab", BUNDLE_PATH.strip("/"))
_MOST_GIVEN_BYTES = 1 << 16
_CONNECT_S = 20.0
_READY_S = 30.0
_SETTLE_S = 30.0


class ContainerSandbox(ServedSandbox):
    """One sandbox; see `proctor.sandbox.base.Sandbox`."""

    def __init__(self, backend: Containers, request: SandboxRequest, fit: Adjustment | None = None) -> None:
        super().__init__(request, backend)
        self._backend = backend
        self._fit = fit
        self._used_fit: Adjustment | None = None
        self._parts: HostParts | None = None
        self._launch: Launcher | None = None
        self._pid = 0
        self._changes: tuple[Path, ...] = ()
        self._given: dict[Path, bytes] = {}
        self._enforced: dict[str, str] = {}

    @property
    def container(self) -> str:
        """The engine's name of it."""
        if self._parts is None:
            raise SandboxError(f"sandbox {self._request.name} was not started")
        return self._parts.name

    async def start(self) -> None:
        """Make it. After an error nothing is left behind."""
        if self._parts:
            raise SandboxError(f"sandbox {self._request.name} was started before")
        fit = self._used_fit = self._fit or await self._backend.adjustment()
        self._parts = await self._backend.host_parts(self._request)
        self._backend.running.add(self)
        try:
            self._launch = self._launcher(fit, self._parts)
            await self._make(self._launch, fit, self._parts)
        except BaseException:
            with contextlib.suppress(SandboxError):  # the first error tells more; the reaper finds the rest
                await self.stop()
            raise

    def _launcher(self, fit: Adjustment, parts: HostParts) -> Launcher:
        """What starts and removes the container, alone or with the companions of a compose file."""
        engine, request = self._backend.engine, self._request
        if not request.root.compose:
            return SingleContainer(engine, fit, request, parts, self._backend.as_root())
        if request.state:
            raise SandboxError("saved changes cannot be put into the services of a compose file")
        rules = self._backend.network_rules
        return ComposeProject(engine, fit, request, parts, rules=rules, guard=self._guard_services)

    async def stop(self) -> None:
        """End every process and remove everything. Safe to call twice."""
        launch, self._launch = self._launch, None
        parts = self._parts
        if parts is None:
            return
        self._backend.watch.remove(parts.name)
        await self._note_usage()
        self._session.close()
        try:
            if self._network:
                await self._network.stop()
            if launch:
                await launch.down()
        finally:
            shutil.rmtree(parts.folder, ignore_errors=True)
            self._backend.running.discard(self)

    def info(self) -> SandboxInfo:
        """What it is, which limits hold, what it used."""
        counted = usage.used(self._group) if self._group else {}
        return SandboxInfo(
            backend=self._backend.name,
            name=self._request.name,
            enforced=self._with_networks(self._enforced) if self._enforced else {},
            ledger=self._used(counted),
        )

    async def host_failure(self) -> str:
        """Proctor or the engine has failed; a container that has ended may have been ended from inside."""
        if self._launch is None:
            return f"sandbox {self._request.name} was stopped by Proctor"
        if self.alive:
            return ""
        engine, fit = self._backend.engine, self._used_fit or Adjustment()
        try:
            said = await call([engine.program, *fit.options, "ps", "--quiet"])
        except SandboxError as error:
            return str(error)
        return f"{engine.name} does not work any more: {said.reason}" if said.code else ""

    async def save_state(self, target: Path, *, max_bytes: int) -> bool:
        """End every process, then write a tar of all that changed; False when that cannot be kept."""
        await self._session.end_processes()
        enter = self._backend.as_root()
        if not self._changes or enter is None:
            return False
        return await usage.save(self._changes[0], target, max_bytes=max_bytes, enter=enter)

    @property
    def covered(self) -> frozenset[str]:
        """Paths of the changes that the engine made itself, to mount something there."""
        return frozenset((*_COVERED, *(each.strip("/") for each in self._request.root.binds)))

    def given_changed(self) -> tuple[str, ...]:
        """Files that the engine bound in, which are no part of the changes, if the inside wrote to them."""
        return tuple(f"etc/{file.name}" for file, known in self._given.items() if known != _content(file))

    def lower(self) -> Lower | None:
        """Its image, seen from outside."""
        return usage.lower(self._changes[0]) if self._changes else None

    def companion(self, service: str) -> Companion:
        """Another service of the compose file."""
        if self._parts is None or self._launch is None or self._request.root.compose is None:
            raise SandboxError(f"there is no service '{service}': the task has no compose file, or has ended")
        fit = self._used_fit or Adjustment()
        return Service(self._backend.engine, fit, self._parts.name, service)

    async def _make(self, launch: Launcher, fit: Adjustment, parts: HostParts) -> None:
        with listening(parts.folder, CONTROL) as listener:
            starting = asyncio.create_task(launch.up())
            try:
                line = await self._connected(listener, starting)
                with line:
                    self._pid = _peer(line)
                    self._greet(line, init_fields(self._request, fit))
                await self._session.ready(_READY_S)
                await starting
            finally:
                await _settled(starting)
        await self._look_at(self._pid)
        await self._connect()

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
            await asyncio.gather(accepting, return_exceptions=True)  # before the listener is closed

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
        self.init_pid = pid
        enter = backend.as_root()
        self._changes = await usage.find_changes(pid, enter) if pid and enter is not None else ()
        self._given = {file: _content(file) for file in self._changes[1:] if file.name in _READ_FIRST}
        self._enforced = usage.enforcement(
            limits,
            self._group,
            network=f"{backend.name}: {limits.network}",
            storage=bool(self._changes),
        )
        if self._changes and self._parts:
            backend.watch.folder = self._changes[0].parents[1]  # stays when this container goes
            self._watch(self._parts.name, self._measure)

    async def _change_network(
        self, connected: SandboxNetwork, network: Network, allowed_hosts: Sequence[str]
    ) -> None:
        launch = self._backend.launch()
        if self._request.root.compose:
            network = self._network_of_services(network)
        await connected.change(network, allowed_hosts, launch, self._pid)

    def _network_of_services(self, network: Network) -> Network:
        """What is left to connect: the engine connects the services of a compose file among each other."""
        asked = self._request.limits.network
        if network != asked and "public" in {network, asked}:
            raise SandboxError(
                "the network of a compose file's services cannot be changed between 'public' and another "
                "while they run, and the task gives its agent or its tests another one; use --network"
            )
        return "none" if network == "public" else network

    async def _guard_services(self, pids: Sequence[int]) -> None:
        """Keep services away from this machine and its private networks, by rules of their own networks."""
        launch = self._backend.launch()
        if launch is None:
            raise SandboxError(
                "only root may keep the services of a compose file away from this machine and its private "
                "networks: run Proctor as root, or use podman"
            )
        rules = await resolve_rules(self._backend.network_rules)
        for pid in pids:
            await configure(launch, pid, rules.services())
            await configure(launch, pid, rules.services_v6(), "-6")

    async def _measure(self, *, whole: bool = False) -> tuple[int, int]:
        enter = self._backend.as_root()
        if not self._changes or enter is None:
            raise SandboxError(f"the changes of {self._request.name} cannot be measured")
        limit_bytes = None if whole else self._request.limits.storage_bytes
        return await usage.disk_usage(self._changes, enter, pid=self._pid, limit_bytes=limit_bytes)

    async def _note_usage(self) -> None:
        """What only a running container can tell."""
        group, self._group = self._group, None
        if group:
            self._ledger = {**usage.used(group), **self._ledger}
        if self._changes:
            with contextlib.suppress(SandboxError):
                self._ledger["disk_bytes"] = (await self._measure(whole=True))[0]
            self._changes = ()


def _content(file: Path) -> bytes:
    """The beginning of a file; nothing when it cannot be read."""
    try:
        with file.open("rb") as stream:
            return stream.read(_MOST_GIVEN_BYTES)
    except OSError:
        return b""


async def _settled(starting: asyncio.Task[None]) -> None:
    """Let the engine end by itself: killed between making and starting a container it forgets the process."""
    try:
        await asyncio.wait([starting], timeout=_SETTLE_S)
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)


def _peer(line: socket.socket) -> int:
    """The init's process id here; 0 when it is not of this machine."""
    raw = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", raw)[0]
    return pid
