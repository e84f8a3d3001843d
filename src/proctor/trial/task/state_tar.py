"""Read a saved state, which is a tar written by our keeper or by GNU tar about hostile files.

The keeper writes plain headers only, and a reader of just those is several times as fast as the standard
library's, which matters because every attempt ends here. At the first header of another kind the standard
library takes over from the beginning.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

_BLOCK = 512
_MOST_ATTRIBUTES = 1 << 16
_KINDS = {b"0": "file", b"1": "link", b"2": "link", b"3": "device", b"5": "folder", b"6": "pipe"}


@dataclass(slots=True)
class Member:
    """One entry of the archive; `read` works until the next one is asked for."""

    name: str
    kind: str
    """file, folder, link, device (of characters, which is how a layer marks a removed file), pipe"""
    size: int
    read: Callable[[], bytes]
    opaque: bool = False
    """A folder that hides what the image has there."""


class _NotPlainError(Exception):
    """A header that only a complete reader understands."""


def members(state: Path | bytes) -> Iterator[Member]:
    """Every entry, in order; of a file, or of one that was read already."""
    try:
        with io.BytesIO(state) if isinstance(state, bytes) else state.open("rb") as stream:
            for name, kind, size, start, opaque in list(_headers(stream)):
                yield Member(name, kind, size, partial(_content, stream, start, size), opaque)
    except _NotPlainError:
        yield from _any(state)


def _headers(stream: BinaryIO) -> Iterator[tuple[str, str, int, int, bool]]:
    """Name, kind, size, where the content starts, and whether it hides what is below."""
    end = stream.seek(0, 2)
    place = 0
    opaque = False
    while place + _BLOCK <= end:
        stream.seek(place)
        block = stream.read(_BLOCK)
        if block[0] == 0:
            return
        if block[156:157] == b"x":
            place, opaque = _skip_attributes(stream, block, place)
            continue
        kind = _KINDS.get(block[156:157])
        if kind is None or block[257:262] != b"ustar" or block[124] & 0x80:
            raise _NotPlainError
        name = block[:100].partition(b"\0")[0]
        if block[345]:
            name = block[345:500].partition(b"\0")[0] + b"/" + name
        size = _size(block) if kind == "file" else 0
        place += _BLOCK
        if size > end - place:
            raise _NotPlainError
        yield name.decode(errors="surrogateescape").rstrip("/"), kind, size, place, opaque
        opaque = False
        place += _padded(size)
    raise _NotPlainError


def _size(block: bytes) -> int:
    try:
        return int(block[124:136].strip(b" \0") or b"0", 8)
    except ValueError:
        raise _NotPlainError from None


def _padded(size: int) -> int:
    return (size + _BLOCK - 1) // _BLOCK * _BLOCK


def _skip_attributes(stream: BinaryIO, block: bytes, place: int) -> tuple[int, bool]:
    """Past an extended header without names, sizes or holes; and whether it marks a folder opaque."""
    size = _size(block)
    if size > _MOST_ATTRIBUTES:
        raise _NotPlainError
    text = stream.read(size)
    if any(word in text for word in (b" path=", b" size=", b" linkpath=", b"GNU.sparse")):
        raise _NotPlainError
    return place + _BLOCK + _padded(size), b"overlay.opaque=y" in text


def is_opaque(member: tarfile.TarInfo) -> bool:
    """Whether a folder hides what the image has there."""
    return any(name.endswith("overlay.opaque") and value == "y" for name, value in member.pax_headers.items())


def _content(stream: BinaryIO, start: int, size: int) -> bytes:
    stream.seek(start)
    return stream.read(size)


def _any(state: Path | bytes) -> Iterator[Member]:
    with (
        io.BytesIO(state) if isinstance(state, bytes) else state.open("rb") as stream,
        tarfile.open(fileobj=stream) as archive,
    ):
        for member in archive:
            read = partial(_extracted, archive, member)
            yield Member(member.name, _kind(member), member.size, read, is_opaque(member))


def _extracted(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    return file.read() if file else b""


def _kind(member: tarfile.TarInfo) -> str:
    if member.isfile():
        return "file"
    if member.isdir():
        return "folder"
    if member.ischr():
        return "device"
    return "link" if member.issym() or member.islnk() else "pipe"
