"""Sandboxes of namespaces and overlays without a daemon: the default back end.

A keeper process makes each sandbox and is the parent of its init; the init runs commands on request. This
module is the controller's side of both and keeps nothing per sandbox but a socket and a few objects.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from proctor.disk import opened, spread
from proctor.errors import SandboxError
from proctor.sandbox import limits as limiting
from proctor.sandbox import overlay, reaper
from proctor.sandbox import state as saved_state
from proctor.sandbox.base import Network, SandboxInfo, SandboxRequest
from proctor.sandbox.capabilities import MASK
from proctor.sandbox.certificates import CaBundle
from proctor.sandbox.container.engine import call
from proctor.sandbox.init.keeper import Keeper, Usage
from proctor.sandbox.init.served import ServedBackend, ServedSandbox
from proctor.sandbox.lower import Lower
from proctor.sandbox.network import SandboxNetwork, by_keeper
from proctor.sandbox.programs import keeper_program
from proctor.sandbox.storage import measure_command, read_measure
from proctor.sandbox.userns import find_ids

_log = logging.getLogger("proctor.sandbox")
_START_S = 60.0
_ANSWER_S = 20.0


class Bubblewrap(ServedBackend):
    """The back end: one keeper, one folder of state, one watch over the disk."""

    name = "bubblewrap"

    def __init__(
        self,
        home: Path,
        *,
        cache_dir: Path | None = None,
        network_allow: Sequence[str] = (),
        ca_bundle: CaBundle | None = None,
    ) -> None:
        super().__init__(
            home, "sandboxes", cache_dir=cache_dir, network_allow=network_allow, ca_bundle=ca_bundle
        )
        self._keeper: Keeper | None = None
        self._layers: dict[str, Path] = {}
        self.cgroups: limiting.Cgroups | None = None

    def sandbox(self, request: SandboxRequest) -> BubblewrapSandbox:
        """One sandbox, not yet started."""
        return BubblewrapSandbox(self, request)

    async def reap(self) -> tuple[str, ...]:
        """Remove what killed processes left."""
        return await self._reap(await self.keeper())

    async def _remove_folder(self) -> None:
        async with self._opening:
            if self._keeper is None:
                return
            with contextlib.suppress(SandboxError, OSError), opened(self.state_dir) as parent:
                await self._keeper.remove(self.folder.name, parent)
            await self._keeper.close()
            self._keeper = None
        if self.cgroups:
            limiting.remove_parents(self.cgroups)
            self.cgroups = None

    async def keeper(self) -> Keeper:
        """The keeper, launched on first use and again should it have died."""
        if self._keeper and self._keeper.alive:
            return self._keeper
        async with self._opening:
            if self._keeper is None or not self._keeper.alive:
                if self._keeper:
                    await self._keeper.close()
                    self._keeper = None
                self._keeper = await self._open()
        return self._keeper

    async def stack(self, request: SandboxRequest) -> overlay.Stack:
        """The layers and binds of a sandbox's root."""
        if "top" not in self._layers:
            self._layers["top"] = await overlay.top_layer(self.cache_dir, self.give_to_root, self.ca_bundle)
        if request.root.host and "host" not in self._layers:
            self._layers["host"] = await overlay.host_skeleton(self.cache_dir, self.give_to_root)
        top, host = self._layers["top"], self._layers.get("host")
        return overlay.stack(request.root, top=top, host_layer=host, name=request.name)

    async def give_to_root(self, tree: Path) -> None:
        """Make a tree belong to root inside, so that it can be a layer."""
        keeper = await self.keeper()
        if not keeper.ids.as_root:
            if await keeper.run(["chown", "-h", "-R", "0:0", str(tree)]):
                raise SandboxError(f"cannot give {tree} to the ids of the sandboxes")
            return
        uid, gid = keeper.ids.first_uid, keeper.ids.first_gid
        os.lchown(tree, uid, gid)
        for folder, folders, files in os.walk(tree):
            for each in (*folders, *files):
                os.lchown(f"{folder}/{each}", uid, gid)

    def unique(self, name: str) -> str:
        """A folder name for a sandbox, safe and never used before by this process."""
        return f"{re.sub(r'[^A-Za-z0-9_-]', '-', name)[:80]}-{next(self._numbers)}"

    async def _open(self) -> Keeper:
        ids = find_ids()
        program = await asyncio.to_thread(keeper_program)
        self.open_folder()
        spread(self.folder)
        if ids.as_root:
            for folder in (self.state_dir, self.folder):
                os.chown(folder, ids.keeper_uid, ids.keeper_gid)
        if self.cgroups is None:
            self.cgroups = limiting.find_cgroups(f"proctor-{self.folder.name}")
        groups = sorted({str(path) for path in self.cgroups.parents.values()}) if self.cgroups else []
        keeper = await Keeper.launch(str(program), ids)
        reaper.write_owner(self.folder, keeper=keeper.pid, cgroups=groups)
        self.watch.folder = self.folder
        await self._reap(keeper)
        return keeper

    async def _reap(self, keeper: Keeper) -> tuple[str, ...]:
        removed = await reaper.reap(self.state_dir, keeper.remove)
        return removed + reaper.sweep_cgroups(self.cgroups.parents.values() if self.cgroups else ())

    async def remove(self, folder: Path) -> None:
        """Remove one of the folders of this process."""
        keeper = await self.keeper()
        with opened(folder.parent) as parent:
            await keeper.remove(folder.name, parent)


class BubblewrapSandbox(ServedSandbox):
    """One sandbox; see `proctor.sandbox.base.Sandbox`."""

    def __init__(self, backend: Bubblewrap, request: SandboxRequest) -> None:
        super().__init__(request, backend)
        self._backend = backend
        self._keeper: Keeper | None = None
        self._ident = ""
        self._unique_name = ""
        self._state: Path | None = None
        self._removing: asyncio.Task[None] | None = None
        self.standing: tuple[str, ...] = ()
        self._lower: Lower | None = None

    async def start(self) -> None:
        """Make it. After an error nothing is left behind."""
        if self._unique_name:
            raise SandboxError(f"sandbox {self._request.name} was started before")
        self._unique_name = self._backend.unique(self._request.name)
        self._keeper = await self._backend.keeper()
        self._backend.running.add(self)
        stack = await self._backend.stack(self._request)
        try:
            await self._make(self._keeper, stack)
        except BaseException:
            await self.stop()
            stack.check(self._request.name)
            raise

    async def stop(self) -> None:
        """End every process and remove everything. Safe to call twice."""
        keeper, self._keeper = self._keeper, None
        if keeper:
            self._removing = asyncio.create_task(self._remove(keeper))
        if self._removing:
            try:
                await asyncio.shield(self._removing)  # one that is cancelled here must not leave half of it
            except SandboxError as error:
                _log.warning("a sandbox could not be removed, the next start will try again: %s", error)
                raise

    async def _remove(self, keeper: Keeper) -> None:
        self._backend.watch.remove(self._unique_name)
        self._session.silence()
        try:
            if self._network:
                await self._network.stop()
            await self._end(keeper)
        finally:
            self._session.close()
            try:
                await self._leave_group()
            finally:
                self._backend.running.discard(self)

    async def _end(self, keeper: Keeper) -> None:
        ident = self._ident or f"never-{self._unique_name}"
        try:
            if self._state:
                with opened(self._state.parent) as folder:
                    self._ledger["disk_bytes"] = await keeper.end(ident, self._state.name, folder)
            else:
                await keeper.end(ident)
        except SandboxError:
            if keeper.alive:
                raise
            # It took every process with it when it died; the next one removes the files.
            if self._state:
                await self._backend.remove(self._state)

    async def save_state(self, target: Path, *, max_bytes: int) -> bool:
        """End every process, then write a tar of all that changed; False when that is too much to keep."""
        keeper = self._require_keeper()
        state = self._require_state()
        return await saved_state.save(keeper, self._session, state, target, max_bytes=max_bytes)

    def lower(self) -> Lower | None:
        """Its root without what changed."""
        return self._lower

    async def take_layer(self, target: Path) -> None:
        """End every process and move all that changed to `target`; all that is left to do then is stop."""
        await self._session.end_processes()
        await saved_state.move(self._require_keeper(), self._require_state(), target)

    async def host_failure(self) -> str:
        """Only the keeper and Proctor itself can take a sandbox away from outside."""
        if self._keeper is None:
            return f"sandbox {self._request.name} was stopped by Proctor"
        try:
            async with asyncio.timeout(_ANSWER_S):
                await self._keeper.run(["true"])
        except (SandboxError, TimeoutError):
            return "the sandbox keeper process has died"
        return ""

    async def listen_everywhere(self, port: int) -> socket.socket:
        """A socket on every address of the inside, to be served out here."""
        return await self._session.listen(port, everywhere=True)

    def info(self) -> SandboxInfo:
        """What it is, which limits hold, what it used."""
        counted = self._group.usage() if self._group else {}
        return SandboxInfo(
            backend="bubblewrap",
            name=self._request.name,
            enforced=self._with_networks(limiting.enforcement(self._request.limits, self._backend.cgroups)),
            ledger=self._used(counted),
        )

    def _require_keeper(self) -> Keeper:
        if self._keeper is None:
            raise SandboxError(f"sandbox {self._request.name} is not running")
        return self._keeper

    def _require_state(self) -> Path:
        if self._state is None:
            raise SandboxError(f"sandbox {self._request.name} was not started")
        return self._state

    async def _make(self, keeper: Keeper, stack: overlay.Stack) -> None:
        backend, request, ids = self._backend, self._request, keeper.ids
        self.standing = stack.standing
        self._lower = stack.lower
        state = backend.folder / self._unique_name
        os.mkdir(state, mode=0o700)  # noqa: PTH102 - once per sandbox
        self._state = state
        if ids.as_root:
            os.chown(state, ids.keeper_uid, ids.keeper_gid)
        if request.state:
            await saved_state.restore(keeper, state, request.state)
        fds: list[int] = []
        with self._session.open() as control:
            try:
                if backend.cgroups:
                    self._group = backend.cgroups.create(self._unique_name, request.limits)
                    fds += self._group.open_procs()
                fields = self._fields(state, stack, cgroup_count=len(fds))
                if ids.as_root:
                    fds += overlay.open_trees([state, *stack.sources()])
                    fields.append("T")
                given = [control.fileno(), backend.filter_descriptor(), *fds]
                self._ident = keeper.start(fields, given, self._exited)
            finally:
                for fd in fds:
                    os.close(fd)
        self.init_pid = await self._session.ready(_START_S)
        await self._connect()
        self._watch(self._unique_name, self._measure)

    def _fields(self, state: Path, stack: overlay.Stack, *, cgroup_count: int) -> list[str]:
        cgroups = self._backend.cgroups
        fields = [
            f"d{state}",
            f"h{overlay.HOST_NAME}",
            f"w{self._request.root.workdir}",
            f"c{cgroup_count}",
            f"s{overlay.SHM_BYTES}",
            f"k{MASK}",
            *limiting.rlimit_fields(self._request.limits, cgroups.parents if cgroups else ()),
            *(f"l{layer}" for layer in stack.layers),
        ]
        for number, (source, target) in enumerate(stack.binds):
            fields += [f"b{source}", f"t{target}"]
            if target in stack.writable:
                fields.append(f"v{number}")
        return fields

    async def _measure(self) -> tuple[int, int]:
        """Bytes and inodes that the inside has added to its layers."""
        keeper, state, limits = self._require_keeper(), self._require_state(), self._request.limits
        counted = self._backend.cgroups is not None and "memory" in self._backend.cgroups.parents
        command = partial(
            measure_command,
            keeper.program,
            limit_bytes=limits.storage_bytes,
            pid=self.init_pid,
            with_shm=not counted,
        )
        if keeper.ids.as_root:  # who also sees files that are mapped and no longer open
            said = await call(command([f"{state}/upper"]), timeout_s=None)
            return read_measure(said.code, said.out, said.err)
        with opened(state) as folder:
            return read_measure(*await keeper.output(command(["/proc/self/fd/3/upper"]), folder))

    async def _change_network(
        self, connected: SandboxNetwork, network: Network, allowed_hosts: Sequence[str]
    ) -> None:
        keeper = self._require_keeper()
        await connected.change(network, allowed_hosts, by_keeper(keeper), self.init_pid)

    def _exited(self, usage: Usage) -> None:
        session = self._session
        session.cpu_s = max(session.cpu_s, usage.cpu_s)
        session.peak_process_bytes = max(session.peak_process_bytes, usage.peak_process_bytes)
        session.read_bytes = max(session.read_bytes, usage.read_bytes)
        session.write_bytes = max(session.write_bytes, usage.write_bytes)

    async def _leave_group(self) -> None:
        group, self._group = self._group, None
        if group is None:
            return
        self._ledger = {**group.usage(), **self._ledger}
        for attempt in range(50):
            if group.remove():
                return
            await asyncio.sleep(0.001 * (attempt + 1))
        raise SandboxError(f"the control group of sandbox {self._request.name} could not be removed")
