"""Ed25519 keys on disk: a private file that only its owner can read, and a public text to hand out.

A private key never becomes text outside its own file: no message, log or receipt has it.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

DEFAULT = "default"
PREFIX = "ed25519:"
_PRIVATE, _PUBLIC = ".key", ".pub"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TEXT = re.compile(r"ed25519:[A-Za-z0-9+/]{43}=")
_MOST_BYTES = 64 << 10
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Signer:
    """A private key, ready to sign. Its representation does not show it."""

    public: str
    """The public key as text: `ed25519:` and 44 characters."""
    _private: Ed25519PrivateKey = field(repr=False)

    def sign(self, message: bytes) -> bytes:
        """The signature: 64 bytes, the same for the same message."""
        return self._private.sign(message)


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key of the folder."""

    name: str
    public: str
    path: Path
    """The private file."""
    problem: str = ""
    """Why it cannot be used to sign; empty when it can."""


def new_key(folder: Path, name: str = DEFAULT) -> StoredKey:
    """Make a key pair; a key that exists is never replaced."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if not _NAME.fullmatch(name):
        raise UsageError(
            f"key name {name[:80]!r}: use letters, digits, '.', '_' and '-', at most 64, "
            "beginning with a letter or digit"
        )
    _make_private_folder(folder)
    path = folder / f"{name}{_PRIVATE}"
    private = Ed25519PrivateKey.generate()
    public = _text_of(private)
    content = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write_new(path, content, 0o600)
    try:
        _write_new(path.with_suffix(_PUBLIC), f"{public} {name}\n".encode(), 0o644)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return StoredKey(name, public, path)


def stored_keys(folder: Path) -> list[StoredKey]:
    """The keys of a folder by name, those that cannot be used with the reason."""
    try:
        names = sorted(each.stem for each in folder.iterdir() if each.suffix == _PRIVATE)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}") from error
    found = []
    for name in names:
        path, problem, public = folder / f"{name}{_PRIVATE}", "", ""
        try:
            public = load_signer(name, folder).public
        except UsageError as error:
            problem = str(error)
        found.append(StoredKey(name, public, path, problem))
    return found


def load_signer(written: str, folder: Path) -> Signer:
    """The private key that was named: a file, or a name in the folder; empty: the only key, or `default`."""
    if not written:
        names = [each.stem for each in folder.glob(f"*{_PRIVATE}")] if folder.is_dir() else []
        written = names[0] if len(names) == 1 else DEFAULT
    by_name = folder / f"{written}{_PRIVATE}"
    if _NAME.fullmatch(written) and os.path.lexists(by_name):
        _check_folder(folder)
        return _loaded(by_name)
    if ("/" in written or Path(written).suffix) and _is_file(Path(written)):
        return _loaded(Path(written))
    raise NotFoundError(
        f"no key named {written[:80]!r} in {folder}; make one with: proctor keys new"
        + (f" {written}" if written != DEFAULT and _NAME.fullmatch(written) else "")
    )


def trusted_keys(written: str, folder: Path) -> tuple[str, ...]:
    """The public keys that `--trust` names: the text of one, a file with one per line, or a name."""
    text = written.strip()
    if text.startswith(PREFIX):
        return (_checked(text.split()[0], "--trust"),)
    by_name = folder / f"{text}{_PUBLIC}"
    named = bool(_NAME.fullmatch(text)) and by_name.is_file()
    path = by_name if named and not _is_file(Path(text)) else Path(text)
    # What is neither may be a secret that was pasted here by mistake: it is not repeated.
    if not _is_file(path):
        raise UsageError(
            "--trust: no such file, and not a public key; give a file, or the text that "
            "'proctor keys show' prints: ed25519:…"
        )
    content = _read(path)
    if b"PRIVATE KEY" in content:
        raise UsageError(f"{path}: this is a private key; --trust takes the public one, which ends in .pub")
    lines = [line.split()[0] for line in content.decode("ascii", "replace").splitlines() if line.strip()]
    keys = tuple(_checked(line, str(path)) for line in lines if not line.startswith("#"))
    if not keys:
        raise UsageError(f"{path}: contains no public key")
    return keys


def public_bytes(text: str) -> bytes | None:
    """The 32 bytes of a public key's text; None for what is not one."""
    if not _TEXT.fullmatch(text):
        return None
    try:
        return base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        return None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _checked(text: str, place: str) -> str:
    if public_bytes(text) is None:
        raise UsageError(f"{place}: not a public key; one is 'ed25519:' and 44 characters of base64")
    return text


def _text_of(private: Ed25519PrivateKey) -> str:
    raw = private.public_key().public_bytes_raw()
    return PREFIX + base64.b64encode(raw).decode()


def _make_private_folder(folder: Path) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be made: {error.strerror}") from error
    _check_folder(folder)


def _check_folder(folder: Path) -> None:
    found = folder.stat()
    if found.st_mode & _OTHERS or found.st_uid != os.geteuid():
        raise UsageError(
            f"{folder}: others can open this folder of private keys; make it yours alone: chmod 700 {folder}"
        )


def _write_new(path: Path, content: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(path, flags, mode), "wb") as sink:
            os.fchmod(sink.fileno(), mode)
            sink.write(content)
    except FileExistsError:
        raise UsageError(f"{path}: already exists; choose another name: proctor keys new NAME") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error


def _read(path: Path, *, private: bool = False) -> bytes:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as source:
            found = os.fstat(source.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_BYTES:
                raise UsageError(f"{path}: not a key file")
            if private and (found.st_mode & _OTHERS or found.st_uid != os.geteuid()):
                raise UsageError(
                    f"{path}: others can read this private key; make a new one (proctor keys new), or if "
                    f"nobody has read it: chmod 600 {path}"
                )
            return source.read(_MOST_BYTES)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error


def _loaded(path: Path) -> Signer:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    content = _read(path, private=True)
    try:
        private = load_pem_private_key(content, password=None)
    except TypeError:
        raise UsageError(f"{path}: the key has a passphrase, which is not supported") from None
    except (ValueError, UnsupportedAlgorithm):
        # The library's own words may quote the content.
        raise UsageError(f"{path}: not a private key in PEM form; make one with: proctor keys new") from None
    if not isinstance(private, Ed25519PrivateKey):
        raise UsageError(f"{path}: not an Ed25519 key; make one with: proctor keys new")
    return Signer(_text_of(private), private)
