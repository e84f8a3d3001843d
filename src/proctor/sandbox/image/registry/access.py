"""Which servers have the images of a registry, how often they are tried, and what their refusals mean."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from proctor.errors import ImageError, UsageError
from proctor.outbound import Reach
from proctor.outgoing import is_loopback
from proctor.sandbox.image.references import Reference
from proctor.sandbox.image.registry.credentials import Found
from proctor.settings import Settings

_LONGEST_DETAIL = 200
_GRANT = re.compile(r"(?P<name>[\w.\-\[\]:]+(?:/[\w.\-]+)*)/?=(?P<project>[\w.\-]+|\*)")
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

    @property
    def login_name(self) -> str:
        """Under which name a login for it is saved."""
        return self.host if self.is_mirror else self.registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What the settings say about registries."""

    mirrors: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """Registry → host and prefix of each of its mirrors."""
    plain_http: frozenset[str] = frozenset()
    ca_bundle: str = ""
    """File of certificates that are trusted besides those of this machine."""
    patience: Patience = field(default_factory=Patience)
    project: str | None = None
    """On whose behalf a server asks; None: a person of this machine does."""
    logins: tuple[tuple[str, str], ...] = ()
    """Registry, or registry and path → the project that may use the login for it; `*`: all may."""
    reach: Reach = field(default_factory=Reach)

    def grant(self, registry: str, repository: str) -> str:
        """What part of a registry's images its login may be used for; empty: it may not be used."""
        if self.project is None:
            return registry
        name = f"{registry}/{repository}"
        return next((prefix for prefix in self._granted if f"{name}/".startswith(f"{prefix}/")), "")

    def may_use(self, reference: Reference, login: str) -> bool:
        """Whether an image that is here may be given away: what was pulled with a login is not for all."""
        if self.project is None or not login or login in self._granted:
            return True
        return bool(self.grant(login.partition("/")[0], reference.repository))

    @property
    def _granted(self) -> list[str]:
        return [prefix for prefix, project in self.logins if project in {self.project, "*"}]


def access_of(settings: Settings, project: str | None = None, allow: Sequence[str] = ()) -> Access:
    """Read the settings; UsageError when a mirror is not written as `registry=host`.

    `project`: on whose behalf a server pulls. `allow`: what may be reached beyond the internet then.
    """
    logins = []
    for text in settings.registry_logins:
        match = _GRANT.fullmatch(text)
        if not match:
            raise UsageError(
                f"setting 'registry_logins': {text!r} must be REGISTRY=PROJECT or REGISTRY/PATH=PROJECT, "
                f"as in ghcr.io/acme=team; REGISTRY=* is for every project"
            )
        logins.append((match["name"], match["project"]))
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
        project=project,
        logins=tuple(logins),
        reach=Reach(
            allow=tuple(allow),
            servers=frozenset(
                [
                    *settings.plain_http_registries,
                    *(host for known in mirrors.values() for host, _ in known),
                    *(name.partition("/")[0] for name, granted in logins if granted in {project, "*"}),
                ]
            ),
        ),
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
    name = endpoint.login_name
    shown = f" ({detail})" if detail else ""
    login = f"log in with `podman login {name}` or `docker login {name}`"
    source = found.login.source if found.login else ""
    mirror = "set a mirror (setting registry_mirrors)"
    note = f"; {found.note}" if found.note else ""
    if status == 401 and not source:
        return (
            f"{server} wants a login{shown}: the image is private or does not exist there; check the name, "
            f"or {found.instead or login}{note}"
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
