"""The name of an image, taken apart: registry, repository, and a tag, a digest, or both."""

from __future__ import annotations

import re
from dataclasses import dataclass

from proctor.errors import UsageError
from proctor.sandbox.image.references import normal

HUB = "docker.io"
_HUB_HOST = "registry-1.docker.io"
_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?")
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LONGEST = 255


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
