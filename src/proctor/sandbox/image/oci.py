"""Images from files: what `podman save` and `docker save` write, and OCI layouts, unpacked layer by layer.

Files may come from anywhere, so a layer is kept under a name only if its content has that digest.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import json
import os
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from proctor.errors import ImageError, SandboxError
from proctor.sandbox import state
from proctor.sandbox.image.layers import LayerStore
from proctor.sandbox.image.recipe import Settings
from proctor.sandbox.image.references import Image, References, normal

_MOST_JSON_BYTES = 8 << 20
_MOST_LAYERS = 190
_BLOCK = 1 << 20
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_REF_NAME = "org.opencontainers.image.ref.name"

Open = Callable[[str], IO[bytes]]
"""Opens a member by its path; KeyError when there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """An image as its file describes it."""

    id: str
    names: tuple[str, ...]
    settings: Settings
    layers: tuple[tuple[str, str], ...]
    """For each layer, lowest first: the digest of its content, and the member that holds it."""


async def bring(
    store: LayerStore,
    references: References,
    path: Path,
    *,
    name: str = "",
    source: str = "archive",
    stamp: str = "",
    known_id: str = "",
) -> tuple[Image, ...]:
    """Unpack an image's layers and remember it under its names, or under the one given.

    An engine may write another configuration than it keeps; `known_id` is the id that it knows.
    """
    await store.open()
    try:
        with _opened(path) as open_member:
            described = describe(open_member, path)
            names = (name,) if name else described.names
            if not names:
                raise ImageError(f"{path}: the image has no name; give it one with --name NAME:TAG")
            keys = [await _layer(store, open_member, digest, place) for digest, place in described.layers]
    except (tarfile.TarError, OSError, KeyError, ValueError, TypeError, EOFError) as error:
        raise ImageError(f"{path}: not an image that can be read: {error}") from error
    images = tuple(
        Image(
            reference=normal(each),
            id=known_id or described.id,
            layers=tuple(keys),
            settings=described.settings,
            source=source,
            stamp=stamp,
        )
        for each in names
    )
    for image in images:
        references.put(image)
    return images


def describe(open_member: Open, path: Path) -> Described:
    """Read the manifest and the configuration."""
    try:
        manifest = _json(open_member, "manifest.json")
    except KeyError:
        return _describe_layout(open_member)
    if not isinstance(manifest, list) or len(manifest) != 1:
        raise ImageError(f"{path}: holds {len(manifest)} images; save one at a time")
    entry = manifest[0]
    config_name = str(entry["Config"])
    names = tuple(str(each) for each in entry.get("RepoTags") or ())
    return _described(open_member, config_name, names, [str(each) for each in entry["Layers"]])


def _describe_layout(open_member: Open) -> Described:
    found = _json(open_member, "index.json")["manifests"][0]
    names = tuple(filter(None, [dict(found.get("annotations") or {}).get(_REF_NAME, "")]))
    manifest = _json(open_member, _blob(found["digest"]))
    if "manifests" in manifest:
        arch = _MACHINES.get(os.uname().machine, os.uname().machine)
        fitting = [
            each
            for each in manifest["manifests"]
            if dict(each.get("platform") or {}).get("architecture") == arch
        ]
        manifest = _json(open_member, _blob((fitting or manifest["manifests"])[0]["digest"]))
    places = [_blob(each["digest"]) for each in manifest["layers"]]
    return _described(open_member, _blob(manifest["config"]["digest"]), names, places)


def _described(
    open_member: Open, config_name: str, names: tuple[str, ...], places: Sequence[str]
) -> Described:
    with open_member(config_name) as file:
        data = file.read(_MOST_JSON_BYTES)
    config: Mapping[str, Any] = json.loads(data)
    arch = _MACHINES.get(os.uname().machine, os.uname().machine)
    if config.get("architecture", arch) != arch:
        raise ImageError(f"the image is for {config['architecture']}, this machine is {arch}")
    digests = [_digest(each) for each in config["rootfs"]["diff_ids"]]
    if len(digests) != len(places) or len(digests) > _MOST_LAYERS:
        raise ImageError(f"the image has {len(digests)} layers and {len(places)} files for them")
    inner = config.get("config") or {}
    pairs = [str(each).partition("=") for each in inner.get("Env") or ()]
    settings = Settings(
        env={key: value for key, _, value in pairs},
        workdir=str(inner.get("WorkingDir") or "/"),
        user=str(inner.get("User") or "root"),
    )
    return Described(
        id=hashlib.sha256(data).hexdigest(),
        names=names,
        settings=settings,
        layers=tuple(zip(digests, places, strict=True)),
    )


async def _layer(store: LayerStore, open_member: Open, digest: str, place: str) -> str:
    key = f"oci-{digest}"

    async def make(target: Path) -> None:
        keeper = await store.keeper()
        await state.make_folders(keeper, target)
        reader, writer = os.pipe2(os.O_CLOEXEC)
        own_thread = ThreadPoolExecutor(1)  # a shared pool full of pumps would leave none to unpack
        pumping = asyncio.get_running_loop().run_in_executor(own_thread, _pump, open_member, place, writer)
        try:
            await state.unpack_below(keeper, reader, target.parent, target.name)
        except SandboxError as error:
            raise ImageError(f"layer {digest[:12]}: {error}") from error
        finally:
            os.close(reader)  # a pump that still writes then ends
            found = await pumping
            own_thread.shutdown()
        if found != digest:
            raise ImageError(
                f"layer {digest[:12]} has another content than its name says; the file is damaged"
            )

    await store.obtain(key, make)
    return key


def _pump(open_member: Open, place: str, writer: int) -> str:
    """Decompress a layer into a pipe to its end; the digest of what went through."""
    seen = hashlib.sha256()
    with open(writer, "wb", buffering=0) as out, open_member(place) as raw, _plain(raw) as stream:
        wanted = True
        while data := stream.read(_BLOCK):
            seen.update(data)
            view = memoryview(data)
            while wanted and view:
                try:
                    view = view[out.write(view) or 0 :]
                except BrokenPipeError:
                    wanted = False  # tar needs no padding at the end; the digest does
    return seen.hexdigest()


@contextlib.contextmanager
def _plain(raw: IO[bytes]) -> Iterator[IO[bytes]]:
    start = raw.read(4)
    raw.seek(0)
    if start[:2] == b"\x1f\x8b":
        with gzip.open(raw, "rb") as stream:
            yield cast("IO[bytes]", stream)
    elif start == b"\x28\xb5\x2f\xfd":
        raise ImageError("its layers are compressed with zstd: save it with --format docker-archive instead")
    else:
        yield raw


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Open]:
    if path.is_dir():
        base = path.resolve()

        def from_folder(name: str) -> IO[bytes]:
            place = (base / name).resolve()
            if not place.is_relative_to(base) or not place.is_file():
                raise KeyError(name)
            return place.open("rb")

        yield from_folder
        return
    with tarfile.open(path) as archive:

        def from_archive(name: str) -> IO[bytes]:
            file = archive.extractfile(name)
            if file is None:
                raise KeyError(name)
            return file

        yield from_archive


def _json(open_member: Open, name: str) -> Any:
    with open_member(name) as file:
        return json.loads(file.read(_MOST_JSON_BYTES))


def _blob(digest: str) -> str:
    return f"blobs/sha256/{_digest(digest)}"


def _digest(text: str) -> str:
    kind, _, value = str(text).partition(":")
    if kind != "sha256" or len(value) != 64 or set(value) - set("0123456789abcdef"):
        raise ValueError(f"{text!r} is not a digest")
    return value
