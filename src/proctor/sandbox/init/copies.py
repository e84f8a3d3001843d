"""Files in and out of a sandbox through its init, and folders made anew."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

from proctor.errors import SandboxError
from proctor.sandbox import transfer
from proctor.sandbox.base import Download, ExecResult
from proctor.sandbox.init.session import Session, last_line

_INLINE_BYTES = 1 << 18
_TRANSFER_S = 600.0


async def upload(session: Session, source: Path, target: str, *, spool: Path) -> None:
    """Copy a file, or a folder's content, to an absolute path inside."""
    async with packed([(source, target)], spool) as ((stream, place),):
        result = await builtin(session, ["receive", place], stdin=stream)
    if result.exit_code:
        raise SandboxError(f"upload to {target} in {session.name} failed: {last_line(result)}")


@contextlib.asynccontextmanager
async def packed(uploads: Sequence[tuple[Path, str]], spool: Path) -> AsyncIterator[list[tuple[int, str]]]:
    """The streams of some uploads, each with the path inside where it is to be unpacked."""
    found: list[tuple[int, str]] = []
    try:
        for source, target in uploads:
            if not target.startswith("/"):
                raise SandboxError(f"upload to {target!r}: the path inside must be absolute")
            place = target + source.name if target.endswith("/") and not source.is_dir() else target
            found.append((await _packed(source, spool), place.rstrip("/") or "/"))
        yield found
    finally:
        for stream, _ in found:
            os.close(stream)


async def download(
    session: Session, source: str, target: Path, *, max_bytes: int, quiet: bool = False
) -> Download:
    """Copy a file or a folder's content out; links, devices and the like are dropped."""
    unpacker = transfer.Unpacker(target, max_bytes)

    def take(stream: str, data: bytes) -> None:
        if stream == "stdout":
            unpacker.feed(data)

    try:
        argv = ["send", source, str(max_bytes)]
        result = await builtin(session, argv, on_output=take, quiet=quiet)
    finally:
        unpacker.close()
    if result.exit_code == 127 and not unpacker.result().files:
        raise FileNotFoundError(f"{source} does not exist in sandbox {session.name}")
    if unpacker.error or not unpacker.complete:
        reason = unpacker.error or last_line(result) or "the stream ended early"
        raise SandboxError(f"download of {source} from {session.name} failed: {reason}")
    return unpacker.result()


async def make_fresh(session: Session, paths: Sequence[str]) -> None:
    """Make each path an empty folder of root, whatever stood there."""
    result = await builtin(session, ["fresh", *paths])
    if result.exit_code:
        raise SandboxError(f"cannot make {', '.join(paths)} anew: {last_line(result)}")


async def builtin(session: Session, argv: Sequence[str], **options: Any) -> ExecResult:
    """Run something of the init's own, as root of the inside."""
    options.setdefault("timeout_s", _TRANSFER_S)
    return await session.run(argv, env={}, cwd="/", user="0:0", builtin=True, keep_bytes=4096, **options)


async def _packed(source: Path, spool: Path) -> int:
    """The stream of an upload, in memory when small."""
    pieces = transfer.pack(source)
    small = bytearray()
    for piece in pieces:
        small += piece
        if len(small) > _INLINE_BYTES:
            return await asyncio.to_thread(_spooled, bytes(small), pieces, spool)
    fd = os.memfd_create("upload", os.MFD_CLOEXEC)
    os.write(fd, small)
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
