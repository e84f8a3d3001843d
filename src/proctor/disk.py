"""Where on a disk folders go, how all of something is written, how a small file of somebody else is read."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

_FLOOR_BYTES, _FLOOR_SHARE = 1 << 28, 0.05
_GET_FLAGS, _SET_FLAGS, _TOP_OF_HIERARCHY = 0x80086601, 0x40086602, 0x00020000


@contextlib.contextmanager
def opened(path: str | Path, flags: int = os.O_RDONLY | os.O_DIRECTORY) -> Iterator[int]:
    """A descriptor for as long as it is needed; of a folder, unless the flags say otherwise."""
    fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes | bytearray | memoryview) -> None:
    """Write all of it: on a nearly full disk the kernel takes a part, and only says so."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def nearly_full(folder: Path) -> bool:
    """Whether so little is left on the disk of a folder that what begins there would probably fail."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < min(_FLOOR_BYTES, _FLOOR_SHARE * found.f_blocks * found.f_frsize)


def is_lack_of_space(error: BaseException) -> bool:
    """Whether an error says that a disk, or what a user may have of it, is full, or was caused by that."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, OSError) and found.errno in {errno.ENOSPC, errno.EDQUOT}:
            return True
        found = found.__cause__
    return False


def read_small(path: Path, limit: int) -> bytes:
    """The content of a plain file of at most `limit` bytes; OSError for a device, a pipe, a larger file."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        about = os.fstat(fd)
        if stat.S_ISDIR(about.st_mode):
            raise IsADirectoryError(errno.EISDIR, "a folder, not a file", str(path))
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "not a plain file", str(path))
        pieces, left = [], limit + 1
        while left > 0 and (piece := os.read(fd, min(left, 1 << 20))):
            pieces.append(piece)
            left -= len(piece)
    finally:
        os.close(fd)
    if left <= 0:
        size = f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit >> 10} KiB"
        raise OSError(errno.EFBIG, f"larger than {size}", str(path))
    return b"".join(pieces)


def private_folder(folder: Path) -> None:
    """Make a folder that its owner alone may look into; one that is there stays as it is."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def make_folders(place: str | bytes) -> None:
    """A folder and those above it; with one call where only the last is missing."""
    try:
        os.mkdir(place)  # noqa: PTH102 - several per trial
    except FileExistsError:
        if not os.path.isdir(place):  # noqa: PTH112 - same
            raise
    except FileNotFoundError:
        os.makedirs(place, exist_ok=True)  # noqa: PTH103 - same


def spread(folder: Path) -> None:
    """Have ext4 place each folder made in this one somewhere else on the disk.

    Without a journal it passes over inodes deleted in the last minutes one by one, and sandboxes come and go
    in great numbers: making a file near them takes the longer the more of them there were (6 ms instead of 1
    for the start of a sandbox, a third of the harness's time for the files of a trial).
    """
    with contextlib.suppress(OSError), opened(folder) as fd:
        flags = bytearray(struct.calcsize("l"))
        fcntl.ioctl(fd, _GET_FLAGS, flags)
        fcntl.ioctl(fd, _SET_FLAGS, struct.pack("l", struct.unpack("l", flags)[0] | _TOP_OF_HIERARCHY))
