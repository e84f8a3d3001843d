"""Images that were unpacked here: which layers they are made of and how commands run in them."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from proctor.sandbox.image.recipe import Settings

_LIBRARY = "docker.io/library/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image whose layers are unpacked."""

    reference: str
    id: str
    layers: tuple[str, ...]
    settings: Settings
    source: str
    """`archive`, or the engine it came from."""
    stamp: str = ""
    """State of that engine's storage when it was last asked; as long as it stays, the answer does."""


def normal(reference: str) -> str:
    """The full name of an image: `debian` is `docker.io/library/debian:latest`."""
    name, at, digest = reference.strip().partition("@")
    first, slash, _ = name.partition("/")
    if not slash:
        name = _LIBRARY + name
    elif not ("." in first or ":" in first or first == "localhost"):
        name = f"docker.io/{name}"
    if at:
        return f"{name}@{digest}"
    return name if re.search(r":[^/]+$", name) else f"{name}:latest"


class References:
    """Images by name, one small file each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, reference: str) -> Image | None:
        """The image of that name, as far as this folder knows."""
        return _read(self._file(reference))

    def all(self) -> Iterator[Image]:
        """Every image."""
        for file in sorted(self.folder.glob("*.json")):
            if image := _read(file):
                yield image

    def put(self, image: Image) -> None:
        """Remember an image under its name."""
        write_json(self._file(image.reference), asdict(image))

    def remove(self, reference: str) -> None:
        """Forget a name."""
        self._file(reference).unlink(missing_ok=True)

    def _file(self, reference: str) -> Path:
        return self.folder / f"{hashlib.sha256(normal(reference).encode()).hexdigest()[:32]}.json"


def write_json(file: Path, value: dict[str, Any]) -> None:
    """Write a file that is either the old one or the new one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    writing = file.with_name(f".{file.name}.{os.urandom(4).hex()}")
    writing.write_text(json.dumps(value))
    writing.replace(file)


def read_json(file: Path) -> dict[str, Any]:
    """What a file says; nothing when it says nothing usable."""
    try:
        value = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _read(file: Path) -> Image | None:
    value = read_json(file)
    try:
        return Image(
            reference=value["reference"],
            id=value["id"],
            layers=tuple(value["layers"]),
            settings=Settings(**value["settings"]),
            source=value["source"],
            stamp=value.get("stamp", ""),
        )
    except (KeyError, TypeError):
        return None
