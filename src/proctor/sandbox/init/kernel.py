"""The few system calls that Python 3.11 does not offer, for the keeper without a compiler."""

# Names are bytes, or nothing may be imported any more; pathlib serves neither.
# ruff: noqa: PTH123

from __future__ import annotations

import ctypes
import os
from typing import Any

NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 4096, 16384, 1 << 18
MS_SLAVE = 1 << 19
_MOVE_MOUNT, _PIDFD_OPEN = 429, 434

_library = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: Any) -> int:
    """Call a function of the C library; OSError when it fails."""
    result = getattr(_library, name)(*arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return int(result)


def unshare(flags: int) -> None:
    """Enter new namespaces."""
    call("unshare", flags)


def setns(fd: int, kind: int) -> None:
    """Enter an existing namespace."""
    call("setns", fd, kind)


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """Mount a file system."""
    call(
        "mount",
        os.fsencode(source),
        os.fsencode(target),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        options.encode(),
    )


def move_mount(fd: int, target: str) -> None:
    """Attach a detached mount."""
    call("syscall", _MOVE_MOUNT, fd, b"", -100, os.fsencode(target), 4)


def die_with_parent() -> None:
    """Be killed when the parent ends."""
    call("prctl", 1, 9, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of what our descendants leave behind."""
    call("prctl", 36, 1, 0, 0, 0)


def be_dumpable() -> None:
    """Own our files in /proc again after a change of user."""
    call("prctl", 4, 1, 0, 0, 0)


def hide_arguments() -> None:
    """Blank the command line, which names folders of the host, because /proc shows it inside."""
    with open("/proc/self/stat") as file:
        words = file.read().rpartition(")")[2].split()
    start, end = int(words[45]), int(words[46])
    if 0 < start < end:
        ctypes.memset(start, 0, end - start)
