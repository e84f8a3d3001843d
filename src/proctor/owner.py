"""Who owns what on a machine: a name that no other process has, and a lock that its process holds.

A process id means nothing in another PID namespace, where its process cannot be seen. A lock on an open file
is released by the kernel when its process ends, however it ended, and any process that sees the file can ask.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from proctor.processes import own_start_ticks, start_ticks

_NAME = re.compile(r"(?P<pid>\d+)-(?P<ticks>\d+)(?:-(?P<place>[0-9a-f]{8}))?(?:-\d{1,7})?")
"""A name of `owner_name`, of an earlier version without a place, or either with a number behind it."""
_TRIES, _BETWEEN_S = 20, 0.005
_held: dict[str, tuple[int, int]] = {}
"""Path of a lock → its descriptor, and how many holds of this process there are."""


@cache
def boot_id() -> str:
    """Which boot of the machine this is; empty where the kernel does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def place_id() -> str:
    """Whose process ids these are: one PID namespace during one boot of one machine."""
    facts = f"{boot_id()} {process_namespace()}"
    return hashlib.sha256(facts.encode()).hexdigest()[:8]


def process_namespace() -> int:
    """The number of this process's PID namespace; 0 where the kernel does not tell."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def owner_name() -> str:
    """A name that only this process has: process id, its start, and whose process ids these are."""
    return f"{os.getpid()}-{own_start_ticks()}-{place_id()}"


def owner_in(name: str) -> str:
    """The owner's name in the name of something it made, which may have a number behind it; empty if none."""
    found = _NAME.fullmatch(name)
    return "-".join(filter(None, (found["pid"], found["ticks"], found["place"]))) if found else ""


def process_lives(name: str) -> bool | None:
    """Whether the process of a name lives, as its id tells; None when its id cannot be seen here."""
    found = _NAME.fullmatch(name)
    if not found or not sees_own_ids() or found["place"] not in {None, place_id()}:
        return None
    return start_ticks(int(found["pid"])) == int(found["ticks"])


def sees_own_ids() -> bool:
    """Whether /proc shows this process's own PID namespace: after `unshare --pid` it may show another."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())  # noqa: PTH115 - text, not a path
    except OSError:
        return False


def lives(name: str, lock: Path) -> bool:
    """Whether the owner of a name lives. Where nothing can tell, it does: its things are left alone."""
    held = is_held(lock)
    seen = process_lives(name)
    if held is None:
        return seen is not False
    return held or seen is True


def is_held(lock: Path) -> bool | None:
    """Whether a process holds a lock; None when there is no such file, or it cannot be locked here."""
    if held_here(lock):
        return True
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    else:
        return False
    finally:
        os.close(fd)


def held_here(lock: Path) -> bool:
    """Whether this very process holds a lock."""
    return str(lock) in _held


def hold(lock: Path) -> bool:
    """Hold a lock, on a file that is made or on a folder that exists, until `release` or the process's end.

    False when another process holds it. A file system without locks counts as held: nothing better is known.
    """
    known = _held.get(str(lock))
    if known and _is_at(known[0], lock):
        _held[str(lock)] = known[0], known[1] + 1
        return True
    if known:
        os.close(_held.pop(str(lock))[0])
    flags = os.O_RDONLY if lock.is_dir() else os.O_RDWR | os.O_CREAT
    while True:
        fd = os.open(lock, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if not _locked(fd):
            os.close(fd)
            return False
        if _is_at(fd, lock):
            _held[str(lock)] = fd, 1
            return True
        os.close(fd)  # another removed the file between our opening and our locking it


def _locked(fd: int) -> bool:
    """Lock a file, with patience for those who only ask whether it is locked: they hold it for an instant."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_BETWEEN_S)
        except OSError:
            return True
        else:
            return True
    return False


def release(lock: Path, *, remove: bool = False) -> None:
    """Let go of a lock, with `remove` also of its file. Nothing happens when it is not held here."""
    fd, holds = _held.get(str(lock), (-1, 0))
    if holds > 1:
        _held[str(lock)] = fd, holds - 1
        return
    if fd < 0:
        return
    if remove:
        with suppress(OSError):
            lock.unlink()
    os.close(_held.pop(str(lock))[0])


@contextmanager
def held_if_free(lock: Path, *, remove: bool = False) -> Iterator[bool]:
    """Hold a lock while something is done that only one process may do; whether it was free."""
    try:
        free = not held_here(lock) and hold(lock)
    except OSError:
        free = False
    try:
        yield free
    finally:
        if free:
            release(lock, remove=remove)


def _is_at(fd: int, path: Path) -> bool:
    try:
        ours, there = os.fstat(fd), path.stat(follow_symlinks=False)
    except OSError:
        return False
    return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)


def _forget() -> None:
    """After a fork: the locks are the parent's, and must not outlive it here."""
    for fd, _ in _held.values():
        with suppress(OSError):
            os.close(fd)
    _held.clear()


os.register_at_fork(after_in_child=_forget)
