"""Blobs of another machine, kept in a folder here: the least recently used go when it is full.

Any number of processes share it without waiting for each other: a file appears whole, and who has opened one
goes on reading it after it was removed.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from proctor.disk import make_folders
from proctor.errors import StoreError

if TYPE_CHECKING:
    from io import BufferedReader

_log = logging.getLogger("proctor.store")
_PARTIAL = ".partial-"
_ABANDONED_S = 6 * 3600.0
"""A partial file this old was left by a process that no longer runs."""
_USED_S = 60.0
"""How exactly it is known when a file was last used."""
_LOOK_AGAIN = 0.05
"""The part of the limit that a process may add before it looks at what others have added."""
_FULL = 0.9
"""To which part of the limit a full cache is emptied."""

Identity = tuple[int, int, int, int]
"""Inode, size, and the times of the last change of content and of anything: who changes a file changes it."""


class BlobCache:
    """A folder of blobs. With a limit of 0 nothing is kept, and it is only where files arrive."""

    def __init__(self, folder: Path | None = None, most_bytes: int = 0) -> None:
        self.folder = folder or Path(tempfile.gettempdir())
        self.most_bytes = most_bytes if folder else 0
        self._sound: dict[str, Identity] = {}
        """Files whose digest was computed in this process, as they were then."""
        self._lock = threading.Lock()
        self._bytes: int | None = None
        self._added = 0

    def open(self, digest: str) -> BinaryIO | None:
        """A blob that is here. One whose content is no longer what it was is dropped, which is no error."""
        if not self.most_bytes:
            return None
        try:
            file = self._path(digest).open("rb")
        except OSError:
            return None
        try:
            if self._is_sound(file, digest):
                return file
        except OSError:
            pass
        except BaseException:
            file.close()
            raise
        file.close()
        _log.warning("%s: this copy of a blob was changed; it is fetched again", self._path(digest))
        self.drop(digest)
        return None

    @contextmanager
    def arriving(self) -> Iterator[BinaryIO]:
        """A file to be written and then given to `keep`; it is gone at the end of the block otherwise."""
        path = self.folder / f"{_PARTIAL}{os.getpid()}-{os.urandom(8).hex()}"
        try:
            if self.most_bytes:
                make_folders(str(self.folder))
            with path.open("x+b") as file:
                yield file
        except OSError as error:
            raise StoreError(
                f"{self.folder}: a blob cannot be written here ({error.strerror or error}); free some space "
                "or check who owns the folder"
            ) from error
        finally:
            with suppress(OSError):
                path.unlink()

    def keep(self, arrived: BinaryIO, digest: str) -> None:
        """Keep what arrived: its content has this digest. What is larger than the cache is not kept."""
        arrived.flush()
        size = os.fstat(arrived.fileno()).st_size
        if size > self.most_bytes:
            return
        target = self._path(digest)
        make_folders(str(target.parent))
        Path(arrived.name).replace(target)
        self._sound[digest] = _identity(arrived)
        self._make_room(size)

    def keep_bytes(self, data: bytes, digest: str) -> None:
        """Keep a blob that is in memory, unless it is here."""
        if len(data) > self.most_bytes or self._path(digest).exists():
            return
        with self.arriving() as file:
            file.write(data)
            self.keep(file, digest)

    def drop(self, digest: str) -> None:
        """Forget a blob."""
        self._sound.pop(digest, None)
        if self.most_bytes:
            with suppress(OSError):
                self._path(digest).unlink()

    def _path(self, digest: str) -> Path:
        return self.folder / digest[:2] / digest

    def _is_sound(self, file: BinaryIO, digest: str) -> bool:
        """Whether it is what its name says. Computed once by each process, and again when it was touched."""
        found = _identity(file)
        if self._sound.get(digest) != found:
            if hashlib.file_digest(cast("BufferedReader", file), "sha256").hexdigest() != digest:
                return False
            file.seek(0)
        if time.time() - found[2] / 1e9 > _USED_S:
            os.utime(file.fileno())
            found = _identity(file)
        self._sound[digest] = found
        return True

    def _make_room(self, size: int) -> None:
        with self._lock:
            self._added += size
            known = self._bytes
            alone = known is not None and self._added < self.most_bytes * _LOOK_AGAIN
            if alone and (known or 0) + self._added <= self.most_bytes:
                return
            self._bytes, self._added = self._shrink(), 0

    def _shrink(self) -> int:
        """Remove what was not used for longest, while it is too much; how much is left."""
        with (self.folder / ".lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            files = sorted(self._files())
            left = sum(size for _, size, _ in files)
            if left <= self.most_bytes:
                return left
            for _, size, path in files:
                if left <= self.most_bytes * _FULL:
                    break
                self.drop(path.name)
                left -= size
            return left

    def _files(self) -> Iterator[tuple[float, int, Path]]:
        now = time.time()
        for path in self.folder.glob(f"{_PARTIAL}*"):
            with suppress(OSError):
                if path.stat().st_mtime < now - _ABANDONED_S:
                    path.unlink()
        for path in self.folder.glob("??/*"):
            with suppress(OSError):
                about = path.stat()
                yield about.st_mtime, about.st_size, path


def _identity(file: BinaryIO) -> Identity:
    about = os.fstat(file.fileno())
    return about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns
