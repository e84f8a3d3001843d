"""Where on a disk folders go."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from pathlib import Path

_GET_FLAGS, _SET_FLAGS, _TOP_OF_HIERARCHY = 0x80086601, 0x40086602, 0x00020000


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
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            flags = bytearray(struct.calcsize("l"))
            fcntl.ioctl(fd, _GET_FLAGS, flags)
            fcntl.ioctl(fd, _SET_FLAGS, struct.pack("l", struct.unpack("l", flags)[0] | _TOP_OF_HIERARCHY))
        finally:
            os.close(fd)
