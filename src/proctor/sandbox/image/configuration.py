"""What an image's configuration says: its layers, how commands run in it, which machine it is for."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proctor.errors import LastingImageError
from proctor.sandbox.image.recipe import Settings

MOST_JSON_BYTES = 8 << 20
MOST_LAYERS = 190
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "i686": "386", "armv7l": "arm"}
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """An image's configuration, checked."""

    id: str
    os: str
    architecture: str
    settings: Settings
    diff_ids: tuple[str, ...]
    """The digest of each layer's uncompressed content, lowest first."""


def architecture() -> str:
    """This machine, as images name it."""
    return _MACHINES.get(os.uname().machine, os.uname().machine)


def digest_value(text: object) -> str:
    """The hexadecimal part of a `sha256:` digest; ValueError for anything else."""
    found = _DIGEST.fullmatch(str(text))
    if not found:
        raise ValueError(f"{str(text)[:100]!r} is not a sha256 digest")
    return found[1]


def read_configuration(data: bytes) -> Configuration:
    """Read a configuration; KeyError, TypeError or ValueError when it is not one."""
    config: Mapping[str, Any] = json.loads(data)
    diff_ids = tuple(digest_value(each) for each in config["rootfs"]["diff_ids"])
    if len(diff_ids) > MOST_LAYERS:
        raise LastingImageError(f"the image has {len(diff_ids)} layers; {MOST_LAYERS} is the maximum")
    inner = config.get("config") or {}
    pairs = [str(each).partition("=") for each in inner.get("Env") or ()]
    return Configuration(
        id=hashlib.sha256(data).hexdigest(),
        os=str(config.get("os") or "linux"),
        architecture=str(config.get("architecture") or architecture()),
        settings=Settings(
            env={key: value for key, _, value in pairs},
            workdir=str(inner.get("WorkingDir") or "/"),
            user=str(inner.get("User") or "root"),
            onbuild=tuple(str(each) for each in inner.get("OnBuild") or ()),
            entrypoint=tuple(str(each) for each in inner.get("Entrypoint") or ()),
        ),
        diff_ids=diff_ids,
    )
