"""Blobs as objects of a bucket: `ab/abcd…/COPY`, where the name of each copy is new and never used again.

S3 can neither rename an object nor change its time. So a blob that counts as just put gets a new copy, made
inside the store, and a collector removes copies by name. What it has seen to be old stays old: whoever needs
the blob meanwhile made another copy, or fails to copy what is gone and writes it again. No delete, however
late it arrives, can meet an object that somebody relies on; no clock but the store's decides, and no lock is
needed.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from itertools import chain, groupby
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

from proctor.errors import NotFoundError, StoreError
from proctor.model.record import Artifact
from proctor.store.blob_cache import BlobCache
from proctor.store.blobs import ABANDONED_S, DamagedBlobError, Stored, check_digest
from proctor.store.s3.bucket import PIECE_BYTES, Bucket, Object

FRESH_S = 300.0
"""A copy this young needs no younger one: `remove` spares copies for that much longer than it is asked to."""
_MOST_COPIED_BYTES = 5 << 30
"""What a store copies in one request; something larger is written again."""
_CLOCK_S = 60.0
"""For how long the difference to the store's clock is taken as known."""
_KEY = re.compile(r"[0-9a-f]{2}/([0-9a-f]{64})/[0-9a-f]{16}")
_CLOCKS = "clock"
_MANY_BYTES = 1 << 20
Copies: TypeAlias = list[Object]
"""Of one blob, the youngest first."""
Fetch = Callable[[int, int], bytes]
"""Some bytes of the blob, by offset and length."""
AHEAD_BYTES = 256 << 10
"""What is fetched at least: most who read a part read on."""


class S3Blobs:
    """Blobs in a bucket, with a cache on this machine."""

    remote = True

    def __init__(self, bucket: Bucket, cache: BlobCache | None = None) -> None:
        self.bucket = bucket
        self.where = bucket.where
        self.cache = cache or BlobCache()
        self._clock: tuple[float, float] | None = None

    def put_bytes(self, data: bytes, name: str, media_type: str = "application/octet-stream") -> Artifact:
        """Keep some bytes; the same bytes are kept once."""
        digest = hashlib.sha256(data).hexdigest()
        if not self._renew(digest, len(data)):
            self.bucket.put(_new_key(digest), data)
        self.cache.keep_bytes(data, digest)
        return Artifact(name=name, digest=digest, size_bytes=len(data), media_type=media_type)

    def put_file(self, path: Path, name: str, media_type: str = "application/octet-stream") -> Artifact:
        """Keep a file's content as it is while it is read; it may be larger than memory."""
        with path.open("rb") as source:
            piece = source.read(_MANY_BYTES)
            if len(piece) < _MANY_BYTES:
                return self.put_bytes(piece, name, media_type)
            hasher, size = hashlib.sha256(), 0
            with self.cache.arriving() as copy:
                while piece:
                    hasher.update(piece)
                    size += len(piece)
                    copy.write(piece)
                    piece = source.read(_MANY_BYTES)
                copy.flush()
                digest = hasher.hexdigest()
                if not self._renew(digest, size):
                    self._upload(digest, Path(copy.name), size)
                self.cache.keep(copy, digest)
        return Artifact(name=name, digest=digest, size_bytes=size, media_type=media_type)

    def open(self, digest: str, *, parts: bool = False) -> BinaryIO:
        """Read a blob, whole and held to its digest before the first byte is given.

        With `parts` a large one is fetched as it is read, which only its length can be checked of.
        """
        check_digest(digest)
        cached = self.cache.open(digest)
        if cached:
            return cached
        copies = self._copies(digest)
        if parts and copies and copies[0].size_bytes > PIECE_BYTES:
            return self._in_parts(digest, copies[0])
        with self.cache.arriving() as file:
            self._fetch_any(digest, copies, file)
            self.cache.keep(file, digest)
            file.seek(0)
            return os.fdopen(os.dup(file.fileno()), "rb")

    def copy_to(self, digest: str, target: BinaryIO) -> None:
        """Write a blob into an empty file, held to its digest. What is in the cache is taken from there."""
        check_digest(digest)
        cached = self.cache.open(digest)
        if cached is None:
            self._fetch_any(digest, self._copies(digest), target)
            return
        with cached:
            shutil.copyfileobj(cached, target, _MANY_BYTES)

    def has(self, digest: str, *, keep: bool = False) -> bool:
        """Whether it is there; with `keep` it counts as just put."""
        check_digest(digest)
        return self._renew(digest) if keep else bool(self._copies(digest))

    def list(self) -> Iterator[Stored]:
        """Every blob. Copies that a younger one has replaced long ago are removed on the way."""
        now = self._now()
        for digest, found in groupby(self.bucket.list(), key=_digest_of):
            copies = sorted(found, key=lambda each: -each.modified_at)
            if not digest:
                self._sweep([each for each in copies if each.key.startswith(f"{_CLOCKS}/")], now)
                continue
            left = copies[:1] + self._sweep(copies[1:], now)
            yield Stored(digest, sum(each.size_bytes for each in left), now - copies[0].modified_at)

    def remove(self, digest: str, *, unless_younger_s: float = 0.0) -> bool:
        """Remove the copies that were not made within that time; whether none is left."""
        check_digest(digest)
        copies = self._copies(digest)
        oldest = self._now() - unless_younger_s - FRESH_S if unless_younger_s and copies else float("inf")
        old = [each for each in copies if each.modified_at <= oldest]
        for each in old:
            self.bucket.remove(each.key)
        gone = bool(old) and len(old) == len(copies)
        if gone:
            self.cache.drop(digest)
        return gone

    def _copies(self, digest: str, size_bytes: int | None = None) -> Copies:
        """The copies of a blob, the youngest first."""
        found = [
            each
            for each in self.bucket.list(f"{digest[:2]}/{digest}")
            if _KEY.fullmatch(each.key) and size_bytes in {None, each.size_bytes}
        ]
        return sorted(found, key=lambda each: -each.modified_at)

    def _renew(self, digest: str, size_bytes: int | None = None) -> bool:
        """See to it that there is a young copy; False when the blob has to be written."""
        while copies := self._copies(digest, size_bytes):
            if self._now() - copies[0].modified_at <= FRESH_S:
                return True
            if copies[0].size_bytes > _MOST_COPIED_BYTES:
                return False
            if self.bucket.copy(copies[0].key, _new_key(digest)):
                return True
        return False

    def _upload(self, digest: str, path: Path, size: int) -> None:
        began = time.monotonic()
        key = _new_key(digest)
        self.bucket.put_file(key, path, size)
        # The time of an object that was written in parts is that of the first of them.
        if time.monotonic() - began > FRESH_S / 2 and size <= _MOST_COPIED_BYTES:
            self.bucket.copy(key, _new_key(digest))

    def _fetch_any(self, digest: str, copies: Copies, file: BinaryIO) -> None:
        """Write a blob into an empty file, from the first of its copies that is sound."""
        damaged: Object | None = None
        # Another look at the end: what was listed first may have been replaced by a younger copy.
        for each in chain(copies, self._later_copies(digest, copies)):
            found = self._fetch(each, file)
            if found == digest:
                return
            damaged = damaged if found is None else each
            file.seek(0)
            file.truncate()
        self.cache.drop(digest)
        if damaged:
            raise DamagedBlobError(
                f"blob {digest} is damaged: the object {self.where}/{damaged.key} has another content. "
                "Remove it and restore it from a backup ('proctor db restore --blobs')"
            )
        raise NotFoundError(f"no blob {digest} in {self.where}")

    def _later_copies(self, digest: str, known: Copies) -> Iterator[Object]:
        yield from (each for each in self._copies(digest) if known and each not in known)

    def _fetch(self, each: Object, file: BinaryIO) -> str | None:
        """The digest of an object, which is written to a file; None when it is gone."""
        hasher, at = hashlib.sha256(), 0
        while at < each.size_bytes:
            if each.size_bytes <= PIECE_BYTES:
                piece = self.bucket.read(each.key)
            else:
                piece = self.bucket.fetch(each.key, at, min(PIECE_BYTES, each.size_bytes - at))
            if not piece:
                return None
            hasher.update(piece)
            file.write(piece)
            at += len(piece)
        file.flush()
        return hasher.hexdigest()

    def _in_parts(self, digest: str, first: Object) -> BinaryIO:
        def fetch(offset: int, length: int) -> bytes:
            # A copy may be replaced by a younger one while its reader goes on.
            for each in [first, *self._copies(digest, first.size_bytes)]:
                piece = self.bucket.fetch(each.key, offset, length)
                if piece is not None and len(piece) == length:
                    return piece
            raise NotFoundError(f"no blob {digest} in {self.where}: it was removed while it was read")

        return cast("BinaryIO", io.BufferedReader(PartsReader(fetch, first.size_bytes), AHEAD_BYTES))

    def _sweep(self, copies: Copies, now: float) -> Copies:
        """Remove objects that nobody reads any more; those that are left."""
        old = [each for each in copies if now - each.modified_at > ABANDONED_S + FRESH_S]
        for each in old:
            self.bucket.remove(each.key)
        return [each for each in copies if each not in old]

    def _now(self) -> float:
        """The time by the clock that sets the times of objects."""
        known = self._clock
        if known is None or time.monotonic() - known[1] > _CLOCK_S:
            key = f"{_CLOCKS}/{os.urandom(8).hex()}"
            self.bucket.put(key, b"")
            # Not by a list: some stores list an object a moment after it can be read.
            found = self.bucket.modified_at(key)
            self.bucket.remove(key)
            if found is None:
                raise StoreError(f"{self.where}: an object that was just written is not there")
            known = self._clock = (found, time.monotonic())
        return known[0] + time.monotonic() - known[1]


def _new_key(digest: str) -> str:
    return f"{digest[:2]}/{digest}/{os.urandom(8).hex()}"


def _digest_of(each: Object) -> str:
    found = _KEY.fullmatch(each.key)
    return found[1] if found else ""


class PartsReader(io.RawIOBase):
    """A blob as a file that can be read from anywhere. What is read in parts has no digest to hold it to."""

    def __init__(self, fetch: Fetch, size_bytes: int) -> None:
        self._fetch = fetch
        self._size = size_bytes
        self._at = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place; nothing is fetched yet."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        """The place."""
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        """Fill the buffer from the place on."""
        target = memoryview(buffer)
        length = min(len(target), self._size - self._at)
        if length <= 0:
            return 0
        data = self._fetch(self._at, length)
        target[: len(data)] = data
        self._at += len(data)
        return len(data)
