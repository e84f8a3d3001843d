"""The ZIP of a receipt, written one way only: the same files give the same bytes, and no byte is free.

Names in one order, one fixed date, no comments, no gaps. So a reader can have `zipfile` write every byte
outside the contents once more, and a flipped one is found as surely as one inside.
"""

from __future__ import annotations

import hashlib
import io
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
_CHUNK = 1 << 20
_LARGE = 2_000_000_000
"""Files of this size or more are announced in 64 bits: compressed they might pass 2 GiB."""
_SUSPICIOUS = 100
"""A file that compresses better than this is stored uncompressed: readers would refuse it as a ZIP bomb."""
_FIRST_DAY = (1980, 1, 1, 0, 0, 0)
_PLAIN_FILE = 0o100644 << 16
_LIMITS_OF_0_1 = {"ZIP64_LIMIT": 0xFFFEFFFF, "ZIP_FILECOUNT_LIMIT": 0xFFFE}
_END_OF_0_1 = (b"PK\6\6,\0\0\0\0\0\0\0-\0", b"PK\6\6,\0\0\0\0\0\0\0-\3")
"""How the 64-bit end of an archive begins, and how it did then: with the system that wrote it."""


@dataclass(frozen=True, slots=True)
class Written:
    """A file that was added: its digest and its size, and the digest of its packed bytes."""

    sha256: str
    size: int
    packed: str


def order(name: str) -> tuple[int, str]:
    """The position of a file in the archive: those of the whole run first, then trial by trial as planned."""
    parts = name.split("/")
    index = parts[2].partition(".")[0] if parts[0] == "trials" and len(parts) > 3 else ""
    return (int(index) if index.isdecimal() and len(index) < 20 else -1), name


class Packer:
    """Writes the ZIP to a file that can be rewound. Add in that order, then `close`."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._zip = zipfile.ZipFile(sink, "w")

    def add(self, name: str, source: BinaryIO, size: int, *, deflate: bool = True) -> Written:
        """One file, streamed. `size` is what it has; another length is an error."""
        start = self._sink.tell()
        info, whole = self._stream(name, source, size, DEFLATED if deflate else STORED)
        if deflate and not info.compress_size < info.file_size <= _SUSPICIOUS * info.compress_size:
            source.seek(0)
            self._take_back(info, start)
            info, whole = self._stream(name, source, size, STORED)
        if info.file_size != size:
            raise ValueError(f"{name} changed while it was packed")
        self._sink.seek(start + len(info.FileHeader(zip64=size >= _LARGE)))
        packed = _hash(self._sink, info.compress_size)
        return Written(whole, size, packed)

    def _stream(self, name: str, source: BinaryIO, size: int, method: int) -> tuple[zipfile.ZipInfo, str]:
        info = _info(name, method)
        whole = hashlib.sha256()
        with self._zip.open(info, "w", force_zip64=size >= _LARGE) as target:
            while piece := source.read(_CHUNK):
                whole.update(piece)
                target.write(piece)
        return info, whole.hexdigest()

    def _take_back(self, info: zipfile.ZipInfo, start: int) -> None:
        """Remove the file that was added last."""
        self._zip.infolist().remove(info)
        del self._zip.NameToInfo[info.filename]
        self._zip.start_dir = start
        self._sink.seek(start)
        self._sink.truncate()

    def close(self) -> None:
        """Write the directory."""
        self._zip.close()


def free_bytes(
    path: Path, infos: Sequence[zipfile.ZipInfo], packed: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Where the archive is not what its contents make it: (file, what is wrong). Nothing for a sound one.

    `packed` has the digest of each file's packed bytes: there are bits in them that unpacking never looks at.
    """
    found = list(_differences(path, infos, packed, _LARGE))
    if found:
        with _limits_of_0_1() as large:
            found = min(found, list(_differences(path, infos, packed, large, _END_OF_0_1)), key=len)
    yield from found
    names = [info.orig_filename for info in infos]
    if names[:-1] != sorted(names[:-1], key=order):
        yield "the archive", "its files are not in order"


def _differences(
    path: Path,
    infos: Sequence[zipfile.ZipInfo],
    packed: Mapping[str, str],
    large: int,
    other_end: tuple[bytes, bytes] = (b"", b""),
) -> Iterator[tuple[str, str]]:
    at = 0
    expected: list[zipfile.ZipInfo] = []
    with path.open("rb") as raw:
        for found in infos:
            name = found.orig_filename
            if found.header_offset != at:
                yield name, f"begins at byte {found.header_offset} of the archive and not at {at}"
                at = max(0, found.header_offset)
            info = _info(name, found.compress_type)
            info.CRC, info.file_size, info.compress_size = found.CRC, found.file_size, found.compress_size
            info.header_offset = at
            wanted = info.FileHeader(zip64=info.file_size >= large)
            raw.seek(at)
            if raw.read(len(wanted)) != wanted:
                yield name, "the header in the archive is not the one that a receipt has"
            if packed.get(name, digest := _hash(raw, info.compress_size)) != digest:
                yield name, "its packed bytes differ from those that were written"
            at += len(wanted) + info.compress_size
            expected.append(info)
        raw.seek(at)
        lines, end = _directory(expected, at)
        for info, line in zip(expected, lines, strict=True):
            if raw.read(len(line)) != line:
                yield (
                    info.orig_filename,
                    "its line in the archive's directory is not the one that a receipt has",
                )
        if raw.read() != end.replace(*other_end):
            yield "the archive", "does not end as a receipt does"


def _info(name: str, method: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _FIRST_DAY)
    info.compress_type, info.create_system, info.external_attr = method, 3, _PLAIN_FILE
    return info


class _Tail(io.BytesIO):
    """The end of an archive whose beginning, of so many bytes, is elsewhere."""

    def __init__(self, begin: int) -> None:
        super().__init__()
        self._begin = begin

    def tell(self) -> int:
        return self._begin + super().tell()

    def seek(self, *_: int) -> int:
        raise OSError("only ever written to its end")


def _directory(infos: Iterable[zipfile.ZipInfo], begin: int) -> tuple[list[bytes], bytes]:
    """The directory at the end, one line for each file, and what follows it."""
    tail = _Tail(begin)
    with zipfile.ZipFile(tail, "w") as archive:
        archive.infolist().extend(infos)
    content, lines, at = tail.getvalue(), [], 0
    for _ in archive.infolist():
        name_bytes, extra_bytes = struct.unpack_from("<2H", content, at + 28)
        lines.append(content[at : at + 46 + name_bytes + extra_bytes])
        at += len(lines[-1])
    return lines, content[at:]


@contextmanager
def _limits_of_0_1() -> Iterator[int]:
    """Within this, `zipfile` uses 64 bits where the writer of version 0.1 did. Yields what is a large file.

    That writer was our own; it used them from larger sizes than `zipfile` does, and from one file less.
    """
    kept = {name: getattr(zipfile, name) for name in _LIMITS_OF_0_1}
    try:
        for name, value in _LIMITS_OF_0_1.items():
            setattr(zipfile, name, value)
        yield _LIMITS_OF_0_1["ZIP64_LIMIT"] + 1
    finally:
        for name, value in kept.items():
            setattr(zipfile, name, value)


def _hash(raw: BinaryIO, size: int) -> str:
    hasher = hashlib.sha256()
    while size > 0 and (piece := raw.read(min(size, _CHUNK))):
        hasher.update(piece)
        size -= len(piece)
    return hasher.hexdigest()
