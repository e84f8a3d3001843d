"""Folders for `RUN --mount`: made before a RUN, seen by it, and not part of its layer."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import ImageError, SandboxError
from proctor.sandbox import state
from proctor.sandbox.image import grafting
from proctor.sandbox.image.context import Context, Selected, digest, stage
from proctor.sandbox.image.copying import Origins
from proctor.sandbox.image.layers import LayerStore
from proctor.sandbox.image.mounts import Mount
from proctor.sandbox.init.client import Keeper


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounted:
    """What a mount shows, known by its content; nothing for what begins empty."""

    mount: Mount
    digest: str = ""
    selected: tuple[Selected, ...] = ()
    pid: int = 0
    single: bool = False
    """Whether it is one file rather than a folder."""


Places = tuple[dict[str, Path], dict[str, Path]]
"""Path inside → path of ours: those that can only be read, and those that can be written."""


class Mounting:
    """The mounts of one build."""

    def __init__(self, store: LayerStore, context: Context, origins: Origins) -> None:
        self._store = store
        self._context = context
        self._origins = origins

    async def gather(self, mount: Mount, where: str) -> Mounted:
        """Find out what a mount shows."""
        if mount.kind != "bind":
            return Mounted(mount=mount)
        if mount.origin is None:
            selected = tuple(self._context.select(mount.source, where))
            single = not self._context.is_folder(mount.source)
            if single and len(selected) != 1:
                raise ImageError(
                    f"{where}: '{mount.source}' is {len(selected)} files; a mount can have only one"
                )
            return Mounted(mount=mount, digest=digest(selected), selected=selected, single=single)
        try:
            pid = await self._origins.pid(mount.origin)
            wanted = grafting.Wanted(sources=(mount.source,))
            found, single = await grafting.digest(await self._store.keeper(), pid, wanted)
        except ImageError as error:
            raise ImageError(f"{where}: {error}") from error
        return Mounted(mount=mount, digest=found, pid=pid, single=single)

    @contextlib.asynccontextmanager
    async def ready(self, mounted: Sequence[Mounted]) -> AsyncIterator[Places]:
        """Everything in its place while a RUN lasts."""
        binds: dict[str, Path] = {}
        writable: dict[str, Path] = {}
        async with contextlib.AsyncExitStack() as kept:
            for each in mounted:
                mount = each.mount
                if mount.kind == "bind":
                    binds[mount.target] = await self._shown(each)
                elif mount.kind == "tmpfs":
                    folder = await kept.enter_async_context(self._store.temporary())
                    await self._make(folder, mount)
                    writable[mount.target] = folder
                else:
                    folder = await self._cache(mount, kept)
                    (binds if mount.read_only else writable)[mount.target] = folder
            yield binds, writable

    async def _cache(self, mount: Mount, kept: contextlib.AsyncExitStack) -> Path:
        key = f"cache-{hashlib.sha256(mount.id.encode()).hexdigest()}"
        if mount.alone:
            await kept.enter_async_context(self._store.locked(f"alone-{key}"))
        return await self._store.obtain(key, lambda folder: self._make(folder, mount))

    async def _make(self, folder: Path, mount: Mount) -> None:
        keeper = await self._store.keeper()
        await state.make_folders(keeper, folder)
        await _dress(keeper, folder, mount)

    async def _shown(self, mounted: Mounted) -> Path:
        """What a bind shows, as a folder of the store, readable inside whatever users own the files."""

        async def make(folder: Path) -> None:
            keeper = await self._store.keeper()
            await state.make_folders(keeper, folder)
            if mounted.mount.origin is not None:
                wanted = grafting.Wanted(sources=(mounted.mount.source,))
                await grafting.copy_out(keeper, mounted.pid, folder, wanted)
                return
            with self._store.scratch() as scratch:
                staged = scratch / "files"
                staged.mkdir(mode=0o755)
                stage(mounted.selected, staged)
                await grafting.copy_in(keeper, staged, folder)

        folder = await self._store.obtain(f"shown-{mounted.digest}", make)
        return folder / self._name(mounted) if mounted.single else folder

    def _name(self, mounted: Mounted) -> str:
        named = mounted.selected[0].name if mounted.selected else mounted.mount.source
        return named.rstrip("/").rpartition("/")[2]


async def _dress(keeper: Keeper, folder: Path, mount: Mount) -> None:
    """Owner and mode of a new folder."""
    if keeper.ids.as_root:
        os.chown(folder, keeper.ids.first_uid + mount.uid, keeper.ids.first_gid + mount.gid)
        folder.chmod(mount.mode)
        return
    script = 'chown "$1" "$3" && chmod "$2" "$3"'
    owner, mode = f"{mount.uid}:{mount.gid}", f"{mount.mode:o}"
    if await keeper.run(["sh", "-c", script, "sh", owner, mode, str(folder)]):
        raise SandboxError(f"cannot prepare {folder} for a build")
