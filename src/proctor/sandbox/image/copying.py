"""COPY, ADD and `RUN --mount`: what a step takes is gathered first, because a layer is named after it.

Copies become part of the layer; mounts are made before a RUN, seen by it, and not part of its layer.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import posixpath
import tarfile
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import ImageError, SandboxError
from proctor.sandbox import state
from proctor.sandbox.base import Backend, Root, Sandbox, SandboxRequest
from proctor.sandbox.image import grafting
from proctor.sandbox.image.address import fetch, file_name
from proctor.sandbox.image.context import Context, Selected, digest, path_regex, stage
from proctor.sandbox.image.layers import LayerStore
from proctor.sandbox.image.mounts import Mount
from proctor.sandbox.image.recipe import Copy, MakeFolder
from proctor.sandbox.image.stages import Origin
from proctor.sandbox.init.keeper import Keeper

_CHUNK = 200


class Origins:
    """Sandboxes of the stages and images whose files a build takes, each started once."""

    def __init__(self, backend: Backend, root_of: Callable[[Origin], Awaitable[Root]]) -> None:
        self._backend = backend
        self._root_of = root_of
        self._running: dict[Origin, Sandbox] = {}

    async def pid(self, origin: Origin) -> int:
        """The process whose root is that of a stage or an image."""
        if origin not in self._running:
            root = await self._root_of(origin)
            plain = Root(layers=root.layers, host=root.host)
            sandbox = self._backend.sandbox(SandboxRequest(name="origin", root=plain))
            await sandbox.start()
            self._running[origin] = sandbox
        return init_pid(self._running[origin])

    async def close(self) -> None:
        """End them."""
        while self._running:
            await self._running.popitem()[1].stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """What a step copies: files of ours, or files of another root, known by their content."""

    selected: tuple[Selected, ...] = ()
    digest: str = ""
    pid: int = 0
    wanted: grafting.Wanted | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounted:
    """What a mount shows, known by its content; nothing for what begins empty."""

    mount: Mount
    digest: str = ""
    selected: tuple[Selected, ...] = ()
    pid: int = 0
    single: bool = False
    """Whether it is one file rather than a folder."""


Folders = tuple[dict[str, Path], dict[str, Path]]
"""Path inside → path of ours: those that can only be read, and those that can be written."""


class Files:
    """What the steps of one build take from outside: copies and mounts."""

    def __init__(
        self, store: LayerStore, context: Context, origins: Origins, where: str, allow: Sequence[str]
    ) -> None:
        self._store = store
        self._context = context
        self._origins = origins
        self._where = where
        self._allow = allow

    async def gather(self, step: MakeFolder | Copy, kept: contextlib.ExitStack) -> Gathered:
        """What a step takes; files that are fetched stay until `kept` is closed."""
        if isinstance(step, MakeFolder):
            return Gathered()
        where = f"{self._where}:{step.line}: {step.text}"
        exclude = tuple(path_regex(each) for each in step.exclude)
        if step.origin is not None:
            wanted = grafting.Wanted(sources=step.sources, parents=step.parents, exclude=exclude)
            pid, found, _ = await self._in_origin(step.origin, wanted, where)
            return Gathered(digest=found, pid=pid, wanted=wanted)
        chosen = [
            each
            for source in step.sources
            for each in self._context.select(source, where, parents=step.parents, exclude=exclude)
        ]
        chosen += [await self._fetched(step, each, where, kept) for each in step.addresses]
        return Gathered(selected=tuple(chosen), digest=digest(chosen) if chosen else "")

    async def _in_origin(self, origin: Origin, wanted: grafting.Wanted, where: str) -> tuple[int, str, bool]:
        """Files of a stage or an image: a process with that root, their digest, whether it is one file."""
        try:
            pid = await self._origins.pid(origin)
            found, single = await grafting.digest(await self._store.keeper(), pid, wanted)
        except ImageError as error:
            raise ImageError(f"{where}: {error}") from error
        return pid, found, single

    async def _fetched(self, step: Copy, address: str, where: str, kept: contextlib.ExitStack) -> Selected:
        name = file_name(address)
        if not name and step.target.endswith("/"):
            raise ImageError(f"{where}: the address names no file, and the target is a folder")
        file = kept.enter_context(self._store.scratch()) / "fetched"
        found = await fetch(address, file, allow=self._allow, where=f"{self._where}:{step.line}: ADD")
        if step.checksum and step.checksum != f"sha256:{found}":
            raise ImageError(f"{where}: the file has the checksum sha256:{found}, not {step.checksum}")
        file.chmod(0o600)
        return Selected(source=file, name=name or "file", status=file.lstat(), fetched=True)

    async def copy(self, sandbox: Sandbox, step: Copy, gathered: Gathered) -> None:
        """Do a step in the sandbox that becomes its layer."""
        if gathered.wanted is not None:
            keeper = await self._store.keeper()
            names = await grafting.copy(keeper, gathered.pid, init_pid(sandbox), step.target, gathered.wanted)
            await self._change(sandbox, step, names)
            return
        archives = [each for each in gathered.selected if step.unpacks and _is_archive(each)]
        plain = [each for each in gathered.selected if each not in archives]
        target = step.target
        if not target.endswith("/") and target != "/" and await _is_folder(sandbox, target):
            target += "/"
        for each in archives:
            await self._unpack(sandbox, step, each, target)
        if not plain and not step.texts:
            if not archives:
                await make_folder(sandbox, target)
            return
        into = self._single(step, plain, target)
        await self._upload(sandbox, step, plain, into, target)
        names = [each.name for each in plain] + [text_name for text_name, _ in step.texts]
        await self._change(
            sandbox, step, [into] if into else [posixpath.join(target, each) for each in names]
        )

    async def _upload(
        self, sandbox: Sandbox, step: Copy, plain: Sequence[Selected], into: str, target: str
    ) -> None:
        with self._store.scratch() as scratch:
            staged = scratch / "files"
            staged.mkdir(mode=0o755)
            stage(plain, staged)
            for text_name, text in step.texts:
                (staged / text_name).write_text(text)
                (staged / text_name).chmod(0o644)
            if into:
                only = plain[0].name if plain else step.texts[0][0]
                await sandbox.upload(staged / only, into)
            else:
                await sandbox.upload(staged, target)

    def _single(self, step: Copy, plain: Sequence[Selected], target: str) -> str:
        """Where a single file goes; nothing when a folder's content is copied."""
        count = len(plain) + len(step.texts)
        folder_given = any(each.is_folder for each in plain) or any("/" in each.name for each in plain)
        if count != 1 or folder_given or step.parents or self._stands_for_content(step):
            return ""
        name = plain[0].name if plain else step.texts[0][0]
        return posixpath.join(target, name) if target.endswith("/") or target == "/" else target

    def _stands_for_content(self, step: Copy) -> bool:
        """Whether a source is a folder, which means its content."""
        return any(self._context.is_folder(source) for source in step.sources)

    async def _unpack(self, sandbox: Sandbox, step: Copy, archive: Selected, target: str) -> None:
        await make_folder(sandbox, target)
        place = f"/.proctor-{hashlib.sha256(archive.name.encode()).hexdigest()[:16]}"
        await sandbox.upload(archive.source, place)
        script = 'tar -x -f "$1" -C "$2"; code=$?; rm -f "$1"; exit $code'
        result = await sandbox.exec(["/bin/sh", "-c", script, "sh", place, target], cwd="/", user="root")
        if result.exit_code:
            said = result.stderr.decode(errors="replace").strip()[-500:]
            raise ImageError(f"{self._where}:{step.line}: {step.text}: cannot unpack {archive.name}: {said}")

    async def _change(self, sandbox: Sandbox, step: Copy, paths: Sequence[str]) -> None:
        """Owner and mode of what was copied, by the image's own programs: they know its users."""
        for program, argument in (("chown", step.chown), ("chmod", step.chmod)):
            for start in range(0, len(paths) if argument else 0, _CHUNK):
                argv = [program, *(["-h"] if program == "chown" else []), argument, "--"]
                result = await sandbox.exec([*argv, *paths[start : start + _CHUNK]], cwd="/", user="root")
                if result.exit_code:
                    said = result.stderr.decode(errors="replace").strip()[-500:]
                    raise ImageError(f"{self._where}:{step.line}: {step.text}: {program} failed: {said}")

    async def gather_mount(self, mount: Mount, where: str) -> Mounted:
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
        wanted = grafting.Wanted(sources=(mount.source,))
        pid, found, single = await self._in_origin(mount.origin, wanted, where)
        return Mounted(mount=mount, digest=found, pid=pid, single=single)

    @contextlib.asynccontextmanager
    async def mounts_ready(self, mounted: Sequence[Mounted]) -> AsyncIterator[Folders]:
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
                    await self._make_mount(folder, mount)
                    writable[mount.target] = folder
                else:
                    folder = await self._cache(mount, kept)
                    (binds if mount.read_only else writable)[mount.target] = folder
            yield binds, writable

    async def _cache(self, mount: Mount, kept: contextlib.AsyncExitStack) -> Path:
        key = f"cache-{hashlib.sha256(mount.id.encode()).hexdigest()}"
        if mount.alone:
            await kept.enter_async_context(self._store.locked(f"alone-{key}"))
        return await self._store.obtain(key, lambda folder: self._make_mount(folder, mount))

    async def _make_mount(self, folder: Path, mount: Mount) -> None:
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
        if not mounted.single:
            return folder
        named = mounted.selected[0].name if mounted.selected else mounted.mount.source
        return folder / named.rstrip("/").rpartition("/")[2]


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


def init_pid(sandbox: Sandbox) -> int:
    """The process of a sandbox that is always there."""
    found = getattr(sandbox, "init_pid", 0)
    if not found:
        raise SandboxError("the sandbox of a build is not running")
    return int(found)


def _is_archive(each: Selected) -> bool:
    plain = not (each.fetched or each.is_folder or each.is_link or "/" in each.name)
    return plain and tarfile.is_tarfile(each.source)


async def _is_folder(sandbox: Sandbox, path: str) -> bool:
    """Whether an image without a shell has a folder there cannot be known; then it is taken for a file."""
    result = await sandbox.exec(["/bin/sh", "-c", '[ -d "$1" ]', "sh", path], cwd="/", user="root")
    return result.exit_code == 0


async def make_folder(sandbox: Sandbox, path: str) -> None:
    """A folder of root inside, with those above it."""
    with tempfile.TemporaryDirectory(prefix="proctor-") as empty:
        Path(empty).chmod(0o755)
        await sandbox.upload(Path(empty), path)
