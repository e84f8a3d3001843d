"""Open an untrusted receipt: nothing is unpacked by name, everything is streamed and bounded."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import TaskError, UsageError
from proctor.receipt import document
from proctor.receipt.document import Receipt
from proctor.tasks.archive import DAMAGED, ArchiveLimits, inspect_entries

LIMITS = ArchiveLimits(total_bytes=1 << 40, entry_bytes=1 << 36, entries=4_000_000)
"""Files are read one by one, so a receipt may be large; extreme compression ratios are refused."""
_CHUNK = 1 << 20
_BROKEN = (*DAMAGED, OSError)


class DamagedError(Exception):
    """A file of the archive cannot be read; the message says why."""


@dataclass(frozen=True, slots=True)
class Archive:
    """An open receipt, looked over."""

    path: Path
    opened: zipfile.ZipFile
    entries: Mapping[str, zipfile.ZipInfo]
    receipt: Receipt

    def pieces(self, name: str) -> Iterator[bytes]:
        """The bytes of a file, a piece at a time, never more than the directory announces."""
        return _pieces(self.opened, self.entries[name])

    def read(self, name: str, limit: int) -> bytes:
        """A small file at once; DamagedError when it cannot be read or is larger than that."""
        return _read(self.opened, self.entries[name], limit)

    def digest(self, name: str) -> tuple[str, int]:
        """SHA-256 and size of what really comes out."""
        hasher, size = hashlib.sha256(), 0
        for piece in self.pieces(name):
            hasher.update(piece)
            size += len(piece)
        return hasher.hexdigest(), size

    def extract(self, name: str, target: Path) -> str:
        """Write a file's bytes to a path of our own choice; their SHA-256."""
        hasher = hashlib.sha256()
        with target.open("wb") as sink:
            for piece in self.pieces(name):
                hasher.update(piece)
                sink.write(piece)
        return hasher.hexdigest()


@contextmanager
def open_receipt(path: Path) -> Iterator[Archive]:
    """Look the archive over and read its `receipt.json`. What is no receipt is refused."""
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    try:
        opened = zipfile.ZipFile(path)
    except _BROKEN as error:
        raise UsageError(f"{path}: not a receipt, or cut short or damaged ({error})") from error
    with opened:
        try:
            entries = inspect_entries(opened, path, LIMITS)
        except (TaskError, *_BROKEN) as error:
            raise UsageError(str(error)) from error
        if document.NAME not in entries:
            raise UsageError(
                f"{path}: not a receipt: it has no {document.NAME}; see 'proctor receipt --help'"
            )
        try:
            data = _read(opened, entries[document.NAME], document.MAX_BYTES)
        except DamagedError as error:
            raise UsageError(f"{path}: {document.NAME}: {error}") from error
        yield Archive(path, opened, entries, document.read(data, f"{path}: {document.NAME}"))


def _pieces(opened: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    left = info.file_size
    try:
        with opened.open(info) as source:
            while piece := source.read(_CHUNK):
                left -= len(piece)
                if left < 0:
                    raise DamagedError("contains more bytes than the archive states")
                yield piece
    except _BROKEN as error:
        raise DamagedError(f"cannot be read: {error}") from error
    if left:
        raise DamagedError("contains fewer bytes than the archive states")


def _read(opened: zipfile.ZipFile, info: zipfile.ZipInfo, limit: int) -> bytes:
    if info.file_size > limit:
        raise DamagedError(f"has {info.file_size} bytes, at most {limit} are read")
    return b"".join(_pieces(opened, info))
