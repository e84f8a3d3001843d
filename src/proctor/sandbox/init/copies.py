"""Files in and out of a sandbox through its init, and folders created again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proctor.errors import HostError, SandboxError
from proctor.sandbox import transfer
from proctor.sandbox.base import Download, ExecResult
from proctor.sandbox.init.session import Session, last_line
from proctor.sandbox.init.uploads import Stream

_TRANSFER_S = 600.0


async def upload(session: Session, stream: Stream) -> None:
    """Unpack a file, or a folder's content, at its path inside."""
    result = await builtin(session, ["receive", stream.target], stdin=stream.fd)
    if result.exit_code:
        raise SandboxError(f"upload to {stream.target} in {session.name} failed: {last_line(result)}")


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
        kind = HostError if unpacker.by_host else SandboxError
        raise kind(f"download of {source} from {session.name} failed: {reason}")
    return unpacker.result()


async def make_fresh(session: Session, paths: Sequence[str]) -> None:
    """Make each path an empty folder of root, whatever it was before."""
    result = await builtin(session, ["fresh", *paths])
    if result.exit_code:
        raise SandboxError(f"cannot create {', '.join(paths)} again: {last_line(result)}")


async def builtin(session: Session, argv: Sequence[str], **options: Any) -> ExecResult:
    """Run something of the init's own, as root of the inside."""
    options.setdefault("timeout_s", _TRANSFER_S)
    return await session.run(argv, env={}, cwd="/", user="0:0", builtin=True, keep_bytes=4096, **options)
