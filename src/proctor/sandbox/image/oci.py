"""Images from files: what `podman save` and `docker save` write, and OCI layouts, unpacked layer by layer.

Files may come from anywhere, so a layer is kept under a name only if its content has that digest.
"""

from __future__ import annotations

import contextlib
import json
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from proctor.errors import ImageError, LastingImageError, UsageError
from proctor.sandbox.image.layer_stream import obtain_layer
from proctor.sandbox.image.layers import LayerStore
from proctor.sandbox.image.manifest import MOST_JSON_BYTES, digest_value, read_configuration
from proctor.sandbox.image.references import Image, References, Settings, architecture, normal

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


async def import_image(
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
            keys = [
                await obtain_layer(store, digest, partial(open_member, place))
                for digest, place in described.layers
            ]
    except tarfile.ReadError as error:
        raise UsageError(
            f"{path}: not an image archive, or damaged; `podman save --format docker-archive` and "
            "`docker save` write them"
        ) from error
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
            size_bytes=sum(map(store.size_bytes, keys)),
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
        fitting = [
            each
            for each in manifest["manifests"]
            if dict(each.get("platform") or {}).get("architecture") == architecture()
        ]
        manifest = _json(open_member, _blob((fitting or manifest["manifests"])[0]["digest"]))
    places = [_blob(each["digest"]) for each in manifest["layers"]]
    return _described(open_member, _blob(manifest["config"]["digest"]), names, places)


def _described(
    open_member: Open, config_name: str, names: tuple[str, ...], places: Sequence[str]
) -> Described:
    with open_member(config_name) as file:
        config = read_configuration(file.read(MOST_JSON_BYTES))
    if config.architecture != architecture():
        raise LastingImageError(f"the image is for {config.architecture}, this machine is {architecture()}")
    if len(config.diff_ids) != len(places):
        raise ImageError(f"the image has {len(config.diff_ids)} layers and {len(places)} files for them")
    return Described(
        id=config.id,
        names=names,
        settings=config.settings,
        layers=tuple(zip(config.diff_ids, places, strict=True)),
    )


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
        return json.loads(file.read(MOST_JSON_BYTES))


def _blob(digest: str) -> str:
    return f"blobs/sha256/{digest_value(digest)}"
