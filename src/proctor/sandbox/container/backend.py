"""The back end of containers: what all sandboxes of one engine share in this process."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from proctor.errors import SandboxError
from proctor.sandbox import reaper
from proctor.sandbox.base import SandboxRequest
from proctor.sandbox.container import adjust, leftovers
from proctor.sandbox.container.command import Place
from proctor.sandbox.container.engine import Adjustment, Engine, call
from proctor.sandbox.container.sandbox import ContainerSandbox
from proctor.sandbox.container.static import init_program
from proctor.sandbox.init.uploads import Uploads
from proctor.sandbox.seccomp import build_filter
from proctor.sandbox.storage import StorageWatch

_SELINUX = Path("/sys/fs/selinux/enforce")


class Containers:
    """The back end: one engine, one folder of sockets, one watch over the disk."""

    def __init__(self, engine: Engine, home: Path, *, cache_dir: Path | None = None) -> None:
        self.engine = engine
        self.name = engine.name
        self.cache_dir = (cache_dir or home / "cache").absolute()
        self.state_dir = home.absolute() / f"{engine.name}-sandboxes"
        self.folder = self.state_dir / reaper.owner_name()
        self.watch = StorageWatch(Path("/"))
        self.uploads = Uploads(lambda: self.folder)
        self._opening = asyncio.Lock()
        self._program: Path | None = None
        self._fit: Adjustment | None = None
        self._filter = -1
        self._running: set[ContainerSandbox] = set()
        self._numbers = itertools.count()

    def sandbox(self, request: SandboxRequest) -> ContainerSandbox:
        """One sandbox, not yet started."""
        return ContainerSandbox(self, request)

    async def reap(self) -> tuple[str, ...]:
        """Remove what killed processes left."""
        return await leftovers.reap(self.engine, await self.adjustment(), self.state_dir)

    async def close(self) -> None:
        """Stop what is still running and leave nothing."""
        await asyncio.gather(*(each.stop() for each in list(self._running)), return_exceptions=True)
        self.uploads.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._filter >= 0:
            os.close(self._filter)
            self._filter = -1
        self._program = None

    async def adjustment(self) -> Adjustment:
        """What the engine must be told here; tried once and remembered."""
        async with self._opening:
            if self._fit is None:
                self._fit = await adjust.remembered(self)
            return self._fit

    async def place(self, request: SandboxRequest) -> Place:
        """A name, labels and a folder for one sandbox."""
        if self._program is None:
            self._program = await asyncio.to_thread(init_program, self.cache_dir)
        number = next(self._numbers)
        folder = self.open_folder() / f"s{number}"
        folder.mkdir(mode=0o711)
        labels = {
            leftovers.OWNER: reaper.owner_name(),
            leftovers.PLACE: leftovers.place_name(),
            "proctor.sandbox": request.name,
            **{f"proctor.{name}": value for name, value in request.labels.items()},
        }
        name = f"proctor-{reaper.owner_name()}-{id(self):x}-{number}"
        return Place(
            name=name, labels=labels, program=self._program, folder=folder, selinux=_SELINUX.exists()
        )

    def open_folder(self) -> Path:
        """The folder of this process's sockets and builds, marked as ours."""
        if not (self.folder / reaper.OWNER_FILE).exists():
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            reaper.write_owner(self.folder, keeper=None, cgroups=[])
        return self.folder

    def filter_descriptor(self) -> int:
        """The system call filter, in a descriptor that all sandboxes share."""
        if self._filter < 0:
            self._filter = os.memfd_create("filter", os.MFD_CLOEXEC)
            os.write(self._filter, build_filter())
        return self._filter

    def as_root(self) -> Sequence[str] | None:
        """What to put before a command that must be root of the containers; None when there is no way."""
        if os.geteuid() == 0:
            return ()
        return (self.engine.program, "unshare") if self.name == "podman" else None

    def began(self, sandbox: ContainerSandbox) -> None:
        """Remember a sandbox that must be stopped."""
        self._running.add(sandbox)

    def ended(self, sandbox: ContainerSandbox) -> None:
        """Forget it."""
        self._running.discard(sandbox)

    async def ask(self, *arguments: str) -> str:
        """The answer of the engine to a question; SandboxError when it has none."""
        said = await call([self.engine.program, *arguments])
        if said.code:
            raise SandboxError(f"{self.name} does not answer: {said.reason}")
        return said.out.strip()
