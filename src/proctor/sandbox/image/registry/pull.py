"""Pull an image: ask its registry, download the layers that are not here, remember it by name and digest."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from proctor.errors import ImageError, LastingImageError
from proctor.sandbox.base import ended
from proctor.sandbox.image.layer_stream import layer_key, unpack_layer
from proctor.sandbox.image.layers import LayerStore
from proctor.sandbox.image.manifest import (
    ACCEPT,
    MOST_BYTES,
    MOST_JSON_BYTES,
    Blob,
    Configuration,
    Index,
    Manifest,
    Platform,
    choose,
    read_configuration,
    read_manifest,
    this_platform,
)
from proctor.sandbox.image.references import Image, Reference, References, parse
from proctor.sandbox.image.registry.access import Endpoint, RegistryError, endpoints
from proctor.sandbox.image.registry.blob import FullDiskError, Growing, download
from proctor.sandbox.image.registry.client import Client, unreachable

_AT_ONCE = 3


@dataclass(slots=True, kw_only=True)
class Progress:
    """How far a pull has come."""

    reference: str
    bytes: int = 0
    """Of the layers that were missing, as they arrive or were found."""
    total_bytes: int = 0
    layers: int = 0
    missing: int = 0
    """Layers that were not here when the pull began."""
    done: int = 0
    """Of those."""
    downloaded_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """An image that is here now, and what that took."""

    image: Image
    downloaded_bytes: int
    new_layers: int


OnProgress = Callable[[Progress], None]


async def pull(
    client: Client,
    store: LayerStore,
    references: References,
    name: str,
    *,
    platform: Platform | None = None,
    kept: bool = False,
    on_progress: OnProgress = lambda _: None,
) -> Pulled:
    """Pull an image by name; ImageError says why not and what to do. Only what is whole gets a name."""
    reference = parse(name)
    await store.open()
    wanted = platform or this_platform()
    work = _Pull(client=client, store=store, reference=reference, on_progress=on_progress)
    try:
        return await work.run(references, wanted, kept=kept)
    except ImageError as error:
        raise ImageError(f"{reference} cannot be pulled: {error}") from error


@dataclass(slots=True, kw_only=True)
class _Pull:
    client: Client
    store: LayerStore
    reference: Reference
    on_progress: OnProgress
    servers: list[Endpoint] = field(init=False)
    """The one that had the manifest first."""
    progress: Progress = field(init=False)
    login: str = ""
    """With which login it was opened."""
    got: dict[str, int] = field(default_factory=dict)
    """Layer → how much of it is here."""

    def __post_init__(self) -> None:
        self.servers = list(endpoints(self.client.access, self.reference))
        self.progress = Progress(reference=str(self.reference))

    async def run(self, references: References, wanted: Platform, *, kept: bool) -> Pulled:
        manifest, digest = await self._manifest(wanted)
        config = await self._configuration(manifest, wanted)
        self.login = self.client.logged_in(self.servers[0], self.reference.repository)
        layers = dict(zip(config.diff_ids, manifest.layers, strict=True))
        await self._layers(layers)
        keys = tuple(map(layer_key, config.diff_ids))
        known = references.find(str(self.reference))
        image = Image(
            reference=str(self.reference),
            id=config.id,
            layers=keys,
            settings=config.settings,
            source="registry",
            digest=digest,
            platform=str(wanted),
            pulled_at=time.time(),
            size_bytes=sum(map(self.store.size_bytes, keys)),
            login=self.login,
            kept=kept or bool(known and known.kept),
        )
        references.put(image)
        return Pulled(
            image=image,
            downloaded_bytes=self.progress.downloaded_bytes,
            new_layers=self.progress.missing,
        )

    async def _manifest(self, wanted: Platform) -> tuple[Manifest, str]:
        body = await self._small(f"manifests/{self.reference.version}", MOST_BYTES, self.reference.digest)
        found = read_manifest(body)
        if isinstance(found, Index):
            blob = choose(found, wanted)
            body = await self._small(f"manifests/sha256:{blob.digest}", MOST_BYTES, f"sha256:{blob.digest}")
            found = read_manifest(body)
        if isinstance(found, Index):
            raise ImageError("its index names another index instead of an image")
        return found, f"sha256:{hashlib.sha256(body).hexdigest()}"

    async def _configuration(self, manifest: Manifest, wanted: Platform) -> Configuration:
        blob = manifest.config
        if blob.size > MOST_JSON_BYTES:
            raise ImageError(
                f"its configuration has {blob.size} bytes; more than {MOST_JSON_BYTES} are refused"
            )
        body = await self._small(f"blobs/sha256:{blob.digest}", blob.size, f"sha256:{blob.digest}")
        try:
            config = read_configuration(body)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise ImageError(f"its configuration cannot be read: {error}") from error
        if (config.os, config.architecture) != (wanted.os, wanted.architecture):
            raise LastingImageError(
                f"it does not exist for {wanted}; it is for {config.os}/{config.architecture}"
            )
        if len(config.diff_ids) != len(manifest.layers):
            raise ImageError(
                f"its configuration has {len(config.diff_ids)} layers, its manifest {len(manifest.layers)}"
            )
        return config

    async def _small(self, path: str, most: int, digest: str) -> bytes:
        """Something small from the first server that gives it; that one is asked first from then on."""
        problems: list[RegistryError] = []
        for server in list(self.servers):
            try:
                body = await self._body(server, path, most, digest)
            except RegistryError as error:
                problems.append(error)
                continue
            self.servers.remove(server)
            self.servers.insert(0, server)
            return body
        *others, last = problems
        notes = "".join(f"; {each}" for each in others)
        raise ImageError(f"{last}{notes}") from last

    async def _body(self, server: Endpoint, path: str, most: int, digest: str) -> bytes:
        problem = RegistryError(f"{server.host} gave no complete answer")
        for number in range(self.client.patience.tries):
            response = await self.client.open(server, self.reference.repository, path, {"Accept": ACCEPT})
            try:
                body = await _read_all(response, most, server)
                _check_digest(body, digest or response.headers.get("Docker-Content-Digest", ""), server)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                problem = unreachable(server, error)
            else:
                return body
            finally:
                response.close()
            await asyncio.sleep(self.client.wait_s(number))
        raise problem

    async def _layers(self, layers: dict[str, Blob]) -> None:
        missing = {diff: blob for diff, blob in layers.items() if not self._is_here(layer_key(diff))}
        self.progress.layers = len(layers)
        self.progress.missing = len(missing)
        self.progress.total_bytes = sum(blob.size for blob in missing.values())
        self.on_progress(self.progress)
        _check_room(self.store.folder, [blob.size for blob in missing.values()])
        places = asyncio.Semaphore(_AT_ONCE)
        tasks = [asyncio.create_task(self._layer(diff, blob, places)) for diff, blob in missing.items()]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _layer(self, diff_id: str, blob: Blob, places: asyncio.Semaphore) -> None:
        key = layer_key(diff_id)

        async def make(target: Path) -> None:
            async with self.store.locked(f"blob-{blob.digest}"):
                await self._make(target, diff_id, blob)
            self.store.note_login(key, self.login)

        async with places:
            await self.store.obtain(key, make)
            if not self.store.open_to(key, self.login):
                # That its digest is known proves nothing: who has no such login must have the content.
                async with self.store.temporary() as proof:
                    await make(proof)
        self.progress.done += 1
        self._got(diff_id, blob.size)

    def _is_here(self, key: str) -> bool:
        return self.store.find(key) is not None and self.store.open_to(key, self.login)

    async def _make(self, target: Path, diff_id: str, blob: Blob) -> None:
        whose = f"-{hashlib.sha256(self.login.encode()).hexdigest()[:12]}" if self.login else ""
        file = self.store.downloads / f"{blob.digest}{whose}"
        for _ in range(2):
            growing = Growing(file, blob)
            continued = growing.there > 0
            try:
                await self._unpack(target, diff_id, growing)
            except RegistryError:
                raise  # the next pull goes on with what has arrived
            except ImageError as error:
                file.unlink(missing_ok=True)
                if not continued or isinstance(error, FullDiskError):
                    raise
                await self.store.remove(target.name)  # what an earlier process left may be at fault
            else:
                file.unlink(missing_ok=True)
                return
            finally:
                growing.close()

    async def _unpack(self, target: Path, diff_id: str, growing: Growing) -> None:
        """Download and unpack at the same time. What is unpacked gets its name only when both were right."""
        getting = asyncio.create_task(self._get(diff_id, growing))
        try:
            await unpack_layer(self.store, target, diff_id, lambda: growing, growing.stop)
        except ImageError as error:
            if os.strerror(errno.ENOSPC) in str(error):
                raise FullDiskError(self.store.folder) from error
            raise
        finally:
            getting.cancel()
            await ended(getting)

    async def _get(self, diff_id: str, growing: Growing) -> None:
        def received(count: int) -> None:
            self.progress.downloaded_bytes += count
            self._got(diff_id, growing.there)

        try:
            await download(self.client, self.servers, self.reference.repository, growing, received)
        except ImageError as error:
            growing.fail(error)
        except BaseException:
            growing.stop()  # or who reads would wait for ever
            raise

    def _got(self, diff_id: str, count: int) -> None:
        self.got[diff_id] = count
        self.progress.bytes = sum(self.got.values())
        self.on_progress(self.progress)


async def _read_all(response: aiohttp.ClientResponse, most: int, server: Endpoint) -> bytes:
    body = b""
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > most:
            raise RegistryError(f"{server.host} sends more than the {most} bytes expected; refused")
    return body


def _check_digest(body: bytes, digest: str, server: Endpoint) -> None:
    found = f"sha256:{hashlib.sha256(body).hexdigest()}"
    if digest.startswith("sha256:") and digest != found:
        raise RegistryError(
            f"what {server.host} sent has the digest {found[:19]}…, not {digest[:19]}…; it is damaged"
        )


def _check_room(folder: Path, sizes: Sequence[int]) -> None:
    """Unpacked they are not smaller than this, and one at least lies there compressed at the same time."""
    status = os.statvfs(folder)
    free = status.f_bavail * status.f_frsize
    needed = sum(sizes) + max(sizes, default=0)
    if needed > free:
        raise ImageError(
            f"it needs at least {needed / 1e6:,.0f} MB, and {free / 1e6:,.0f} MB are free at {folder}: make "
            f"room, for instance with `proctor images gc`, or set PROCTOR_HOME to a folder on another disk"
        )
