"""Addresses of git repositories: what they mean, which are refused, and how secrets stay out of sight."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from proctor.errors import UsageError
from proctor.outbound import OutOfReachError, Reach
from proctor.outgoing import proxy_for

PREFIX = "git+"
SCHEMES = ("https", "http", "ssh", "file")
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SCP = re.compile(r"(?:[\w.-]+@)?[A-Za-z0-9][\w.-]*:(?!/)[^\s:]+")
_USERINFO = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<user>[^/\s:]*)(?P<rest>[^/\s]*)@")
_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")
_UNSAFE = re.compile(r"[\x00-\x20\x7f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class GitUrl:
    """Where a repository is."""

    url: str
    """Without name and password, except the account that ssh needs."""
    credentials: str = field(default="", repr=False, compare=False)
    """`name:password` of an http address; never written anywhere."""
    foreign: bool = False
    """Whether a stranger names it: nothing of this machine's own (keys, helpers, settings) is used then."""
    pin: str = field(default="", repr=False, compare=False)
    """`host:port:address,address`: where a stranger's repository is, checked; git looks nothing up itself."""

    @property
    def scheme(self) -> str:
        """How it is reached."""
        return self.url.partition("://")[0] if "://" in self.url else "ssh"

    @property
    def name(self) -> str:
        """The last part of it, without `.git`."""
        return self.url.rstrip("/").replace(":", "/").rpartition("/")[2].removesuffix(".git") or "repository"


@dataclass(frozen=True, slots=True, kw_only=True)
class GitAddress:
    """A folder in a repository at one commit, branch or tag: `git+https://host/repo.git@COMMIT#path`."""

    repository: GitUrl
    ref: str
    path: str = ""
    """Inside the repository; empty for all of it."""

    @property
    def pinned(self) -> bool:
        """Whether it names a commit, which cannot move."""
        return bool(COMMIT.fullmatch(self.ref))

    @property
    def reference(self) -> str:
        """The address as it may be shown and stored."""
        inside = f"#{self.path}" if self.path else ""
        return f"{PREFIX}{self.repository.url}@{self.ref}{inside}"


def git_address(written: str) -> GitAddress:
    """Read an address. Without `@`, the repository's default branch is meant."""
    shown = redacted(written)
    before, _, inside = written.removeprefix(PREFIX).partition("#")
    scheme, separator, rest = before.partition("://")
    if not separator:
        raise UsageError(f"{shown}: expected git+https://HOST/REPOSITORY.git@COMMIT#PATH")
    authority, slash, place = rest.partition("/")
    place, at, ref = place.rpartition("@")
    if not at or ref.endswith(".git"):
        place, ref = f"{place}{at}{ref}", "HEAD"
    check_revision(ref, shown)
    repository = git_url(f"{scheme}://{authority}{slash}{place}")
    lower = ref.lower()
    return GitAddress(
        repository=repository,
        ref=lower if COMMIT.fullmatch(lower) else ref,
        path=inner_path(inside, shown),
    )


def check_revision(revision: str, shown: str) -> None:
    """UsageError unless a text can only be a commit, a branch or a tag to git."""
    if not revision or revision.startswith("-") or _UNSAFE.search(revision) or re.search(r"\.\.|:", revision):
        raise UsageError(f"{shown}: '{_printable(revision)}' is not a commit, a branch or a tag")


def foreign_url(written: str, reach: Reach) -> GitUrl:
    """Where a repository is that a stranger names: over HTTP, at an address that may be reached."""
    repository = git_url(written)
    if repository.scheme not in {"https", "http"}:
        raise UsageError(f"{repository.url}: a task can name repositories at https:// addresses only here")
    from yarl import URL

    url = URL(repository.url)
    host = (url.host or "").rstrip(".")
    if not _HOST.fullmatch(host):
        raise UsageError(f"{redacted(written)}: the address has no usable host")
    url = url.with_host(host)
    pin = ""
    try:
        addresses = reach.addresses(url)
        shown = ",".join(f"[{address}]" if ":" in address else address for address in addresses)
        host, pin = (addresses[0], "") if _is_number(host) else (host, f"{host}:{url.port}:{shown}")
    except OutOfReachError as error:
        raise UsageError(f"{repository.url}: {error}") from None
    except OSError:
        if _is_number(host) or not proxy_for(url):
            raise UsageError(f"{repository.url}: the name {host} cannot be resolved") from None
    return replace(repository, url=str(url.with_host(host)), foreign=True, pin=pin)


def _is_number(host: str) -> bool:
    """Whether a host is an address, in whatever form: libraries that read it must not differ about it."""
    try:
        socket.inet_aton(host)
    except OSError:
        return ":" in host
    return True


def git_url(written: str) -> GitUrl:
    """Read where a repository is; refuse what could be an option or run a program."""
    shown = redacted(written)
    if not written or written.startswith("-") or _UNSAFE.search(written):
        raise UsageError(f"'{_printable(shown)}' is not the address of a git repository")
    if "://" not in written:
        if _SCP.fullmatch(written) and "::" not in written:
            return GitUrl(url=written)
        raise UsageError(f"'{shown}' is not an address that Proctor fetches from; use {', '.join(SCHEMES)}")
    parts = urlsplit(written)
    scheme = parts.scheme.lower()
    if scheme not in SCHEMES:
        raise UsageError(f"{shown}: '{scheme}' is not possible here; use {', '.join(SCHEMES)}")
    return _with_scheme(scheme, parts, shown)


def _with_scheme(scheme: str, parts: SplitResult, shown: str) -> GitUrl:
    try:
        host, port = parts.hostname or "", parts.port
    except ValueError:
        # The text is not repeated: what looks like a port may be a part of a password.
        raise UsageError(f"an address of {scheme} has a port that is not a number") from None
    if parts.query or parts.fragment or not parts.path.strip("/"):
        raise UsageError(f"{shown}: expected {scheme}://HOST/REPOSITORY")
    if scheme == "file":
        return _file(parts.netloc, parts.path, shown)
    if not host or host.startswith("-") or parts.path.startswith("/-"):
        raise UsageError(f"{shown}: the address has no usable host")
    netloc = (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")
    name, _, password = parts.netloc.rpartition("@")[0].partition(":")
    if scheme == "ssh":
        if name.startswith("-"):
            raise UsageError(f"{shown}: the address has no usable host")
        return GitUrl(url=urlunsplit((scheme, f"{name}@{netloc}" if name else netloc, parts.path, "", "")))
    credentials = f"{unquote(name)}:{unquote(password)}" if name or password else ""
    return GitUrl(url=urlunsplit((scheme, netloc, parts.path, "", "")), credentials=credentials)


def inner_path(written: str, shown: str) -> str:
    """A clean path inside a repository."""
    path = PurePosixPath(written)
    if path.is_absolute() or ".." in path.parts or ".git" in path.parts or _control(written):
        raise UsageError(f"{shown}: '{_printable(written)}' leads out of the repository")
    return "" if str(path) == "." else str(path)


def redacted(text: str) -> str:
    """The text without the names and passwords of addresses; ssh keeps its account, which is no secret."""

    def hide(match: re.Match[str]) -> str:
        scheme = match["scheme"]
        ssh = scheme.lower().removeprefix(PREFIX) == "ssh"
        return f"{scheme}://{match['user']}@" if ssh and match["user"] else f"{scheme}://"

    return _USERINFO.sub(hide, text)


def without_secrets(value: Any) -> Any:
    """Plain data in which no address of a dataset has a name or password."""
    if isinstance(value, Mapping):
        return {key: without_secrets(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(each) for each in value]
    return redacted(value) if isinstance(value, str) and value.startswith(PREFIX) else value


def _file(netloc: str, path: str, shown: str) -> GitUrl:
    if netloc not in {"", "localhost"}:
        raise UsageError(f"{shown}: expected file:///ABSOLUTE/PATH")
    return GitUrl(url=f"file://{path}")


def _control(text: str) -> bool:
    return any(ord(each) < 0x20 or ord(each) == 0x7F for each in text)


def _printable(text: str) -> str:
    return text.encode("unicode_escape").decode()[:200]
