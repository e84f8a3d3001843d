"""Logins for registries, from the files and helpers that docker and podman use. They are never shown."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proctor.processes import host_environment
from proctor.sandbox.image.references import HUB

_HUB_KEY = "https://index.docker.io/v1/"
_HUB_NAMES = (HUB, "index.docker.io", "registry-1.docker.io")
_OF_HELPERS = (
    "XDG_*", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "GNUPGHOME", "GPG_TTY",
    "PASSWORD_STORE_*", "DOCKER_*", "GH_TOKEN", "GITHUB_TOKEN",
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION",
    "AWS_DEFAULT_REGION", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_ROLE_*",
    "AWS_WEB_IDENTITY_*", "AWS_CONTAINER_*", "AWS_SDK_LOAD_CONFIG", "AWS_ECR_*", "AWS_CA_BUNDLE",
    "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "CLOUDSDK_*",
    "AZURE_CLIENT_*", "AZURE_TENANT_ID", "AZURE_CONFIG_DIR", "AZURE_FEDERATED_*", "AZURE_AUTHORITY_HOST",
)  # fmt: skip
"""What credential helpers read: where logins are stored, and the accounts of clouds that make some.

Name by name where a beginning would take a key of a model's provider along.
"""
_HELPER_NAME = re.compile(r"[\w.-]+", re.ASCII)
_HELPER_S = 30
_TOKEN_USER = "<token>"  # noqa: S105 - what helpers write instead of a user


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """The login that is sent to a registry."""

    user: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    """Exchanged for tokens instead of a password."""
    registry_token: str = field(default="", repr=False)
    """Sent as it is."""
    source: str = ""
    """The file or helper it comes from."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not appear in any message."""
        pair = base64.b64encode(f"{self.user}:{self.password}".encode()).decode() if self.password else ""
        return tuple(filter(None, (self.password, self.identity_token, self.registry_token, pair)))

    @property
    def basic(self) -> str:
        """The value of an `Authorization` header."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A login, or none; and why one that is configured cannot be used."""

    login: Login | None = None
    note: str = ""
    instead: str = ""
    """What helps where a login of this machine may not be used."""


def find_login(registry: str, repository: str = "", environ: Mapping[str, str] | None = None) -> Found:
    """The login for a registry; the first file that has one counts. May run a helper: call it in a thread."""
    environ = os.environ if environ is None else environ
    note = ""
    for file in _files(environ):
        try:
            value = json.loads(file.read_bytes())
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            kind = error.strerror if isinstance(error, OSError) else "not JSON"
            note = note or f"{file} cannot be read: {kind}"
            continue
        found = _in_file(value, file, registry, repository, environ) if isinstance(value, dict) else Found()
        if found.login:
            return found
        note = note or found.note
    return Found(note=note)


def _files(environ: Mapping[str, str]) -> Iterator[Path]:
    home = Path(environ.get("HOME") or "/")
    if given := environ.get("REGISTRY_AUTH_FILE"):
        yield Path(given)
    runtime = environ.get("XDG_RUNTIME_DIR") or f"/run/containers/{os.getuid()}"
    yield Path(runtime) / ("containers/auth.json" if environ.get("XDG_RUNTIME_DIR") else "auth.json")
    yield Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "containers/auth.json"
    yield Path(environ.get("DOCKER_CONFIG") or home / ".docker") / "config.json"


def _in_file(
    value: Mapping[str, Any], file: Path, registry: str, repository: str, environ: Mapping[str, str]
) -> Found:
    names = [_HUB_KEY, *_HUB_NAMES] if registry in _HUB_NAMES else [registry]
    helpers = value.get("credHelpers")
    note = ""
    for key in names:
        if isinstance(helpers, dict) and helpers.get(key):
            return _from_helper(str(helpers[key]), key, file, environ)
    if value.get("credsStore"):
        for key in names:
            found = _from_helper(str(value["credsStore"]), key, file, environ)
            if found.login:
                return found
            note = note or found.note
    entries = value.get("auths")
    cleaned = {_clean(str(key)): entry for key, entry in entries.items()} if isinstance(entries, dict) else {}
    parts = [names[-1] if registry not in _HUB_NAMES else HUB, *filter(None, repository.split("/"))]
    paths = ["/".join(parts[:count]) for count in range(len(parts), 1, -1)]
    for key in (*paths, *names):  # from the most to the least specific, as podman looks them up
        login = _from_entry(cleaned.get(_clean(key)), file)
        if login:
            return Found(login=login)
    return Found(note=note)


def _clean(key: str) -> str:
    """`https://host/v1/` and `host` are the same."""
    return re.sub(r"^https?://", "", key).rstrip("/").removesuffix("/v1").removesuffix("/v2")


def _from_entry(entry: Any, file: Path) -> Login | None:
    if not isinstance(entry, dict):
        return None
    user, password = str(entry.get("username") or ""), str(entry.get("password") or "")
    if entry.get("auth"):
        try:
            user, _, password = base64.b64decode(str(entry["auth"])).decode().partition(":")
        except (binascii.Error, ValueError):
            return None
    login = Login(
        user=user,
        password=password.rstrip("\0"),
        identity_token=str(entry.get("identitytoken") or ""),
        registry_token=str(entry.get("registrytoken") or ""),
        source=str(file),
    )
    return login if login.secrets else None


def _from_helper(name: str, key: str, file: Path, environ: Mapping[str, str]) -> Found:
    program = f"docker-credential-{name}"
    value: dict[str, Any] = {}
    note = ""
    try:
        if not _HELPER_NAME.fullmatch(name):
            raise FileNotFoundError  # noqa: TRY301 - a path is no name of a program on PATH
        done = subprocess.run(
            [program, "get"],
            input=key.encode(),
            capture_output=True,
            timeout=_HELPER_S,
            check=False,
            env=host_environment(*_OF_HELPERS, network=True, environ=environ),
        )
        value = dict(json.loads(done.stdout)) if done.returncode == 0 else {}
    except FileNotFoundError:
        note = f"{file} names the credential helper {program[:80]}, which is not on PATH"
    except subprocess.TimeoutExpired:
        note = f"the credential helper {program} gave no answer within {_HELPER_S} s"
    except (OSError, ValueError, TypeError):
        note = f"the credential helper {program} gave no usable answer"
    user, secret = str(value.get("Username") or ""), str(value.get("Secret") or "")
    if not secret:
        return Found(note=note)
    if user == _TOKEN_USER:
        return Found(login=Login(identity_token=secret, source=program))
    return Found(login=Login(user=user, password=secret, source=program))
