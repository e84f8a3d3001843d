"""The signature of a receipt: who vouches for its root, since when and until when.

Signed is the root, which covers the content of every file, together with the key and the two times. It is
part of `receipt.json` and not of the root, which stays the same with and without it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from proctor.model.canonical import canonical_json
from proctor.receipt.keys import Signer, public_bytes

_PURPOSE = b"proctor receipt signature 1\n"
"""Before every message, so that a signature of something else never fits."""
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_FIELDS = ("algorithm", "key", "signed_at", "expires_at", "value")


class Standing(StrEnum):
    """What a look at the signature came to."""

    NONE = "none"
    NOT_CHECKED = "not_checked"
    """It fits the key it names, but nobody said whether to trust that key."""
    TRUSTED = "trusted"
    UNKNOWN_KEY = "unknown_key"
    EXPIRED = "expired"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class Signature:
    """The signature as it was found, and what is wrong with it."""

    standing: Standing
    key: str = ""
    signed_at: str = ""
    expires_at: str = ""
    problem: str = ""
    """A sentence without its beginning ("receipt.json: …"); empty when nothing is wrong."""

    def to_mapping(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "standing": self.standing.value,
            "key": self.key or None,
            "signed_at": self.signed_at or None,
            "expires_at": self.expires_at or None,
        }


def signing(signer: Signer, now: float, valid_days: int | None) -> Callable[[str], dict[str, Any]]:
    """What signs a root: called once the root is known."""
    begin = datetime.fromtimestamp(now, UTC)
    end = begin + timedelta(days=valid_days) if valid_days else None

    def sign(root: str) -> dict[str, Any]:
        fields = {
            "algorithm": "ed25519",
            "key": signer.public,
            "signed_at": _written(begin),
            "expires_at": _written(end) if end else None,
        }
        value = signer.sign(_message(root, fields))
        return {**fields, "value": base64.b64encode(value).decode()}

    return sign


def check_signature(written: object, root: str, trusted: Iterable[str], now: float) -> Signature:
    """Look at the signature of a stranger's receipt; `root` is the one that its files give."""
    trusted = frozenset(trusted)
    if written is None:
        problem = "there is no signature, and --trust asks for one" if trusted else ""
        return Signature(Standing.NONE, problem=problem)
    fields = _fields(written)
    if fields is None:
        return Signature(Standing.INVALID, problem="the signature is not in the form of one")
    key, begin, end = fields["key"], fields["signed_at"], fields["expires_at"] or ""
    if not _fits(fields, root):
        problem = f"the signature does not fit: key {key} did not sign this content"
        return Signature(Standing.INVALID, key, begin, end, problem)
    if trusted and key not in trusted:
        problem = f"signed by key {key}, which is not one that you trust"
        return Signature(Standing.UNKNOWN_KEY, key, begin, end, problem)
    if trusted and end and _written(datetime.fromtimestamp(now, UTC)) > end:
        return Signature(Standing.EXPIRED, key, begin, end, f"the signature expired at {end}")
    return Signature(Standing.TRUSTED if trusted else Standing.NOT_CHECKED, key, begin, end)


def _fields(written: object) -> dict[str, Any] | None:
    """The fields when each has its form; nothing else of a stranger's is printed or compared."""
    if not isinstance(written, dict) or set(written) != set(_FIELDS) or written["algorithm"] != "ed25519":
        return None
    key, begin, end, value = (written[name] for name in _FIELDS[1:])
    texts = all(isinstance(each, str) for each in (key, begin, value)) and (end is None or type(end) is str)
    if not texts or public_bytes(key) is None or not _TIME.fullmatch(begin):
        return None
    return dict(written) if end is None or _TIME.fullmatch(end) else None


def _fits(fields: Mapping[str, Any], root: str) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    raw, written = public_bytes(fields["key"]), str(fields["value"])
    try:
        value = base64.b64decode(written, validate=True)
        Ed25519PublicKey.from_public_bytes(raw or b"").verify(value, _message(root, fields))
    except (InvalidSignature, binascii.Error, ValueError):
        return False
    # Base64 has several spellings of the same bytes; only one is ours.
    return base64.b64encode(value).decode() == written


def _message(root: str, fields: Mapping[str, Any]) -> bytes:
    signed = {name: fields[name] for name in _FIELDS if name != "value"}
    return _PURPOSE + canonical_json({**signed, "root": root}).encode()


def _written(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
