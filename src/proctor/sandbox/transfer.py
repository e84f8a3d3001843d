"""Files into and out of a sandbox, as one stream of entries that a process inside writes or reads.

The stream that comes out was written by the inside, so every name, kind and size in it is checked here; on
the host nothing is ever followed, and nothing but plain files and folders is made.
"""

# Names are bytes, or nothing may be imported any more; pathlib serves neither.
# ruff: noqa: PTH115, PTH120

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import stat
import struct
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from proctor.disk import make_folders, write_all
from proctor.errors import SandboxError
from proctor.sandbox.base import Download
from proctor.threads import in_thread

_ENTRY = struct.Struct("=cIqQH")
_BLOCK = 1 << 16
_MOST_FILES = 200_000
_MOST_NAMES = 100
_PATH_MAX = 4096
_UNFIT = {errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ, errno.ENOTDIR, errno.EISDIR, errno.EEXIST}
"""A name that cannot be used here: such an entry is left out. Whatever else fails is this machine's doing."""
_AT_ONCE = 1 << 15
"""A stream so short is unpacked on the event loop: it has at most some thousand files."""
_MOST_BEHIND = 64 << 20
_INLINE_BYTES = 1 << 18
_INLINE_PIECES = 500
"""Of more files than this a thread makes the stream, however small they are."""
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


def pack(source: Path) -> Iterator[bytes]:
    """A file or the content of a folder, as the stream that `receive` reads."""
    status = source.lstat()
    if stat.S_ISDIR(status.st_mode):
        yield _header(b"D", status, 0, b"")
        yield from _pack_folder(os.fsencode(source), b"")
    elif stat.S_ISREG(status.st_mode):
        yield from _pack_file(os.fsencode(source), b"")
    else:
        raise SandboxError(f"{source} is neither a file nor a folder; it is not copied into a sandbox")
    yield _ENTRY.pack(b"E", 0, 0, 0, 0)


def _pack_folder(folder: bytes, prefix: bytes) -> Iterator[bytes]:
    with os.scandir(folder) as listing:
        entries = sorted(listing, key=lambda entry: entry.name)
    for entry in entries:
        path = prefix + entry.name
        if entry.is_symlink():
            text = os.readlink(entry.path)
            yield _ENTRY.pack(b"L", 0, 0, len(text), len(path)) + path + text
        elif entry.is_dir():
            yield _header(b"D", entry.stat(), 0, path)
            yield from _pack_folder(entry.path, path + b"/")
        elif entry.is_file():
            yield from _pack_file(entry.path, path)


def _pack_file(file: bytes, path: bytes) -> Iterator[bytes]:
    fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(fd)
        left = status.st_size
        head = _header(b"F", status, left, path)
        if left <= _BLOCK:
            yield head + os.read(fd, left).ljust(left, b"\0")
            return
        yield head
        while left:
            data = os.read(fd, min(left, _BLOCK)) or bytes(min(left, _BLOCK))
            left -= len(data)
            yield data
    finally:
        os.close(fd)


def _header(kind: bytes, status: os.stat_result, size: int, path: bytes) -> bytes:
    return _ENTRY.pack(kind, status.st_mode & 0o777, int(status.st_mtime), size, len(path)) + path


class Unpacker:
    """Writes a stream from the inside below a target; feed it bytes as they come."""

    def __init__(self, target: Path, max_bytes: int) -> None:
        self._target = os.fsencode(target)
        self._left = max_bytes
        self._buffer = bytearray()
        self._fd = -1
        self._file_left = 0
        self._files = self._bytes = self._dropped = 0
        self._names: list[str] = []
        self._made: set[bytes] = set()
        self.complete = False
        self.error = ""
        self.by_host = False
        """Whether this machine could not write, and not the stream was wrong."""

    def feed(self, data: bytes) -> None:
        """Take more of the stream; after an error the rest is ignored."""
        if self.error or self.complete:
            return
        self._buffer += data
        try:
            while self._step():
                pass
        except (OSError, ValueError) as error:
            self.error = str(error)
            self.by_host = isinstance(error, OSError)
            self.close()

    def result(self) -> Download:
        """What was written."""
        return Download(
            files=self._files, bytes=self._bytes, dropped=tuple(self._names), dropped_count=self._dropped
        )

    def close(self) -> None:
        """Let go of the file being written."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _step(self) -> bool:
        if self._file_left:
            piece = bytes(self._buffer[: self._file_left])
            if self._fd >= 0:
                write_all(self._fd, piece)
            del self._buffer[: len(piece)]
            self._file_left -= len(piece)
            if self._file_left:
                return False
            self.close()
            return True
        if len(self._buffer) < _ENTRY.size or self.complete:
            return False
        kind, mode, _, size, path_size = _ENTRY.unpack_from(self._buffer)
        if path_size >= _PATH_MAX:
            raise ValueError("a path in the download is too long")
        if len(self._buffer) < _ENTRY.size + path_size:
            return False
        path = bytes(self._buffer[_ENTRY.size : _ENTRY.size + path_size])
        del self._buffer[: _ENTRY.size + path_size]
        self._entry(kind, mode, size, path)
        return True

    def _entry(self, kind: bytes, mode: int, size: int, path: bytes) -> None:
        if kind == b"E":
            self.complete = True
            return
        if b"\0" in path or (path and any(part in (b"", b".", b"..") for part in path.split(b"/"))):
            raise ValueError(f"the download names {path!r}, which is not a path below it")
        if kind not in (b"D", b"F", b"X"):
            raise ValueError(f"the download has an entry of unknown kind {kind!r}")
        target = self._target + b"/" + path if path else self._target
        room = self._files + self._dropped < _MOST_FILES
        if kind == b"D" and room and self._makes(target):
            return
        if kind == b"F" and room and size <= self._left and self._creates(target, path, mode):
            self._left -= size
            self._files += 1
            self._bytes += size
            self._file_left = size
            if not size:
                self.close()
            return
        self._dropped += 1
        self._file_left = size if kind == b"F" else 0
        if len(self._names) < _MOST_NAMES:
            self._names.append(os.fsdecode(path))

    def _creates(self, target: bytes, path: bytes, mode: int) -> bool:
        """Begin a file; False when its name cannot be used here."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            if path:
                self._make(os.path.dirname(target))
            self._fd = os.open(target, flags, 0o600)
        except OSError as error:
            if error.errno not in _UNFIT:
                raise
            return False
        os.fchmod(self._fd, 0o600 | (mode & 0o111 and 0o100) | (mode & 0o044))
        return True

    def _makes(self, folder: bytes) -> bool:
        try:
            self._make(folder)
        except OSError as error:
            if error.errno not in _UNFIT:
                raise
            return False
        return True

    def _make(self, folder: bytes) -> None:
        if folder not in self._made:
            make_folders(folder)
            self._made.add(folder)


class Unpacking:
    """Feeds an unpacker, a long stream in a thread: thousands of files in a block would stop everything."""

    def __init__(self, unpacker: Unpacker) -> None:
        self._unpacker = unpacker
        self._begin = bytearray()
        self._pool: ThreadPoolExecutor | None = None
        self._taken = self._fed = 0

    def take(self, data: bytes) -> None:
        """More of the stream, from the event loop."""
        if self._pool is None:
            self._begin += data
            if len(self._begin) <= _AT_ONCE:
                return
            self._pool = ThreadPoolExecutor(1, "proctor-unpack")
            data = bytes(self._begin)
        if self._taken - self._fed > _MOST_BEHIND:
            self.give_up(f"{_MOST_BEHIND >> 20} MiB came that could not be written yet")
            return
        self._taken += len(data)
        self._pool.submit(self._feed, data)

    def give_up(self, why: str) -> None:
        """Write no more."""
        self._unpacker.error = self._unpacker.error or why

    async def end(self) -> None:
        """All has come; returns when it is written."""
        if self._pool is None:
            self._unpacker.feed(bytes(self._begin))
            self._unpacker.close()
            return
        done = self._pool.submit(self._unpacker.close)
        self._pool.shutdown(wait=False)
        try:
            await asyncio.wrap_future(done)
        except asyncio.CancelledError:
            self.give_up("the download was given up")
            raise

    def _feed(self, data: bytes) -> None:
        self._unpacker.feed(data)
        self._fed += len(data)


class Stream(NamedTuple):
    """A file to read from its beginning, and the path inside where its entries are to be unpacked."""

    fd: int
    target: str


@contextlib.asynccontextmanager
async def packed(sources: Sequence[tuple[Path, str]], spool: Path) -> AsyncIterator[list[Stream]]:
    """Files and contents of folders as streams for their targets; `spool` takes what is too large."""
    streams: list[Stream] = []
    try:
        for source, target in sources:
            streams.append(await _stream(source, target, spool))
        yield streams
    finally:
        for each in streams:
            os.close(each.fd)


async def _stream(source: Path, target: str, spool: Path) -> Stream:
    if not target.startswith("/"):
        raise SandboxError(f"upload to {target!r}: the path inside must be absolute")
    if target.endswith("/") and not stat.S_ISDIR(source.lstat().st_mode):
        target += source.name
    target = target.rstrip("/") or "/"
    pieces = pack(source)
    small = bytearray()
    for number, piece in enumerate(pieces, 1):
        small += piece
        if len(small) > _INLINE_BYTES or number == _INLINE_PIECES:
            return Stream(await in_thread(_spooled, bytes(small), pieces, spool), target)
    return Stream(sealed(small), target)


def sealed(data: bytes | bytearray) -> int:
    """A descriptor in memory that holds this, and that nobody inside can change."""
    fd = os.memfd_create("sealed", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    write_all(fd, data)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return _read_only(fd)


def _spooled(first: bytes, rest: Iterator[bytes], folder: Path) -> int:
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(first)
        for piece in rest:
            file.write(piece)
        file.flush()
        return _read_only(os.dup(file.fileno()))


def _read_only(fd: int) -> int:
    """The same file from its beginning: what goes inside must not be writable there."""
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(fd)
