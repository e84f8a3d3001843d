"""Images by name: what a name means, and what is known of those that were unpacked here."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from proctor.errors import UsageError
from proctor.sandbox.base import PATH

HUB = "docker.io"
_HUB_HOST = "registry-1.docker.io"
_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?")
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LONGEST = 255
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "i686": "386", "armv7l": "arm"}
_LIBRARY = "docker.io/library/"
SCRATCH = "scratch"
"""The name of the image that has nothing in it."""
_HUB = frozenset({"docker.io", "index.docker.io", "registry-1.docker.io"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How commands run in an image."""

    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = "root"
    onbuild: tuple[str, ...] = ()
    """Instructions that an image wants to come first in every Dockerfile that is built on it."""
    entrypoint: tuple[str, ...] = ()
    """What a container of the image starts; steps of a build run without it."""


HOST = Settings(env={"PATH": PATH})
"""How commands run on this machine's own system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image whose layers are unpacked."""

    reference: str
    id: str
    layers: tuple[str, ...]
    settings: Settings
    source: str
    """`archive`, `registry`, or the engine it came from."""
    stamp: str = ""
    """State of that engine's storage when it was last asked; as long as it stays, the answer does."""
    digest: str = ""
    """`sha256:…` of its manifest in the registry, for this platform; `NAME@DIGEST` names it for good."""
    platform: str = ""
    """`linux/amd64` and the like, for images from a registry."""
    pulled_at: float = 0.0
    """When the registry was last asked, in seconds since 1970."""
    size_bytes: int = 0
    """Of the content of its layers; 0 where that is not known."""
    login: str = ""
    """For what the login was with which it was pulled: `ghcr.io/acme`. Empty: it is open to all."""
    kept: bool = False
    """A person pulled it: it stays until a person removes it."""

    @property
    def pin(self) -> str:
        """What tells this image from every other one: its manifest's digest, else the id it has here."""
        return self.digest or f"sha256:{self.id}"


def architecture() -> str:
    """This machine, as images name it."""
    return _MACHINES.get(os.uname().machine, os.uname().machine)


def normal(reference: str) -> str:
    """The full name of an image: `debian` is `docker.io/library/debian:latest`."""
    name, at, digest = reference.strip().partition("@")
    first, slash, _ = name.partition("/")
    if not slash:
        name = _LIBRARY + name
    elif first in _HUB:
        rest = name.partition("/")[2]
        name = f"docker.io/{rest}" if "/" in rest else _LIBRARY + rest
    elif not ("." in first or ":" in first or first == "localhost"):
        name = f"docker.io/{name}"
    if at:
        return f"{name}@{digest}"
    return name if re.search(r":[^/]+$", name) else f"{name}:latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """An image's name."""

    registry: str
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def host(self) -> str:
        """Where its registry answers."""
        return _HUB_HOST if self.registry == HUB else self.registry

    @property
    def version(self) -> str:
        """What to request from the registry: the digest where there is one."""
        return self.digest or self.tag

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.registry}/{self.repository}{tag}{digest}"


def parse(text: str) -> Reference:
    """Take a name apart; UsageError says what is wrong with it."""
    name, _, digest = normal(text).partition("@")
    registry, _, rest = name.partition("/")
    repository, _, tag = rest.partition(":")
    problem = ""
    if not text.strip() or text.strip() != text or not rest:
        problem = "a name is REPOSITORY:TAG, or REGISTRY/REPOSITORY:TAG"
    elif not _HOST.fullmatch(registry):
        problem = f"{registry!r} is not a registry's host name"
    elif not _REPOSITORY.fullmatch(repository) or len(repository) > _LONGEST:
        problem = (
            f"{repository!r} is not a repository's name; lower-case letters, digits and . _ - / are allowed"
        )
    elif tag and not _TAG.fullmatch(tag):
        problem = f"{tag!r} is not a tag; letters, digits and . _ - are allowed, at most 128"
    elif "@" in text and not _DIGEST.fullmatch(digest):
        problem = f"{digest[:80]!r} is not a digest; it must be sha256: and 64 hexadecimal digits"
    if problem:
        raise UsageError(f"{text[:200]!r} is not the name of an image: {problem}")
    return Reference(registry=registry, repository=repository, tag=tag, digest=digest)


def untagged(image: Image) -> str:
    """The name of an image without tag and digest."""
    return re.sub(r":[^/:]+$", "", image.reference.partition("@")[0])


class References:
    """Images by name, one small file each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, reference: str) -> Image | None:
        """The image of that name, as far as this folder knows; by digest also under another name's tag."""
        found = _read(self._file(reference))
        name, at, digest = normal(reference).partition("@")
        if found or not at:
            return found
        return next((each for each in self.all() if each.digest == digest and untagged(each) == name), None)

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
        layers, settings = tuple(value["layers"]), settings_from(value["settings"])
        return Image(**{**value, "layers": layers, "settings": settings})
    except (KeyError, TypeError):
        return None


def settings_from(value: dict[str, Any]) -> Settings:
    """Settings as they were written down."""
    lists = {name: tuple(value.get(name, ())) for name in ("onbuild", "entrypoint")}
    return Settings(**{**value, **lists})
