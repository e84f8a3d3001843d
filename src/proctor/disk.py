"""Where on a disk folders go."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import time
from pathlib import Path
from secrets import token_hex

_SLOW_NS = 300_000
"""CPU time of making a folder: 50 to 130 µs, and 700 and more where thousands of files were just deleted."""
_TRIES = 8
_REST = 100
"""How many folders to make without looking, where no place was quick."""
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


class Places:
    """Makes many folders of one tree, each where the disk makes files fast.

    `spread` cannot know where much was deleted of late. But ext4 puts a folder near the one it is made in,
    and its files near it: so each is made in the one before and moved to its place, for as long as that is
    quick. Then other places are tried.
    """

    def __init__(self, top: str) -> None:
        self._top = top
        self._near = ""
        self._rest = 0

    def make(self, folder: str) -> None:
        """Make a folder below `top`; one that is there is left as it is."""
        if os.path.isdir(folder):  # noqa: PTH112 - once per trial
            return
        if self._near:
            took_ns = _make_in(self._near, folder)
            self._near = folder if took_ns < _SLOW_NS else ""
        elif self._rest:
            self._rest -= 1
            make_folders(folder)
        else:
            self._search(folder)

    def _search(self, folder: str) -> None:
        make_folders(os.path.dirname(folder))  # noqa: PTH120 - paths are text here
        spread(Path(self._top))
        for _ in range(_TRIES):
            if _make_in(self._top, folder) < _SLOW_NS:
                self._near = folder
                return
            with contextlib.suppress(OSError):
                os.rmdir(folder)  # noqa: PTH106 - same
        make_folders(folder)
        self._rest = _REST


def _make_in(parent: str, folder: str) -> int:
    """Make a folder in another and move it to where it belongs: the CPU time that took."""
    made = f"{parent}/.{token_hex(4)}"
    began_ns = time.thread_time_ns()
    try:
        os.mkdir(made)  # noqa: PTH102 - once per trial
        os.rename(made, folder)  # noqa: PTH104 - same
    except OSError:
        with contextlib.suppress(OSError):
            os.rmdir(made)  # noqa: PTH106 - same
        make_folders(folder)
    return time.thread_time_ns() - began_ns
