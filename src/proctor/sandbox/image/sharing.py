"""Layers that machines give each other: packed as an archive, taken only when the content is what it was.

A shared name covers the step, its files, the image below and the content of every layer in between, so layers
of two builds are never mixed. Steps that used a cache of this machine, or its own system, get none.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from proctor.disk import opened
from proctor.errors import ImageError, ProctorError
from proctor.sandbox.image.layer_stream import Readable, unpack_layer
from proctor.sandbox.image.layers import LayerStore
from proctor.sandbox.image.references import architecture
from proctor.sandbox.state import TAR_DONE, tar_command

_LOG = logging.getLogger("proctor.images")
_FORMAT = "shared-layer-1"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class Offered(NamedTuple):
    """A layer that another machine built."""

    content: str
    """sha256 of its archive."""
    open: Callable[[], AbstractContextManager[Readable]]


class Exchange(Protocol):
    """Where machines leave layers for each other."""

    max_bytes: int
    """The largest layer to offer."""

    async def find(self, name: str, platform: str) -> Offered | None:
        """The layer of that name."""

    async def offer(self, name: str, platform: str, content: str, archive: Path) -> None:
        """Leave a layer for others."""

    async def refuse(self, name: str, platform: str) -> None:
        """What is offered under the name cannot be used."""


class Chain:
    """The layers of one stage, from its image upwards, as far as they can be shared."""

    def __init__(self, store: LayerStore, exchange: Exchange | None, base: str, *, pure: bool) -> None:
        self._store = store
        self._exchange = exchange if pure else None
        self._below = base
        """Digest of all that is below the next layer: inputs and contents."""
        self._platform = f"linux/{architecture()}"
        self.taken = self.offered = 0

    def stop(self) -> None:
        """From here on nothing is shared: what comes depends on more than the inputs."""
        self._exchange = None

    async def obtain(self, key: str, make: Callable[[Path], Awaitable[None]]) -> Path:
        """A layer: here already, taken from another machine, or made and offered."""
        if self._exchange is None:
            return await self._store.obtain(key, make)
        name = hashlib.sha256(f"{_FORMAT} {self._below} {key}".encode()).hexdigest()

        async def take_or_make(target: Path) -> None:
            if not await self._take(name, key, target):
                await make(target)

        layer = await self._store.obtain(key, take_or_make)
        content = self._known(key) or await self._offer(name, key, layer)
        if content:
            self._below = hashlib.sha256(f"{self._below} {key} {content}".encode()).hexdigest()
        else:
            self.stop()
        return layer

    async def _take(self, name: str, key: str, target: Path) -> bool:
        assert self._exchange
        try:
            found = await self._exchange.find(name, self._platform)
            if found is None:
                return False
            await unpack_layer(self._store, target, found.content, found.open)
        except (ProctorError, OSError) as error:
            _LOG.warning("a layer of another machine cannot be used and is built here: %s", error)
            await self._store.remove(target.name)
            if isinstance(error, ImageError):
                await self._exchange.refuse(name, self._platform)
            return False
        self._note(key, found.content)
        self.taken += 1
        return True

    async def _offer(self, name: str, key: str, layer: Path) -> str:
        """Pack a layer and leave it for others; the digest of its content, empty when that cannot be."""
        assert self._exchange
        with self._store.scratch() as scratch:
            file = scratch / "layer.tar"
            if not await _packed(self._store, layer, file, self._exchange.max_bytes):
                return ""
            with file.open("rb") as source:
                content = hashlib.file_digest(source, "sha256").hexdigest()
            try:
                await self._exchange.offer(name, self._platform, content, file)
            except (ProctorError, OSError) as error:
                _LOG.warning("a layer cannot be offered to other machines: %s", error)
                return ""
        self._note(key, content)
        self.offered += 1
        return content

    def _known(self, key: str) -> str:
        """The digest of a layer's content that was taken or offered earlier."""
        try:
            return (self._store.folder / "shared" / key).read_text()
        except OSError:
            return ""

    def _note(self, key: str, content: str) -> None:
        folder = self._store.folder / "shared"
        folder.mkdir(exist_ok=True)
        writing = folder / f".{key}.{os.urandom(4).hex()}"
        writing.write_text(content)
        writing.replace(folder / key)


async def _packed(store: LayerStore, layer: Path, file: Path, max_bytes: int) -> bool:
    """Write a layer as an archive; False when it is too large."""
    keeper = await store.keeper()
    with (
        opened(os.devnull, os.O_RDWR) as null,
        opened(layer, _FOLDER) as folder,
        file.open("wb") as out,
    ):
        code = await keeper.run(tar_command("/proc/self/fd/3", max_bytes), [null, out.fileno(), null, folder])
    return code in TAR_DONE
