"""Large files, addressed by content: written once, completely or not at all, also by concurrent writers.

A blob's place follows from its digest alone, so a hostile name never becomes a path.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Protocol
from urllib.parse import unquote

from proctor.disk import make_folders, private_folder, spread
from proctor.errors import NotFoundError, StoreError, UsageError
from proctor.model.record import Artifact
from proctor.settings import Settings

if TYPE_CHECKING:
    from proctor.store.blob_cache import BlobCache

_DIGEST = re.compile(r"[0-9a-f]{64}")
_PIECE_BYTES = 1 << 20
_PARTIAL = ".partial-"
ABANDONED_S = 3600.0
"""A partial file this old was left by a process that no longer runs."""


class DamagedBlobError(StoreError):
    """A blob's content is not what its digest says."""


class Stored(NamedTuple):
    """A blob as a place lists it."""

    digest: str
    size_bytes: int
    age_s: float
    """Since it was last put, by the clock of the place itself: writers' clocks differ."""


class Blobs(Protocol):
    """Where blobs go. `open_blobs` gives one for an address."""

    where: str
    """Its address, for messages."""
    remote: bool
    """Whether a call waits for another machine: not for the thread of an event loop."""

    def put_bytes(self, data: bytes, name: str, media_type: str = ...) -> Artifact:
        """Keep some bytes; the same bytes are kept once, and count as just put."""

    def put_file(self, path: Path, name: str, media_type: str = ...) -> Artifact:
        """Keep a file's content."""

    def open(self, digest: str, *, parts: bool = ...) -> BinaryIO:
        """Read a blob. With `parts` some of a large one may be all that is read, and then fetched."""

    def copy_to(self, digest: str, target: BinaryIO) -> None:
        """Write a blob into an empty file. It is not kept in a cache: who copies it has it."""

    def has(self, digest: str, *, keep: bool = ...) -> bool:
        """Whether it is there. With `keep` it counts as just put: somebody is about to refer to it."""

    def list(self) -> Iterator[Stored]:
        """Every blob."""

    def remove(self, digest: str, *, unless_younger_s: float = ...) -> bool:
        """Remove a blob that was not put within that time, also not during this call; whether it is gone."""


def open_blobs(url: str | Path, *, cache: BlobCache | None = None, ca_bundle: str = "") -> Blobs:
    """The blobs at a path, `file:///…` or `s3://…`; those of another machine are kept in the cache."""
    scheme, separator, rest = str(url).partition("://")
    if not separator:
        return FolderBlobs(Path(url))
    if scheme == "file" and rest.startswith("/"):
        return FolderBlobs(Path(unquote(rest)))
    if scheme == "s3":
        from proctor.store.s3.address import parse
        from proctor.store.s3.blobs import S3Blobs
        from proctor.store.s3.bucket import Bucket

        return S3Blobs(Bucket(parse(str(url)), ca_bundle), cache)
    raise UsageError(f"'{url}' is not a place for blobs: give a folder, file:///FOLDER or s3://BUCKET/PREFIX")


def blobs_of(settings: Settings) -> Blobs:
    """The blobs that the settings name."""
    if "://" not in settings.blobs_url:
        return open_blobs(settings.blobs_url)
    from proctor.store.blob_cache import BlobCache

    cache = BlobCache(settings.cache_dir / "blobs", settings.blob_cache_bytes)
    return open_blobs(settings.blobs_url, cache=cache, ca_bundle=settings.ca_bundle)


def check_digest(digest: str) -> None:
    """Raise NotFoundError for what cannot be the digest of a blob."""
    if not _DIGEST.fullmatch(digest):
        raise NotFoundError(f"{digest!r} is not the digest of a blob: 64 hexadecimal digits")


def local_file(blobs: Blobs, digest: str, scratch: Path) -> Path:
    """A blob as a file on this machine, not to be changed; one from elsewhere is copied below `scratch`."""
    if isinstance(blobs, FolderBlobs):
        return blobs.path(digest)
    copy = scratch / digest
    if not copy.is_file():
        scratch.mkdir(parents=True, exist_ok=True)
        beside = scratch / f"{_PARTIAL}{os.urandom(8).hex()}"
        with blobs.open(digest) as source, beside.open("wb") as target:
            shutil.copyfileobj(source, target, _PIECE_BYTES)
        beside.replace(copy)
    return copy


class FolderBlobs:
    """Blobs in a folder: `ab/abcd…`, one level deep; a second one would be a folder made for every blob."""

    remote = False

    def __init__(self, root: Path, *, sync: bool = False) -> None:
        self.root = root
        self.where = self._base = str(root)
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

    def open(self, digest: str, *, parts: bool = False) -> BinaryIO:
        """Read a blob."""
        del parts
        try:
            return self.path(digest).open("rb")
        except FileNotFoundError:
            raise NotFoundError(f"no blob {digest} in {self.root}") from None

    def copy_to(self, digest: str, target: BinaryIO) -> None:
        """Write a blob into an empty file."""
        with self.open(digest) as source:
            shutil.copyfileobj(source, target, _PIECE_BYTES)

    def path(self, digest: str) -> Path:
        """Where a blob is, or would be."""
        check_digest(digest)
        return Path(self._place(digest))

    def _place(self, digest: str) -> str:
        return f"{self._base}/{digest[:2]}/{digest}"

    def has(self, digest: str, *, keep: bool = False) -> bool:
        """Whether it is there; with `keep` it counts as just put."""
        found = self.path(digest).is_file()
        return self._touch(digest) if found and keep else found

    def verify(self) -> Iterator[str]:
        """The digests of blobs whose content is no longer what it was."""
        for path in self._all():
            with path.open("rb") as blob:
                if hashlib.file_digest(blob, "sha256").hexdigest() != path.name:
                    yield path.name

    def list(self) -> Iterator[Stored]:
        """Every blob. What writers left behind when they were killed is removed on the way."""
        if not self.root.is_dir():
            return
        now = self._now()
        for path in self.root.glob(f"{_PARTIAL}*"):
            if _stat(path)[1] < now - ABANDONED_S:
                _unlink(path)
        for path in self._all():
            size, touched = _stat(path)
            yield Stored(path.name, size, now - touched)

    def remove(self, digest: str, *, unless_younger_s: float = 0.0) -> bool:
        """Remove a blob that was not put within that time.

        Somebody on another machine may put it at this very moment, which only renews its time. So it is set
        aside first: who comes later finds nothing and writes it again, who came before is seen by its time.
        """
        path = self.path(digest)
        aside = self.root / f"{_PARTIAL}removed-{digest}-{os.urandom(4).hex()}"
        try:
            path.rename(aside)
        except OSError:
            return False
        if unless_younger_s and self._now() - _stat(aside)[1] < unless_younger_s:
            aside.replace(path)
            return False
        return _unlink(aside)

    def _now(self) -> float:
        """The time on the machine that keeps the folder, which sets the times of files."""
        with self._partial() as probe:
            found = os.fstat(probe.fileno()).st_mtime
        _unlink(Path(probe.name))
        return found

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
                private_folder(self.root.parent)
                spread(self.root.parent)
                private_folder(self.root)
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
