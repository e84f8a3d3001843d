"""What a process does once it is inside, for the keeper without a compiler: become a user, run, copy files.

The counterpart of `command.c` and `files.c`. Nothing may be imported after the root has changed.
"""

# Names are bytes, or nothing may be imported any more; pathlib serves neither.
# ruff: noqa: PTH101, PTH102, PTH103, PTH108, PTH112, PTH114, PTH120, PTH208, PTH211

from __future__ import annotations

import ctypes
import errno
import os
import resource
import shutil
import signal
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from proctor.sandbox.init.kernel import NEWUSER, call, setns

IDS = 65_536
_ENTRY = struct.Struct("=cIqQH")
_BLOCK = 1 << 16
_DEPTH = 128
_CAPABILITIES = struct.pack("=Ii", 0x20080522, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command to run, as asked for."""

    ident: str
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str = "/"
    user: str = "root"
    builtin: bool = False
    fresh: Sequence[str] = ()
    """Folders to delete and create again before it starts."""
    targets: Sequence[str] = ()
    """Where to unpack the last of its descriptors, one each."""


def fail(what: str, error: OSError | None = None) -> None:
    """Say why on standard error and leave."""
    reason = f": {error.strerror}" if error else ""
    os.write(2, f"proctor: {what}{reason}\n".encode(errors="replace"))
    os._exit(127 if isinstance(error, FileNotFoundError) or error is None else 126)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What holds for every command of a sandbox."""

    inner: int
    capabilities: int
    filter_bytes: bytes
    limits: Mapping[int, int]


def run_command(
    command: Command, fds: Sequence[int], bounds: Bounds, ready: Callable[[], object] = lambda: None
) -> None:
    """Become an ordinary process of the inside and run, calling `ready` first; does not return."""
    os.setsid()
    null = os.open("/dev/null", os.O_RDWR)
    plain = len(fds) - len(command.targets)
    out, err = fds[0], fds[1]
    stdin = fds[2] if plain > 2 else null
    for target, fd in enumerate(_away(stdin, out, err)):
        os.dup2(fd, target)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.umask(0o022)
    try:
        for what, wanted in {resource.RLIMIT_CORE: 0, **bounds.limits}.items():
            hard = resource.getrlimit(what)[1]
            value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(what, (value, value))
        setns(bounds.inner, NEWUSER)
        _make_ready(command, fds[plain:])
        ready()
        uid, gid, groups, home = _identity(command.user)
        os.closerange(3, 65_536)
        os.chdir(command.cwd)
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        _set_filter(bounds.filter_bytes)
        call("prctl", 8, 1, 0, 0, 0)  # keep capabilities over the next line
        os.setresuid(uid, uid, uid)
        _drop_capabilities(bounds.capabilities if uid == 0 or command.builtin else 0)
        if command.builtin:
            _builtin(command.argv)
            os._exit(0)
        _execute(command, {"HOME": home, **command.env})
    except OSError as error:
        fail(f"cannot run {command.argv[0]} in {command.cwd}", error)


def _make_ready(command: Command, streams: Sequence[int]) -> None:
    """As root of the inside: what the command is to find."""
    if command.fresh or command.targets:
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
    for path in command.fresh:
        _fresh(path)
    for stream, target in zip(streams, command.targets, strict=True):
        _receive(target, stream)


def _away(*fds: int) -> list[int]:
    """Copies beyond the standard descriptors, so that none is overwritten before its turn."""
    return [fd if fd > 2 else os.dup(fd) for fd in fds]


def _lines(path: str, fields: int) -> list[list[str]]:
    try:  # a FIFO in its place must not hold us up
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        text = os.read(fd, 1 << 20).decode(errors="replace")
        os.close(fd)
    except OSError:
        return []
    rows = [line.split(":") for line in text.splitlines()]
    return [row for row in rows if len(row) >= fields and _number(row[2]) is not None]


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and int(text) < IDS else None


def _identity(wanted: str) -> tuple[int, int, list[int], str]:
    user, colon, group = (wanted or "root").partition(":")
    number = _number(user)
    home = "/root" if user in {"root", "0"} else "/"
    uid, gid, name = number or 0, 0, ""
    for row in _lines("/etc/passwd", 6):
        if row[0] == user if number is None else int(row[2]) == number:
            uid, gid, name, home = int(row[2]), _number(row[3]) or 0, row[0], row[5]
            break
    else:
        if number is None and user != "root":
            fail(f"no user or group '{wanted}' inside")
    groups = _lines("/etc/group", 3)
    if not colon:
        more = [int(row[2]) for row in groups if len(row) > 3 and name and name in row[3].split(",")]
        return uid, gid, [gid, *more[:60]], home
    named = {row[0]: int(row[2]) for row in groups}
    found = _number(group)
    if found is None and group not in named:
        fail(f"no user or group '{wanted}' inside")
    gid = named[group] if found is None else found
    return uid, gid, [gid], home


def _set_filter(program: bytes) -> None:
    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))

    code = ctypes.create_string_buffer(program, len(program))
    described = Program(len(program) // 8, ctypes.addressof(code))
    call("prctl", 22, 2, ctypes.byref(described), 0, 0)


def _drop_capabilities(kept: int) -> None:
    # A change from root to another user took them out of effect.
    sets = bytearray(24)
    call("capget", _CAPABILITIES, (ctypes.c_char * 24).from_buffer(sets))
    _, low, _, _, high, _ = struct.unpack("=6I", sets)
    call("capset", _CAPABILITIES, struct.pack("=6I", low, low, 0, high, high, 0))
    for number in range(64):
        if not kept >> number & 1:
            try:
                call("prctl", 24, number, 0, 0, 0)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                break  # beyond the last one this kernel knows
    low, high = kept & 0xFFFFFFFF, kept >> 32
    call("capset", _CAPABILITIES, struct.pack("=6I", low, low, 0, high, high, 0))


def _execute(command: Command, env: Mapping[str, str]) -> None:
    name = command.argv[0]
    folders = [""] if "/" in name else env.get("PATH", "").split(":")
    problem: OSError = FileNotFoundError(2, os.strerror(2))
    for folder in folders:
        try:
            path = f"{folder}/{name}" if folder else name
            os.execve(path, list(command.argv), dict(env))  # noqa: S606 - a list, no shell
        except OSError as error:
            if not isinstance(error, FileNotFoundError | NotADirectoryError):
                problem = error
    fail(f"cannot run {name}", problem)


def _builtin(argv: Sequence[str]) -> None:
    if argv[0] == "receive":
        _receive(argv[1], 0)
    elif argv[0] == "send":
        _Sender(int(argv[2])).send(os.fsencode(argv[1]), b"", 0)
        _write(1, _ENTRY.pack(b"E", 0, 0, 0, 0))
    elif argv[0] == "fresh":
        for path in argv[1:]:
            _fresh(path)


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


class _Stream:
    """A file that is read from its beginning, also while others read it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._place = 0

    def read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = os.pread(self._fd, size - len(data), self._place)
            if not piece:
                fail("the stream ended early")
            data += piece
            self._place += len(piece)
        return bytes(data)


def _receive(target: str, fd: int) -> None:
    base, stream = os.fsencode(target), _Stream(fd)
    while True:
        kind, mode, mtime, size, path_size = _ENTRY.unpack(stream.read(_ENTRY.size))
        if kind == b"E":
            return
        path = stream.read(path_size)
        place = base + b"/" + path if path else base
        if kind == b"D":
            given = not path and os.path.isdir(place)  # /tmp stays as open as it was
            os.makedirs(place, exist_ok=True)
            if not given:
                os.chmod(place, mode & 0o777)
            continue
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if os.path.isdir(place) and not os.path.islink(place):
            shutil.rmtree(place)
        elif os.path.lexists(place):
            os.unlink(place)
        if kind == b"L":
            os.symlink(stream.read(size), place)
            continue
        file = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        while size:
            piece = stream.read(min(size, _BLOCK))
            _write(file, piece)
            size -= len(piece)
        os.fchmod(file, mode & 0o777)
        os.utime(file, (mtime, mtime))
        os.close(file)


class _Sender:
    """Writes entries of a tree to standard output until the bytes are used up."""

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes

    def send(self, place: bytes, path: bytes, depth: int) -> None:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
        try:
            fd = os.open(place, flags)
        except FileNotFoundError as error:
            if depth == 0:
                fail("missing", error)
            return
        except OSError:
            self._head(b"X", 0, 0, path)
            return
        status = os.fstat(fd)
        kind = status.st_mode & 0o170000
        if kind == 0o040000 and depth < _DEPTH:
            self._head(b"D", status.st_mode, 0, path)
            for name in os.listdir(os.fsencode(place)):
                self.send(place + b"/" + name, path + b"/" + name if path else name, depth + 1)
        elif kind == 0o100000 and status.st_size <= self._left:
            self._left -= status.st_size
            self._head(b"F", status.st_mode, status.st_size, path)
            size = status.st_size
            while size:
                piece = os.read(fd, min(size, _BLOCK)) or bytes(min(size, _BLOCK))
                _write(1, piece)
                size -= len(piece)
        else:
            self._head(b"X", 0, 0, path)
        os.close(fd)

    @staticmethod
    def _head(kind: bytes, mode: int, size: int, path: bytes) -> None:
        _write(1, _ENTRY.pack(kind, mode & 0o7777, 0, size, len(path)) + path)


def _fresh(path: str) -> None:
    parts = path.strip("/").split("/")
    for count in range(1, len(parts)):
        parent = "/" + "/".join(parts[:count])
        if os.path.lexists(parent) and (os.path.islink(parent) or not os.path.isdir(parent)):
            os.unlink(parent)
        os.makedirs(parent, exist_ok=True)
    if os.path.isdir(path) and not os.path.islink(path):
        sys.setrecursionlimit(100_000)
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
    os.mkdir(path)
    os.chmod(path, 0o777 if path.startswith("/logs/") else 0o755)  # any account may write logs
