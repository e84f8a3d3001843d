"""Which server commands talk to, and with which token: the environment, or the file that a login wrote."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from proctor.disk import read_small
from proctor.errors import UsageError
from proctor.settings import Settings

LOCAL = "local"
"""As the address of the server: the store of this machine, whatever a login said."""
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Server:
    """A server, and our token for it."""

    url: str
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Logins:
    """What logins wrote: the server that is used, and the token of each."""

    current: str = ""
    tokens: Mapping[str, str] = field(default_factory=dict, repr=False)


def server_of(settings: Settings) -> Server | None:
    """The server that commands talk to; None: the store of this machine."""
    if settings.url == LOCAL:
        return None
    file = settings.login_file.expanduser()
    if not settings.url and not file.exists():
        return None
    known = read(file) if file.exists() else Logins()
    url = settings.url.rstrip("/") or known.current
    return Server(url, settings.token or known.tokens.get(url, "")) if url else None


def read(file: Path) -> Logins:
    """The logins of a file; UsageError when others may read it."""
    try:
        if file.stat().st_mode & 0o077:
            raise UsageError(f"{file}: others may read your tokens; make it yours alone: chmod 600 {file}")
        found = json.loads(read_small(file, _MOST_BYTES))
        return Logins(str(found["current"]), {str(url): str(key) for url, key in found["tokens"].items()})
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise UsageError(f"{file}: cannot be read; remove it and log in again: {error}") from error


def write(file: Path, logins: Logins) -> None:
    """Write the logins for their owner's eyes alone."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, beside = tempfile.mkstemp(prefix=".servers-", dir=file.parent)
        with os.fdopen(handle, "w") as stream:
            json.dump({"current": logins.current, "tokens": dict(logins.tokens)}, stream)
        Path(beside).replace(file)
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror or error}") from error


def log_in(file: Path, server: Server) -> None:
    """Keep a token, and talk to its server from now on."""
    known = read(file) if file.exists() else Logins()
    write(file, Logins(server.url, {**known.tokens, server.url: server.token}))


def log_out(file: Path) -> str:
    """Forget the current server and its token; its address, empty when there was none."""
    if not file.exists():
        return ""
    known = read(file)
    write(file, Logins("", {url: key for url, key in known.tokens.items() if url != known.current}))
    return known.current
