"""Layers on disk, each made once: by name, under a lock, in a place of its own, then renamed.

A folder with a layer's name is complete. What a killed process left has another name and is removed, and so
are layers that were not used for long, or the least recently used ones when there are too many. What a living
process uses stays, and so do images that a person imported or pulled, unless requested.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from proctor import owner
from proctor.disk import opened
from proctor.errors import SandboxError
from proctor.sandbox.bubblewrap import Bubblewrap
from proctor.sandbox.image.references import References
from proctor.sandbox.init.keeper import Keeper

MAX_AGE_S = 30 * 86_400.0
MAX_BYTES = 20 << 30
_BUILDING = ".building-"
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.005, 0.25

Make = Callable[[Path], Awaitable[None]]
"""Makes a layer at a path where nothing is yet."""


@contextlib.asynccontextmanager
async def alone(lock: Path) -> AsyncIterator[None]:
    """While it lasts, no other process of this machine holds the lock; one that is killed lets go of it."""
    wait_s = _FIRST_WAIT_S
    with opened(lock, os.O_RDWR | os.O_CREAT) as fd:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        yield


class LayerStore:
    """The layers below one folder, shared by all processes of one account."""

    def __init__(self, folder: Path, backend: Bubblewrap) -> None:
        self.folder = folder.absolute()
        self.layers = self.folder / "layers"
        self.locks = self.folder / "locks"
        self.users = self.folder / "users"
        self.downloads = self.folder / "downloads"
        """Beginnings of compressed layers, by digest: a pull that was cut goes on there."""
        self._sizes = self.folder / "sizes"
        self._logins = self.folder / "logins"
        self._scratch = self.folder / "scratch"
        self._backend = backend
        self._numbers = itertools.count()
        self._used: set[str] = set()
        self._opened = False
        self._name = ""

    async def open(self) -> None:
        """Make the folders and remove what killed builders left. Cheap from the second time on."""
        if self._opened:
            return
        keeper = await self._backend.keeper()
        own = (self.layers, self.locks, self.users, self.downloads, self._sizes, self._logins, self._scratch)
        for folder in (self.folder, *own):
            folder.mkdir(parents=True, exist_ok=True)
        self.layers.chmod(0o700)
        if keeper.ids.as_root:
            os.chown(self.layers, keeper.ids.keeper_uid, keeper.ids.keeper_gid)
        self._opened = True
        for layer in list(self.layers.glob(f"{_BUILDING}*")):
            if not self._owner_lives(layer.name.removeprefix(_BUILDING)):
                await self.remove(layer.name)
        for folder in self._scratch.iterdir():
            if not self._owner_lives(folder.name):
                shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for files on their way; should this process be killed, the next one removes it."""
        folder = self._scratch / f"{self._owner()}-{next(self._numbers)}"
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    async def keeper(self) -> Keeper:
        """The keeper of the back end."""
        return await self._backend.keeper()

    def find(self, key: str) -> Path | None:
        """A layer that is there, from now on in use by this process."""
        if key not in self._used:
            with self._collection_lock(fcntl.LOCK_SH):
                if not (self.layers / key).is_dir():
                    return None
                self._note_use(key)
        return self.layers / key

    async def obtain(self, key: str, make: Make) -> Path:
        """A layer, made now unless it exists; others who want it wait."""
        if found := self.find(key):
            return found
        async with self.locked(key):
            if found := self.find(key):
                return found
            building = self._building()
            try:
                await make(self.layers / building)
                self._put(building, key)
            finally:
                await asyncio.shield(self.remove(building))
        return self.layers / key

    @contextlib.asynccontextmanager
    async def temporary(self) -> AsyncIterator[Path]:
        """A path in place of a layer, for what is made there and removed at the end."""
        name = self._building()
        try:
            yield self.layers / name
        finally:
            await asyncio.shield(self.remove(name))

    def discard(self, key: str) -> str:
        """Take a layer out of use while `collecting`; the name under which it can then be removed."""
        name = self._building()
        (self.layers / key).rename(self.layers / name)
        (self.locks / key).unlink(missing_ok=True)
        (self._sizes / key).unlink(missing_ok=True)
        (self._logins / key).unlink(missing_ok=True)
        return name

    def note_size(self, key: str, size_bytes: int) -> None:
        """Remember how many bytes a layer's content has."""
        (self._sizes / key).write_text(str(size_bytes))

    def size_bytes(self, key: str) -> int:
        """How many bytes a layer's content has; 0 where that is not known."""
        try:
            return int((self._sizes / key).read_text())
        except (OSError, ValueError):
            return 0

    def note_login(self, key: str, login: str) -> None:
        """Remember that a layer was downloaded with a login; without one: that it is open to all."""
        if login:
            with (self._logins / key).open("a") as file:
                file.write(f"{login}\n")
        else:
            (self._logins / key).unlink(missing_ok=True)

    def open_to(self, key: str, login: str) -> bool:
        """Whether a layer may be taken from here by who has a login, or none, without downloading it."""
        try:
            return login in (self._logins / key).read_text().splitlines()
        except FileNotFoundError:
            return True

    async def remove(self, name: str) -> None:
        """Remove a layer, or the beginning of one, whatever users own its files."""
        if not os.path.lexists(self.layers / name):
            return
        keeper = await self._backend.keeper()
        with opened(self.layers) as parent:
            try:
                await keeper.remove(name, parent)
            except SandboxError:
                shutil.rmtree(self.layers / name)  # what is not the sandboxes' users' is ours

    def in_use(self) -> set[str]:
        """Layers that living processes use; the notes of dead ones are removed."""
        found: set[str] = set()
        for file in self.users.iterdir():
            if self._owner_lives(file.name):
                found |= set(file.read_text().split())
            else:
                file.unlink(missing_ok=True)
        return found

    def last_used(self, key: str) -> float:
        """When a process last began to use a layer."""
        for place in (self.locks / key, self.layers / key):
            with contextlib.suppress(OSError):
                return place.stat().st_mtime
        return 0.0

    @contextlib.contextmanager
    def collecting(self) -> Iterator[None]:
        """While it is held, no process begins to use a layer."""
        with self._collection_lock(fcntl.LOCK_EX):
            yield

    def _owner(self) -> str:
        """The name of this process, from now on held: what it begins is not removed while it lives."""
        name = owner.owner_name()
        if name != self._name or not owner.is_held(self.users / name):
            owner.hold(self.users / name)
            self._name = name
        return name

    def _owner_lives(self, name: str) -> bool:
        found = owner.owner_in(name)
        return bool(found) and owner.lives(found, self.users / found)

    def _building(self) -> str:
        return f"{_BUILDING}{self._owner()}-{next(self._numbers)}"

    def _put(self, building: str, key: str) -> None:
        with self._collection_lock(fcntl.LOCK_SH):
            try:
                (self.layers / building).rename(self.layers / key)
            except OSError:
                if not (self.layers / key).is_dir():  # else another made the same
                    raise
            self._note_use(key)

    def _note_use(self, key: str) -> None:
        (self.locks / key).touch()
        with (self.users / self._owner()).open("a") as file:
            file.write(f"{key}\n")
        self._used.add(key)

    @contextlib.contextmanager
    def _collection_lock(self, kind: int) -> Iterator[None]:
        with opened(self.folder / "lock", os.O_RDWR | os.O_CREAT) as fd:
            fcntl.flock(fd, kind)
            yield

    def locked(self, key: str) -> contextlib.AbstractAsyncContextManager[None]:
        """While it lasts, no other process has the lock of that name."""
        return alone(self.locks / key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What was removed, and what is left."""

    removed: int
    removed_bytes: int
    kept: int
    kept_bytes: int
    forgotten: tuple[str, ...] = ()
    """Names of images that are no longer here."""


async def collect_garbage(
    store: LayerStore,
    references: References,
    *,
    now: float,
    max_age_s: float = MAX_AGE_S,
    max_bytes: int = MAX_BYTES,
    imported: bool = False,
) -> Collected:
    """Remove layers older than the age, then the oldest until the rest fits; with `imported`, images too."""
    await store.open()
    sizes = await _sizes(store)
    trash: list[str] = []
    removed_bytes = 0
    with store.collecting():
        spared = store.in_use()
        if not imported:
            wanted = [image for image in references.all() if image.kept or image.source != "registry"]
            spared |= {layer for image in wanted for layer in image.layers}
        left = sum(sizes.values())
        for key in sorted(sizes, key=store.last_used):
            if key in spared or (now - store.last_used(key) <= max_age_s and left <= max_bytes):
                continue
            with contextlib.suppress(OSError):
                trash.append(store.discard(key))
                left -= sizes[key]
                removed_bytes += sizes[key]
    for name in trash:
        await store.remove(name)
    _remove_old_downloads(store, now - max_age_s)
    return Collected(
        removed=len(trash),
        removed_bytes=removed_bytes,
        kept=len(sizes) - len(trash),
        kept_bytes=sum(sizes.values()) - removed_bytes,
        forgotten=tuple(_forget(store, references)),
    )


def _remove_old_downloads(store: LayerStore, before: float) -> None:
    """What a pull left unfinished and was not continued for so long."""
    for file in store.downloads.iterdir():
        with contextlib.suppress(OSError):
            if file.stat().st_mtime <= before:
                file.unlink()


def _forget(store: LayerStore, references: References) -> Iterable[str]:
    for image in list(references.all()):
        if not all((store.layers / each).is_dir() for each in image.layers):
            references.remove(image.reference)
            yield image.reference


async def _sizes(store: LayerStore) -> dict[str, int]:
    """Bytes on disk of each layer; only the keeper may look into all of them."""
    keeper = await store.keeper()
    script = "cd /proc/self/fd/3 && exec du --summarize --block-size=1 -- *"
    with opened(store.layers) as folder:
        _, text, _ = await keeper.output(["sh", "-c", script], folder)
    rows = [line.split("\t", 1) for line in text.splitlines() if "\t" in line]
    return {name: int(size) for size, name in rows if size.isdigit() and (store.layers / name).is_dir()}
