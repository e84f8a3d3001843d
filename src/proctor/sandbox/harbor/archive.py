"""Files into and out of Harbor's environments as tar archives. What comes out was written by the inside."""

from __future__ import annotations

import stat
import struct
import tarfile
from collections.abc import Iterator
from pathlib import Path

from proctor.errors import HostError, SandboxError
from proctor.sandbox.base import Download
from proctor.sandbox.transfer import Unpacker

_ENTRY = struct.Struct("=cIqQH")
_BLOCK = 1 << 20


def write(source: Path, name: str, target: Path) -> None:
    """A file under a name, or the content of a folder, as root's; links stay links."""

    def owned(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        return member

    if not (stat.S_ISDIR(mode := source.lstat().st_mode) or stat.S_ISREG(mode)):
        raise SandboxError(f"{source} is neither a file nor a folder; it is not copied into a sandbox")
    with tarfile.open(target, "w") as archive:
        archive.add(source, arcname=name, filter=owned)


def unpack(archive: Path, target: Path, *, max_bytes: int, single: bool) -> Download:
    """Plain files and folders of an archive, below a folder or as the one file it is."""
    unpacker = Unpacker(target, max_bytes)
    try:
        with archive.open("rb") as stream, tarfile.open(fileobj=stream, mode="r|*") as members:
            for member in members:
                for piece in _entry(members, member, single=single):
                    unpacker.feed(piece)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise SandboxError(f"what the environment sent is no archive: {error}") from error
    finally:
        unpacker.close()
    if unpacker.error:
        raise (HostError if unpacker.by_host else SandboxError)(unpacker.error)
    return unpacker.result()


def _entry(members: tarfile.TarFile, member: tarfile.TarInfo, *, single: bool) -> Iterator[bytes]:
    """One member in the form that the unpacker checks and writes."""
    name = "" if single else member.name.removeprefix("./").strip("/")
    path = b"" if name == "." else name.encode(errors="surrogateescape")
    kind = b"D" if member.isdir() else b"F" if member.isreg() else b"X"
    data = members.extractfile(member) if member.isreg() else None
    yield _ENTRY.pack(kind, member.mode & 0o777, 0, member.size if data else 0, len(path)) + path
    while data and (piece := data.read(_BLOCK)):
        yield piece
