"""Large files, addressed by content: written once, completely or not at all, also by concurrent writers.

A blob's place follows from its digest alone, so a hostile name never becomes a path.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from proctor.disk import make_folders, spread
from proctor.errors import NotFoundError, StoreError
from proctor.model.record import Artifact

_DIGEST = re.compile(r"[0-9a-f]{64}")
_PIECE_BYTES = 1 << 20
_PARTIAL = ".partial-"
_ABANDONED_S = 3600.0
"""A partial file this old was left by a process that no longer runs."""


class Blobs(Protocol):
    """Where blobs go; `FolderBlobs` is one such place."""

    def put_bytes(self, data: bytes, name: str, media_type: str = ...) -> Artifact:
        """Keep some bytes."""

    def put_file(self, path: Path, name: str, media_type: str = ...) -> Artifact:
        """Keep a file's content."""

    def open(self, digest: str) -> BinaryIO:
        """Read a blob."""

    def has(self, digest: str) -> bool:
        """Whether it is there."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection removed and what remains."""

    removed: int
    removed_bytes: int
    kept: int
    kept_bytes: int


class FolderBlobs:
    """Blobs in a folder: `ab/abcd…`, one level deep; a second one would be a folder made for every blob."""

    def __init__(self, root: Path, *, sync: bool = False) -> None:
        self.root = root
        self._base = str(root)
        self._sync = sync
        self._made = False

    def put_bytes(self, data: bytes, name: str, media_type: str = "application/octet-stream") -> Artifact:
        """Keep some bytes; the same bytes are kept once."""
        digest = hashlib.sha256(data).hexdigest()
        if not self._touch(digest):
            with self._partial() as partial:
                partial.write(data)
                self._settle(partial, digest)
        return Artifact(name=name, digest=digest, size_bytes=len(data), media_type=media_type)

    def put_file(self, path: Path, name: str, media_type: str = "application/octet-stream") -> Artifact:
        """Keep a file's content as it is while it is read; it may be larger than memory."""
        with path.open("rb") as source:
            piece = source.read(_PIECE_BYTES)
            if len(piece) < _PIECE_BYTES:
                return self.put_bytes(piece, name, media_type)
            source.seek(0)
            return self._put_stream(source, name, media_type)

    def _put_stream(self, source: BinaryIO, name: str, media_type: str) -> Artifact:
        hasher, size = hashlib.sha256(), 0
        with self._partial() as partial:
            while piece := source.read(_PIECE_BYTES):
                hasher.update(piece)
                size += len(piece)
                partial.write(piece)
            digest = hasher.hexdigest()
            if self._touch(digest):
                _unlink(Path(partial.name))
            else:
                self._settle(partial, digest)
        return Artifact(name=name, digest=digest, size_bytes=size, media_type=media_type)

    def open(self, digest: str) -> BinaryIO:
        """Read a blob."""
        try:
            return self.path(digest).open("rb")
        except FileNotFoundError:
            raise NotFoundError(f"no blob {digest} in {self.root}") from None

    def path(self, digest: str) -> Path:
        """Where a blob is, or would be."""
        if not _DIGEST.fullmatch(digest):
            raise NotFoundError(f"{digest!r} is not the digest of a blob: 64 hexadecimal digits")
        return Path(self._place(digest))

    def _place(self, digest: str) -> str:
        return f"{self._base}/{digest[:2]}/{digest}"

    def has(self, digest: str) -> bool:
        """Whether it is there."""
        return self.path(digest).is_file()

    def size_bytes(self) -> int:
        """What all blobs weigh."""
        return sum(_stat(path)[0] for path in self._all())

    def verify(self) -> Iterator[str]:
        """The digests of blobs whose content is no longer what it was."""
        for path in self._all():
            with path.open("rb") as blob:
                if hashlib.file_digest(blob, "sha256").hexdigest() != path.name:
                    yield path.name

    def remove(self, digests: Iterable[str], *, grace_s: float = 0.0, now: float | None = None) -> int:
        """Remove these blobs, save those put within `grace_s`: an attempt may be about to refer to them."""
        newest = (time.time() if now is None else now) - grace_s
        removed = 0
        for digest in digests:
            path = self.path(digest)
            if path.is_file() and (not grace_s or _stat(path)[1] < newest):
                removed += _unlink(path)
        return removed

    def collect_garbage(
        self, live: AbstractSet[str], *, grace_s: float = 3600.0, now: float | None = None
    ) -> Collected:
        """Remove every blob that nothing refers to and that was not put within the last `grace_s`."""
        now = time.time() if now is None else now
        removed = removed_bytes = kept = kept_bytes = 0
        for path in self._all():
            size, touched = _stat(path)
            if path.name not in live and touched <= now - grace_s and _unlink(path):
                removed, removed_bytes = removed + 1, removed_bytes + size
            else:
                kept, kept_bytes = kept + 1, kept_bytes + size
        for path in self.root.glob(f"{_PARTIAL}*"):
            if _stat(path)[1] < now - _ABANDONED_S:
                _unlink(path)
        return Collected(removed, removed_bytes, kept, kept_bytes)

    def _all(self) -> Iterator[Path]:
        return (path for path in self.root.glob("??/*") if _DIGEST.fullmatch(path.name))

    def _touch(self, digest: str) -> bool:
        """Whether the blob is there; if so it counts as just put, which keeps a collector away from it."""
        try:
            os.utime(self._place(digest))
        except OSError:
            return False
        return True

    @contextmanager
    def _partial(self) -> Iterator[BinaryIO]:
        """A temporary file beside the blobs; removed after an error, else the caller renames it."""
        path = f"{self._base}/{_PARTIAL}{os.getpid()}-{os.urandom(8).hex()}"
        try:
            if not self._made:
                self.root.parent.mkdir(parents=True, exist_ok=True)
                spread(self.root.parent)
                self.root.mkdir(exist_ok=True)
                self._made = True
            with open(path, "xb") as partial:  # noqa: PTH123 - several per trial
                yield partial
        except BaseException as error:
            _unlink(Path(path))
            if not isinstance(error, OSError):
                raise
            raise StoreError(
                f"{self.root}: a blob cannot be written ({error.strerror or error}); free some space or "
                "check who owns the folder. What was stored before is intact"
            ) from error

    def _settle(self, partial: BinaryIO, digest: str) -> None:
        partial.flush()
        if self._sync:
            os.fsync(partial.fileno())
        target = self._place(digest)
        try:
            os.replace(partial.name, target)  # noqa: PTH105 - several per trial
        except FileNotFoundError:
            make_folders(f"{self._base}/{digest[:2]}")
            os.replace(partial.name, target)  # noqa: PTH105 - same


def _stat(path: Path) -> tuple[int, float]:
    """Size and time of the last put; what another process removed meanwhile weighs nothing."""
    try:
        found = path.stat()
    except OSError:
        return 0, float("inf")
    return found.st_size, found.st_mtime


def _unlink(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True
