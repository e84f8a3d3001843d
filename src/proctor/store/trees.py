"""Folders as blobs: packed the same on any machine, and unpacked once per digest into a cache.

A packed folder holds names, bytes, links and which files can be executed: what a task's digest covers too.
Most runs find theirs stored already, so what packing needs is imported when it is.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO

from proctor.errors import StoreError
from proctor.model.record import Artifact
from proctor.store.blobs import Blobs

if TYPE_CHECKING:
    from tarfile import TarFile, TarInfo

_IN_MEMORY_BYTES = 8 << 20
"""A folder of more is packed into a file first."""
_PARTIAL = ".partial-"
_ABANDONED_S = 3600.0
"""What is being unpacked for longer was left by a process that no longer runs."""
_MEDIA_TYPE = "application/x-tar"

Members = Mapping[str, Path | bytes]
"""What to pack: the name below the packed folder → a file, a link or a folder, or a file's content."""


def put_tree(blobs: Blobs, members: Members, name: str, scratch: Path) -> Artifact:
    """Keep a folder as one blob. The same members give the same blob on any machine."""
    size = sum(len(each) if isinstance(each, bytes) else each.lstat().st_size for each in members.values())
    if size <= _IN_MEMORY_BYTES:
        packed = io.BytesIO()
        _pack(members, packed)
        return blobs.put_bytes(packed.getvalue(), name, _MEDIA_TYPE)
    import tempfile

    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=scratch, prefix=_PARTIAL) as file:
        _pack(members, file)
        file.flush()
        return blobs.put_file(Path(file.name), name, _MEDIA_TYPE)


def get_tree(blobs: Blobs, digest: str, cache: Path) -> Path:
    """The folder of a blob, unpacked below `cache`; not to be changed. Several may ask for it at once.

    It appears under its name complete or not at all, so what a killed process left is never used.
    """
    target = cache / digest
    if target.is_dir():
        return target
    import tempfile

    cache.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(cache)
    beside = Path(tempfile.mkdtemp(dir=cache, prefix=_PARTIAL))
    try:
        with blobs.open(digest) as blob:
            _unpack(_Hashing(blob), beside, digest)
        beside.chmod(0o755)
        with suppress(OSError):  # another was quicker, and has unpacked the same
            beside.rename(target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    if not target.is_dir():
        raise StoreError(f"{target}: the folder of blob {digest} cannot be made; check who owns {cache}")
    return target


def forget_tree(digest: str, cache: Path) -> None:
    """Remove an unpacked folder that is no longer what it was."""
    shutil.rmtree(cache / digest, ignore_errors=True)


def _pack(members: Members, target: IO[bytes]) -> None:
    import tarfile

    # Of the formats that Python writes this one has no times of its own, and any length of name.
    with tarfile.open(fileobj=target, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, member in sorted(members.items()):
            about = tarfile.TarInfo(name)
            about.mode = 0o644
            if isinstance(member, bytes):
                about.size = len(member)
                tar.addfile(about, io.BytesIO(member))
                continue
            found = member.lstat()
            if stat.S_ISLNK(found.st_mode):
                about.type, about.linkname = tarfile.SYMTYPE, os.fsdecode(member.readlink())
                tar.addfile(about)
            elif stat.S_ISDIR(found.st_mode):
                about.type, about.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(about)
            else:
                about.mode = 0o755 if found.st_mode & 0o100 else 0o644
                with member.open("rb") as file:
                    about.size = os.fstat(file.fileno()).st_size
                    tar.addfile(about, file)


def _unpack(source: _Hashing, folder: Path, digest: str) -> None:
    import tarfile

    try:
        with tarfile.open(fileobj=source, mode="r|") as tar:
            # Python has filters of its own from 3.11.4 on, and Debian 12 an older one.
            tar.extraction_filter = lambda member, _: member
            tar.extractall(folder, _checked(tar, folder))  # noqa: S202 - each is looked at
        while source.read(1 << 20):
            pass
    except (tarfile.TarError, EOFError) as error:
        raise StoreError(f"blob {digest}: it is not a packed folder ({error})") from error
    if source.hexdigest() != digest:
        raise StoreError(f"blob {digest}: its content is no longer what it was; restore it from a copy")


def _checked(tar: TarFile, folder: Path) -> Iterator[TarInfo]:
    """What is packed, one by one: each is looked at when those before it are there, which may be links."""
    from tarfile import TarError

    inside = os.path.realpath(folder)
    for about in tar:
        place = os.path.realpath(folder / about.name)
        if os.path.commonpath((inside, place)) != inside:
            raise TarError(f"{about.name!r} is outside of it")
        if not (about.isreg() or about.isdir() or about.issym()):
            raise TarError(f"{about.name!r} is no file, folder or link")
        about.mode &= 0o755
        yield about


def _remove_abandoned(cache: Path) -> None:
    for each in cache.glob(f"{_PARTIAL}*"):
        with suppress(OSError):
            if each.stat().st_mtime < time.time() - _ABANDONED_S:
                shutil.rmtree(each, ignore_errors=True)


class _Hashing(io.RawIOBase):
    """A stream that is hashed as it is read."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        piece = self._source.read(size)
        self._hash.update(piece)
        return piece

    def hexdigest(self) -> str:
        """Of all that was read."""
        return self._hash.hexdigest()
