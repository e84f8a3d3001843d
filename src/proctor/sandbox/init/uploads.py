"""What goes into the sandboxes of one back end: packed as streams, and what does not change packed once."""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from proctor.errors import SandboxError
from proctor.sandbox import transfer

_INLINE_BYTES = 1 << 18
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_MOST_KEPT = 32
"""Of how many sources the stream is kept; none is larger than what is packed in memory."""


class Stream(NamedTuple):
    """A file to read from its beginning, and the path inside where its entries are to be unpacked."""

    fd: int
    target: str
    kept: bool = False
    """Whether others will use the same file."""


class Uploads:
    """Packs files and folders. Who takes a stream gives it back."""

    def __init__(self, spool: Callable[[], Path]) -> None:
        """`spool` says where what is too large for memory is packed."""
        self._spool = spool
        self._kept: dict[tuple[str, int, int], int] = {}

    async def stream(self, source: Path, target: str, *, fixed: bool = False) -> Stream:
        """The stream of a file, or of a folder's content. `fixed`: as it was when first asked for."""
        if not target.startswith("/"):
            raise SandboxError(f"upload to {target!r}: the path inside must be absolute")
        place = str(source)
        status = os.lstat(place)
        if target.endswith("/") and not stat.S_ISDIR(status.st_mode):
            target += source.name
        sign = (place, status.st_ino, status.st_mtime_ns)
        kept = self._kept.get(sign, -1) if fixed else -1
        fd = kept if kept >= 0 else await self._packed(source, sign if fixed else None)
        return Stream(fd, target.rstrip("/") or "/", kept=fixed and self._kept.get(sign) == fd)

    async def streams(self, sources: Sequence[tuple[Path, str]]) -> list[Stream]:
        """The streams of several that are fixed."""
        found: list[Stream] = []
        try:
            for source, target in sources:
                found.append(await self.stream(source, target, fixed=True))
        except BaseException:
            self.give_back(found)
            raise
        return found

    def give_back(self, streams: Sequence[Stream]) -> None:
        """Let go of streams."""
        for each in streams:
            if not each.kept:
                os.close(each.fd)

    def close(self) -> None:
        """Forget what was kept."""
        while self._kept:
            os.close(self._kept.popitem()[1])

    async def _packed(self, source: Path, sign: tuple[str, int, int] | None) -> int:
        pieces = transfer.pack(source)
        small = bytearray()
        for piece in pieces:
            small += piece
            if len(small) > _INLINE_BYTES:
                return await asyncio.to_thread(_spooled, bytes(small), pieces, self._spool())
        fd = _in_memory(small)
        if sign and len(self._kept) < _MOST_KEPT:
            self._kept[sign] = fd
        return fd


def _in_memory(data: bytearray) -> int:
    """Sealed: others may get the same file, so it must never change."""
    fd = os.memfd_create("upload", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, data)
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
