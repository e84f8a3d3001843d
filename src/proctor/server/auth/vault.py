"""Encrypt what is kept at rest: the keys of providers, and the secrets of webhooks.

The key of the keys is PROCTOR_SECRET_KEY, or a file in Proctor's home that only its owner may read.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.disk import private_folder
from proctor.errors import StoreError, UsageError
from proctor.settings import Settings
from proctor.store.service.ownership import DEFAULT
from proctor.store.store import Store

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

VARIABLE = "PROCTOR_SECRET_KEY"
_FILE = "secret.key"
_SHORTEST = 16


class Vault:
    """Encrypts and decrypts texts."""

    def __init__(self, material: bytes) -> None:
        from cryptography.fernet import Fernet

        self._fernet: Fernet = Fernet(base64.urlsafe_b64encode(hashlib.sha256(material).digest()))

    def seal(self, text: str) -> bytes:
        """The text, encrypted."""
        return self._fernet.encrypt(text.encode())

    def open(self, sealed: bytes) -> str:
        """The text again; StoreError when it was sealed with another key."""
        from cryptography.fernet import InvalidToken

        try:
            return self._fernet.decrypt(sealed).decode()
        except InvalidToken as error:
            raise StoreError(
                f"a stored key cannot be decrypted: {VARIABLE} (or {_FILE} in Proctor's home) is another one "
                "than when it was stored; restore it, or store the key again"
            ) from error


def open_vault(settings: Settings, environ: Mapping[str, str] = os.environ) -> Vault:
    """The vault of a server; its key is made where there is none."""
    given = environ.get(VARIABLE, "")
    if given:
        if len(given) < _SHORTEST:
            raise UsageError(f"{VARIABLE} is too short: give at least {_SHORTEST} random characters")
        return Vault(given.encode())
    return Vault(_from_file(settings.home / _FILE))


def _from_file(path: Path) -> bytes:
    """The key of a file, which is made whole or not at all: another thread or process may make it too."""
    if path.exists():
        return _read(path)
    private_folder(path.parent)
    handle, beside = tempfile.mkstemp(prefix=".key-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_urlsafe(32).encode())
        with suppress(FileExistsError):
            os.link(beside, path)
    finally:
        Path(beside).unlink()
    return _read(path)


def _read(path: Path) -> bytes:
    if path.stat().st_mode & 0o077:
        raise UsageError(f"{path}: others may read this key; make it yours alone: chmod 600 {path}")
    material = path.read_bytes()
    if len(material) < _SHORTEST:
        raise UsageError(f"{path}: the key is damaged; restore it, or remove it and store all keys again")
    return material


def environ_of(
    store: Store, vault: Vault, project: str, environ: Mapping[str, str], run_id: str = ""
) -> dict[str, str]:
    """Where the keys of a project's runs are looked up: its stored keys.

    The variables of the server itself are for the default project alone.
    """
    stored = {name: vault.open(value) for name, value in store.service.keys.values(project, run_id).items()}
    own = {name: value for name, value in environ.items() if name != VARIABLE} if project == DEFAULT else {}
    return {**own, **stored}
