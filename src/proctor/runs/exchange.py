"""Built layers between machines: rows in the store that name blobs."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.errors import NotFoundError
from proctor.runs.process_resources import Resources
from proctor.store.shared_layers import SharedLayer

if TYPE_CHECKING:
    from proctor.sandbox.image.layer_stream import Readable
    from proctor.sandbox.image.sharing import Offered

_MEDIA_TYPE = "application/zstd"


class StoreExchange:
    """Layers are left in the blobs, and found by their names in the store."""

    def __init__(self, resources: Resources) -> None:
        self.max_bytes = resources.settings.share_builds_layer_mb << 20
        self._stores = resources.stores
        self._blobs = resources.blobs

    async def find(self, name: str, platform: str) -> Offered | None:
        """The layer of that name, if its blob is still there."""
        return await asyncio.to_thread(self._find, name, platform)

    async def offer(self, name: str, platform: str, content: str, archive: Path) -> None:
        """Compress a layer into a blob, then name it: a name without a blob is no use to anybody."""
        await asyncio.to_thread(self._offer, name, platform, content, archive)

    async def refuse(self, name: str, platform: str) -> None:
        """Offer it no longer, so that the next one who builds it offers another."""
        await asyncio.to_thread(self._refuse, name, platform)

    def _find(self, name: str, platform: str) -> Offered | None:
        from proctor.sandbox.image.sharing import Offered

        with self._stores.borrow() as store:
            found = store.shared_layers.find(name, platform)
            if found and not self._blobs.has(found.digest):
                store.shared_layers.drop(name, platform)
                found = None
        return found and Offered(found.content, partial(self._open, found.digest))

    def _open(self, digest: str) -> AbstractContextManager[Readable]:
        try:
            return self._blobs.open(digest)
        except NotFoundError as error:
            raise OSError(str(error)) from error

    def _offer(self, name: str, platform: str, content: str, archive: Path) -> None:
        import zstandard

        with tempfile.NamedTemporaryFile(dir=archive.parent) as packed, archive.open("rb") as source:
            with zstandard.ZstdCompressor(level=3).stream_writer(packed, closefd=False) as out:
                shutil.copyfileobj(source, out, 1 << 20)
            packed.flush()
            blob = self._blobs.put_file(Path(packed.name), f"layer-{name[:12]}", _MEDIA_TYPE)
        with self._stores.borrow() as store:
            store.shared_layers.add(name, platform, SharedLayer(content, blob.digest, blob.size_bytes))

    def _refuse(self, name: str, platform: str) -> None:
        with self._stores.borrow() as store:
            store.shared_layers.drop(name, platform)


def exchange_of(resources: Resources) -> StoreExchange | None:
    """Where built layers are shared; None when the settings do not want that."""
    return StoreExchange(resources) if resources.settings.share_builds else None
