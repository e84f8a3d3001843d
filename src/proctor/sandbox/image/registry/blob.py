"""A layer's compressed bytes: downloaded into a file that is read while it grows, continued after a cut."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import aiohttp

from proctor.disk import write_all
from proctor.errors import ImageError
from proctor.sandbox.image.manifest import Blob
from proctor.sandbox.image.registry.access import Endpoint, RegistryError
from proctor.sandbox.image.registry.client import Client, unreachable


class FullDiskError(ImageError):
    """There is no room for a layer."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"the disk of {folder} is full: make room, for instance with `proctor images gc`, or set "
            f"PROCTOR_HOME to a folder on another disk"
        )


class Growing:
    """A file that is appended to while a thread reads it; the last read checks the digest of all of it."""

    def __init__(self, file: Path, blob: Blob) -> None:
        self.file = file
        self.blob = blob
        self._fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self.there = os.fstat(self._fd).st_size
        if self.there > blob.size:
            os.ftruncate(self._fd, 0)
            self.there = 0
        os.lseek(self._fd, self.there, os.SEEK_SET)
        self._read = 0
        self._seen = hashlib.sha256()
        self._problem: BaseException | None = None
        self._changed = threading.Condition()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Reading ends; the file stays."""

    def close(self) -> None:
        """No more of it."""
        os.close(self._fd)

    def append(self, data: bytes) -> None:
        """Write what arrived; ImageError when the disk is full."""
        try:
            write_all(self._fd, data)
        except OSError as error:
            self.file.unlink(missing_ok=True)  # the next download needs the space
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise FullDiskError(self.file.parent) from error
            raise ImageError(f"{self.file} cannot be written: {error.strerror}") from error
        with self._changed:
            self.there += len(data)
            self._changed.notify()

    def fail(self, problem: BaseException) -> None:
        """Nothing more will arrive; the reader gets the reason."""
        with self._changed:
            self._problem = self._problem or problem
            self._changed.notify()

    def stop(self) -> None:
        """No more is wanted."""
        self.fail(ImageError("the download was stopped"))

    def read(self, size: int, /) -> bytes:
        """The next bytes, waiting for them; none at the end, when the digest of all of them is right."""
        with self._changed:
            while self._read == self.there < self.blob.size and self._problem is None:
                self._changed.wait()
            if self._problem is not None:
                raise self._problem
            available = self.there - self._read
        data = os.pread(self._fd, min(size, available), self._read)
        self._seen.update(data)
        self._read += len(data)
        if not data and self._seen.hexdigest() != self.blob.digest:
            raise ImageError(
                f"the layer {self.blob.digest[:12]} that arrived has another digest "
                f"({self._seen.hexdigest()[:12]}); it is damaged or was changed on its way"
            )
        return data


async def download(
    client: Client,
    servers: Sequence[Endpoint],
    repository: str,
    growing: Growing,
    on_bytes: Callable[[int], None],
) -> None:
    """Fetch what is missing, from the first server that has it; `on_bytes` hears how many arrive."""
    left = list(servers)
    failures = 0
    while growing.there < growing.blob.size:
        before = growing.there
        try:
            await _receive(client, left[0], repository, growing, on_bytes)
            problem = RegistryError(f"{left[0].host} ended the connection before the layer was complete")
        except RegistryError as error:
            if len(left) == 1:
                raise
            del left[0]
            problem = error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            problem = unreachable(left[0], error)
        failures = 0 if growing.there > before else failures + 1
        if failures >= client.patience.tries:
            raise problem
        if growing.there < growing.blob.size:
            await asyncio.sleep(client.wait_s(failures))


async def _receive(
    client: Client, server: Endpoint, repository: str, growing: Growing, on_bytes: Callable[[int], None]
) -> None:
    """One connection's worth."""
    start, blob = growing.there, growing.blob
    headers = {"Range": f"bytes={start}-"} if start else {}
    response = await client.open(server, repository, f"blobs/sha256:{blob.digest}", headers)
    try:
        skip = _offset(response, start, server)
        announced = response.content_length
        if announced is not None and announced > blob.size - start + skip:
            raise _too_much(server, blob)
        async for chunk in response.content.iter_any():
            fresh = chunk[skip:]
            skip = max(0, skip - len(chunk))
            if growing.there + len(fresh) > blob.size:
                raise _too_much(server, blob)
            growing.append(fresh)
            on_bytes(len(chunk))
    finally:
        response.close()


def _offset(response: aiohttp.ClientResponse, start: int, server: Endpoint) -> int:
    """How many of the bytes to come are here already: a server may not know how to continue."""
    if response.status != 206:
        return start
    said = response.headers.get("Content-Range", "")
    if not said.startswith(f"bytes {start}-"):
        raise RegistryError(f"{server.host} resumed the download at the wrong position")
    return 0


def _too_much(server: Endpoint, blob: Blob) -> RegistryError:
    return RegistryError(
        f"{server.host} sends more than the {blob.size} bytes that the manifest says layer "
        f"{blob.digest[:12]} has; refused"
    )
