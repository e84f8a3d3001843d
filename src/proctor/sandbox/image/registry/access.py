"""Which servers have the images of a registry, how often they are tried, and what their refusals mean."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from proctor.errors import ImageError, UsageError
from proctor.outgoing import is_loopback
from proctor.sandbox.image.references import Reference
from proctor.sandbox.image.registry.credentials import Found
from proctor.settings import Settings

_LONGEST_DETAIL = 200
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


class RegistryError(ImageError):
    """A server refused, failed, or could not be reached."""

    def __init__(self, message: str, *, status: int = 0, retry: bool = False, wait_s: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.retry = retry
        """Whether asking again may help."""
        self.wait_s = wait_s
        """How long the server asked to wait."""
        self.lasting = status in {401, 403, 404}


def said_by_server(body: bytes, secrets: tuple[str, ...]) -> str:
    """What a server wrote about its refusal, fit to print: short, and without secrets it may repeat."""
    try:
        first = json.loads(body)["errors"][0]
        text = str(first.get("message") or first.get("code") or "")
    except (ValueError, LookupError, TypeError, AttributeError):
        return ""
    for secret in secrets:
        text = text.replace(secret, "[redacted]")
    return "".join(each if each.isprintable() else " " for each in text)[:_LONGEST_DETAIL].strip()


def refused(endpoint: Endpoint, status: int, detail: str, found: Found) -> str:
    """One sentence for an answer that is an error."""
    server = f"the mirror {endpoint.host}" if endpoint.is_mirror else endpoint.registry
    name = endpoint.host if endpoint.is_mirror else endpoint.registry
    shown = f" ({detail})" if detail else ""
    login = f"log in with `podman login {name}` or `docker login {name}`"
    source = found.login.source if found.login else ""
    mirror = "set a mirror (setting registry_mirrors)"
    note = f"; {found.note}" if found.note else ""
    if status == 401 and not source:
        return (
            f"{server} wants a login{shown}: the image is private or does not exist there; check the name, "
            f"or {login}{note}"
        )
    who = f"the account from {source}" if source else "anonymous users"
    sentences = {
        401: f"{server} does not accept the credentials from {source}{shown}: {login}",
        403: f"{server} denies access to {who}{shown}: {login} with an account that has access",
        404: f"{server} has no image of that name and tag{shown}: check both, and that it was pushed there",
        429: f"rate limit of {server} reached{shown}: {'wait' if source else login}, or {mirror}",
    }
    return (
        sentences.get(status)
        or f"{server} answered with status {status}{shown}: try again later, or {mirror}"
    )
