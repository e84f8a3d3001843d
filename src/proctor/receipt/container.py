"""The ZIP of a receipt, written one way only: the same files give the same bytes, and no byte is free.

Names in one order, one fixed date, no comments, no gaps. So a reader can work out what every byte outside the
contents has to be, and a flipped one is found as surely as one inside.
"""

from __future__ import annotations

import hashlib
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
_CHUNK = 1 << 20
_LARGE = 0xFFFF0000
"""Larger sizes and offsets are written in 64 bits."""
_MANY = 0xFFFF
_DATE = 1 << 5 | 1  # 1 January 1980, the first day that a ZIP knows
_SUSPICIOUS = 100
"""A file that compresses better than this is stored uncompressed: readers would refuse it as a ZIP bomb."""
_UTF8 = 0x800
_PLAIN_FILE = 0o100644 << 16


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of the ZIP, as its directory has it."""

    name: str
    crc: int
    packed: int
    size: int
    method: int
    offset: int


@dataclass(frozen=True, slots=True)
class Written:
    """A file that was added: its digest and its size, and the digest of its packed bytes."""

    sha256: str
    size: int
    packed: str


def local_header(entry: Entry) -> bytes:
    """The header before the bytes of a file."""
    name = entry.name.encode()
    large = entry.size >= _LARGE
    extra = struct.pack("<HHQQ", 1, 16, entry.size, entry.packed) if large else b""
    packed, size = (0xFFFFFFFF, 0xFFFFFFFF) if large else (min(entry.packed, 0xFFFFFFFF), entry.size)
    head = struct.pack(
        "<4s5H3L2H", b"PK\3\4", _version(large), _flags(entry), entry.method, 0, _DATE,
        entry.crc, packed, size, len(name), len(extra),
    )  # fmt: skip
    return head + name + extra


def central_entry(entry: Entry) -> bytes:
    """What the directory at the end says of a file."""
    name = entry.name.encode()
    large, far = entry.size >= _LARGE, entry.offset >= _LARGE
    wide = ([entry.size, entry.packed] if large else []) + ([entry.offset] if far else [])
    extra = struct.pack(f"<HH{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
    packed, size = (0xFFFFFFFF, 0xFFFFFFFF) if large else (min(entry.packed, 0xFFFFFFFF), entry.size)
    head = struct.pack(
        "<4s6H3L5H2L", b"PK\1\2", 3 << 8 | _version(large or far), _version(large or far), _flags(entry),
        entry.method, 0, _DATE, entry.crc, packed, size, len(name), len(extra), 0, 0, 0,
        _PLAIN_FILE, 0xFFFFFFFF if far else entry.offset,
    )  # fmt: skip
    return head + name + extra


def end_record(count: int, size: int, offset: int) -> bytes:
    """The last bytes: where the directory is and how much is in it."""
    wide = b""
    if count >= _MANY or size >= _LARGE or offset >= _LARGE:
        wide = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 3 << 8 | 45, 45, 0, 0, count, count, size, offset)
        wide += struct.pack("<4sLQL", b"PK\6\7", 0, offset + size, 1)
    few = min(count, _MANY)
    ends = (min(size, 0xFFFFFFFF), min(offset, 0xFFFFFFFF)) if wide else (size, offset)
    return wide + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, few, few, *ends, 0)


def _version(large: bool) -> int:
    return 45 if large else 20


def _flags(entry: Entry) -> int:
    return 0 if entry.name.isascii() else _UTF8


def order(name: str) -> tuple[int, str]:
    """The position of a file in the archive: those of the whole run first, then trial by trial as planned."""
    parts = name.split("/")
    index = parts[2].partition(".")[0] if parts[0] == "trials" and len(parts) > 3 else ""
    return (int(index) if index.isdecimal() and len(index) < 20 else -1), name


class Packer:
    """Writes the ZIP to a file that can be rewound. Add in that order, then `close`."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._entries: list[Entry] = []

    def add(self, name: str, source: BinaryIO, size: int, *, deflate: bool = True) -> Written:
        """One file, streamed. `size` is what it has; another length is an error."""
        start = self._sink.tell()
        entry, written = self._stream(name, source, size, start, deflate=deflate)
        if deflate and not entry.packed < entry.size <= _SUSPICIOUS * entry.packed:
            source.seek(0)
            entry, written = self._stream(name, source, size, start, deflate=False)
        if entry.size != size:
            raise ValueError(f"{name} changed while it was packed")
        end = self._sink.tell()
        self._sink.seek(start)
        self._sink.write(local_header(entry))
        self._sink.seek(end)
        self._entries.append(entry)
        return written

    def _stream(
        self, name: str, source: BinaryIO, size: int, start: int, *, deflate: bool
    ) -> tuple[Entry, Written]:
        method = DEFLATED if deflate else STORED
        begin = start + len(local_header(Entry(name, 0, 0, size, method, start)))
        self._sink.seek(begin)
        self._sink.truncate()
        press = zlib.compressobj(6, zlib.DEFLATED, -15) if deflate else None
        whole, packed = hashlib.sha256(), hashlib.sha256()
        crc = read = 0
        while piece := source.read(_CHUNK):
            crc, read = zlib.crc32(piece, crc), read + len(piece)
            whole.update(piece)
            out = press.compress(piece) if press else piece
            packed.update(out)
            self._sink.write(out)
        if press:
            out = press.flush()
            packed.update(out)
            self._sink.write(out)
        entry = Entry(name, crc, self._sink.tell() - begin, read, method, start)
        return entry, Written(whole.hexdigest(), read, packed.hexdigest())

    def close(self) -> None:
        """Write the directory."""
        offset = self._sink.tell()
        for entry in self._entries:
            self._sink.write(central_entry(entry))
        size = self._sink.tell() - offset
        self._sink.write(end_record(len(self._entries), size, offset))


def free_bytes(
    path: Path, infos: Sequence[zipfile.ZipInfo], packed: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Where the archive is not what its contents make it: (file, what is wrong). Nothing for a sound one.

    `packed` has the digest of each file's packed bytes: there are bits in them that unpacking never looks at.
    """
    at = 0
    directory: list[tuple[Entry, bytes]] = []
    with path.open("rb") as raw:
        for info in infos:
            name = info.orig_filename
            entry = Entry(name, info.CRC, info.compress_size, info.file_size, info.compress_type, at)
            if info.header_offset != at:
                yield name, f"begins at byte {info.header_offset} of the archive and not at {at}"
                at = max(0, info.header_offset)
                entry = Entry(name, entry.crc, entry.packed, entry.size, entry.method, at)
            wanted = local_header(entry)
            raw.seek(at)
            if raw.read(len(wanted)) != wanted:
                yield name, "the header in the archive is not the one that a receipt has"
            if packed.get(name, found := _hash(raw, entry.packed)) != found:
                yield name, "its packed bytes differ from those that were written"
            at += len(wanted) + entry.packed
            directory.append((entry, central_entry(entry)))
        raw.seek(at)
        begin = at
        for entry, wanted in directory:
            if raw.read(len(wanted)) != wanted:
                yield entry.name, "its line in the archive's directory is not the one that a receipt has"
            at += len(wanted)
        if raw.read() != end_record(len(directory), at - begin, begin):
            yield "the archive", "does not end as a receipt does"
    names = [info.orig_filename for info in infos]
    if names[:-1] != sorted(names[:-1], key=order):
        yield "the archive", "its files are not in order"


def _hash(raw: BinaryIO, size: int) -> str:
    hasher = hashlib.sha256()
    while size > 0 and (piece := raw.read(min(size, _CHUNK))):
        hasher.update(piece)
        size -= len(piece)
    return hasher.hexdigest()
