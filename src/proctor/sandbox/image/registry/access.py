"""Which servers have the images of a registry, in which order they are tried, and how often."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from proctor.errors import UsageError
from proctor.outgoing import is_loopback
from proctor.sandbox.image.registry.reference import Reference
from proctor.settings import Settings

_MIRROR = re.compile(r"(?P<registry>[^=/\s]+)=(?P<host>[\w.\-\[\]:]+)(?P<prefix>(?:/[\w.\-]+)*)/?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How often something is tried again, and how long it may take."""

    tries: int = 5
    tries_to_connect: int = 2
    first_wait_s: float = 0.5
    longest_wait_s: float = 20.0
    longest_retry_after_s: float = 60.0
    """A server that asks for a longer wait than this is not waited for."""
    connect_s: float = 10.0
    silence_s: float = 60.0
    """Without a byte for this long a connection counts as cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A server that has images of a registry: the registry itself, or a mirror of it."""

    host: str
    registry: str
    """The registry as images name it, for messages and credentials."""
    schemes: tuple[str, ...] = ("https",)
    """What is tried, in this order."""
    prefix: str = ""
    """What comes before the repository in its addresses."""
    is_mirror: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What the settings say about registries."""

    mirrors: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """Registry → host and prefix of each of its mirrors."""
    plain_http: frozenset[str] = frozenset()
    ca_bundle: str = ""
    """File of certificates that are trusted besides those of this machine."""
    patience: Patience = field(default_factory=Patience)


def access_of(settings: Settings) -> Access:
    """Read the settings; UsageError when a mirror is not written as `registry=host`."""
    mirrors: dict[str, tuple[tuple[str, str], ...]] = {}
    for each in settings.registry_mirrors:
        found = _MIRROR.fullmatch(each)
        if not found:
            raise UsageError(
                f"setting 'registry_mirrors': {each!r} must be REGISTRY=HOST or REGISTRY=HOST/PATH, "
                f"as in docker.io=mirror.example:5000"
            )
        known = mirrors.get(found["registry"], ())
        mirrors[found["registry"]] = (*known, (found["host"], found["prefix"].lstrip("/")))
    return Access(
        mirrors=mirrors,
        plain_http=frozenset(settings.plain_http_registries),
        ca_bundle=settings.ca_bundle,
    )


def endpoints(access: Access, reference: Reference) -> tuple[Endpoint, ...]:
    """The servers to ask for an image, mirrors first."""
    mirrors = access.mirrors.get(reference.registry, ())
    return tuple(
        Endpoint(
            host=host,
            registry=reference.registry,
            schemes=_schemes(access, host),
            prefix=prefix,
            is_mirror=number < len(mirrors),
        )
        for number, (host, prefix) in enumerate((*mirrors, (reference.host, "")))
    )


def _schemes(access: Access, host: str) -> tuple[str, ...]:
    if host in access.plain_http:
        return ("http",)
    return ("http", "https") if is_loopback(host) else ("https",)
