"""What an image is made of, and how commands run in it: its manifest and configuration, read and checked."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proctor.errors import ImageError, LastingImageError, UsageError
from proctor.sandbox.image.references import Settings, architecture

MOST_JSON_BYTES = 8 << 20
MOST_LAYERS = 190
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
MOST_BYTES = 4 << 20
_DOCKER, _OCI = "application/vnd.docker.", "application/vnd.oci.image."
_INDEXES = (f"{_OCI}index.v1+json", f"{_DOCKER}distribution.manifest.list.v2+json")
_MANIFESTS = (f"{_OCI}manifest.v1+json", f"{_DOCKER}distribution.manifest.v2+json")
_CONFIGS = (f"{_OCI}config.v1+json", f"{_DOCKER}container.image.v1+json")
_LAYERS = frozenset(
    [f"{_OCI}layer.v1.tar{kind}" for kind in ("", "+gzip", "+zstd")]
    + [f"{_DOCKER}image.rootfs.diff.tar{kind}" for kind in ("", ".gzip", ".zstd")]
)
ACCEPT = ", ".join((*_INDEXES, *_MANIFESTS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """An image's configuration, checked."""

    id: str
    os: str
    architecture: str
    settings: Settings
    diff_ids: tuple[str, ...]
    """The digest of each layer's uncompressed content, lowest first."""


def digest_value(text: object) -> str:
    """The hexadecimal part of a `sha256:` digest; ValueError for anything else."""
    found = _DIGEST.fullmatch(str(text))
    if not found:
        raise ValueError(f"{str(text)[:100]!r} is not a sha256 digest")
    return found[1]


def settings_of(config: Mapping[str, Any]) -> Settings:
    """How commands run, as the `config` of an image says it."""
    pairs = [str(each).partition("=") for each in config.get("Env") or ()]
    return Settings(
        env={key: value for key, _, value in pairs},
        workdir=str(config.get("WorkingDir") or "/"),
        user=str(config.get("User") or "root"),
        onbuild=tuple(str(each) for each in config.get("OnBuild") or ()),
        entrypoint=tuple(str(each) for each in config.get("Entrypoint") or ()),
    )


def read_configuration(data: bytes) -> Configuration:
    """Read a configuration; KeyError, TypeError or ValueError when it is not one."""
    config: Mapping[str, Any] = json.loads(data)
    diff_ids = tuple(digest_value(each) for each in config["rootfs"]["diff_ids"])
    if len(diff_ids) > MOST_LAYERS:
        raise LastingImageError(f"the image has {len(diff_ids)} layers; {MOST_LAYERS} is the maximum")
    return Configuration(
        id=hashlib.sha256(data).hexdigest(),
        os=str(config.get("os") or "linux"),
        architecture=str(config.get("architecture") or architecture()),
        settings=settings_of(config.get("config") or {}),
        diff_ids=diff_ids,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """What an image runs on."""

    os: str = "linux"
    architecture: str
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(filter(None, (self.os, self.architecture, self.variant)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """Something a registry stores under its digest."""

    digest: str
    """Hexadecimal sha256."""
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """An image: its configuration and its layers, lowest first."""

    config: Blob
    layers: tuple[Blob, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """The same image for several platforms."""

    entries: tuple[tuple[Platform, Blob], ...]


def this_platform() -> Platform:
    """What this machine runs."""
    return Platform(architecture=architecture(), variant="v7" if os.uname().machine == "armv7l" else "")


def parse_platform(text: str) -> Platform:
    """Read `os/architecture` or `os/architecture/variant`."""
    parts = text.split("/")
    if len(parts) not in {2, 3} or not all(each and each.isalnum() for each in parts):
        raise UsageError(f"{text!r} is not a platform; write it as linux/amd64 or linux/arm/v7")
    return Platform(os=parts[0], architecture=parts[1], variant=parts[2] if len(parts) > 2 else "")


def read_manifest(body: bytes) -> Manifest | Index:
    """Read a manifest or an index; ImageError says why it is not one of an image."""
    try:
        value = json.loads(body)
        kind = str(value.get("mediaType") or "")
        if value.get("schemaVersion") == 1:
            raise ImageError(
                "it is stored in docker's old format (schema 1), which is no longer supported; push it again "
                "with a current docker or podman"
            )
        if kind in _INDEXES or (not kind and "manifests" in value):
            return _index(value)
        if kind in _MANIFESTS or (not kind and "layers" in value):
            return _manifest(value)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise ImageError(f"its manifest cannot be read: {error}") from error
    raise ImageError(f"its manifest is of an unknown kind: {kind[:100] or 'none is given'}")


def _index(value: Mapping[str, Any]) -> Index:
    entries = []
    for each in value["manifests"]:
        named = dict(each.get("platform") or {})
        if each.get("mediaType", _MANIFESTS[0]) not in _MANIFESTS or named.get("os") == "unknown":
            continue  # a signature, or what a builder says about its build
        platform = Platform(
            os=_word(named.get("os"), "linux"),
            architecture=_word(named.get("architecture"), "?"),
            variant=_word(named.get("variant"), ""),
        )
        entries.append((platform, _blob(each)))
    return Index(entries=tuple(entries))


def _manifest(value: Mapping[str, Any]) -> Manifest:
    kind = str(value["config"].get("mediaType") or "")
    if kind not in _CONFIGS or value.get("artifactType"):
        shown = str(value.get("artifactType") or kind)[:100]
        raise LastingImageError(
            f"it is not a container image, but something else kept in a registry ({shown})"
        )
    layers = value["layers"]
    if len(layers) > MOST_LAYERS:
        raise LastingImageError(f"it has {len(layers)} layers; {MOST_LAYERS} is the maximum")
    for each in layers:
        named = str(each.get("mediaType") or "")
        if each.get("urls") or "foreign" in named or "nondistributable" in named:
            raise ImageError(
                "one of its layers is stored outside the registry (a foreign layer); those are refused"
            )
        if named not in _LAYERS:
            raise ImageError(f"one of its layers is of an unknown kind: {named[:100] or 'none is given'}")
    return Manifest(config=_blob(value["config"]), layers=tuple(_blob(each) for each in layers))


def _blob(value: Mapping[str, Any]) -> Blob:
    size = value["size"]
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise ValueError(f"{size!r} is not a size")
    return Blob(digest=digest_value(value["digest"]), size=size)


def _word(value: object, default: str) -> str:
    text = str(value or default)[:40]
    return text if text.isprintable() else default


def choose(index: Index, wanted: Platform) -> Blob:
    """The manifest for a platform; ImageError lists the platforms that there are."""
    fitting = [
        (platform.variant, blob)
        for platform, blob in index.entries
        if (platform.os, platform.architecture) == (wanted.os, wanted.architecture)
        and (not wanted.variant or platform.variant in {wanted.variant, ""})
    ]
    if not fitting:
        there = ", ".join(dict.fromkeys(str(platform) for platform, _ in index.entries)) or "none"
        raise LastingImageError(f"it does not exist for {wanted}; available: {there}")
    order = {wanted.variant: 0, "": 1, "v8": 2, "v1": 2}
    return min(fitting, key=lambda each: order.get(each[0], 3))[1]
