"""Check an ID token: its signature by the issuer's keys, and that it was made for this sign-in."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from proctor.server.problem import Problem

SKEW_S = 60.0
"""How far the clocks of issuer and server may be apart."""
_MOST_BYTES = 64 << 10
_ES256_BYTES = 64
_KINDS = {"RS256": "RSA", "ES256": "EC"}
_SHORTEST_RSA_BITS = 2048


@dataclass(frozen=True, slots=True)
class Expected:
    """What an ID token must say."""

    issuer: str
    client_id: str
    nonce: str
    now: float


def refused(why: str) -> Problem:
    """An ID token that is not to be believed."""
    return Problem("not_signed_in", f"The issuer's answer was refused: {why}")


def key_id(token: str) -> str:
    """The key that a token says it is signed with; empty where it names none."""
    found = _header(token).get("kid", "")
    return found if isinstance(found, str) else ""


def checked(token: str, keys: Sequence[Mapping[str, Any]], expected: Expected) -> dict[str, Any]:
    """The claims of a token; a Problem when anything about it is wrong."""
    header = _header(token)
    if header.get("alg") not in _KINDS:
        raise refused("its ID token is signed neither with RS256 nor with ES256")
    if "crit" in header:
        raise refused("its ID token needs an extension")
    signed, _, signature = token.rpartition(".")
    kind, named = _KINDS[header["alg"]], header.get("kid")
    fitting = [each for each in keys if _fits(each, kind, header["alg"], named)]
    if not any(_verifies(each, header["alg"], signed.encode(), _bytes(signature)) for each in fitting):
        raise refused("no key of the issuer made the signature of its ID token")
    claims = _json(signed.partition(".")[2])
    _check(claims, expected)
    return claims


def _check(claims: Mapping[str, Any], expected: Expected) -> None:
    audience = claims.get("aud")
    audiences = [audience] if isinstance(audience, str) else audience
    nonce = claims.get("nonce")
    if claims.get("iss") != expected.issuer:
        raise refused("its ID token is of another issuer")
    if not isinstance(audiences, list) or expected.client_id not in audiences:
        raise refused("its ID token is for another client")
    if (len(audiences) > 1 or "azp" in claims) and claims.get("azp") != expected.client_id:
        raise refused("its ID token was made for another client")
    if not isinstance(nonce, str) or not hmac.compare_digest(nonce.encode(), expected.nonce.encode()):
        raise refused("its ID token belongs to another sign-in")
    if _number(claims, "exp") <= expected.now - SKEW_S:
        raise refused("its ID token has expired")
    if _number(claims, "iat") > expected.now + SKEW_S:
        raise refused("its ID token is of the future; compare the clocks")
    if not isinstance(claims.get("sub"), str) or not claims["sub"]:
        raise refused("its ID token names nobody")


def _fits(key: Mapping[str, Any], kind: str, algorithm: str, named: object) -> bool:
    return (
        key.get("kty") == kind
        and key.get("use", "sig") == "sig"
        and key.get("alg", algorithm) == algorithm
        and (named is None or key.get("kid") == named)
    )


def _verifies(key: Mapping[str, Any], algorithm: str, signed: bytes, signature: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
    from cryptography.hazmat.primitives.hashes import SHA256

    try:
        if algorithm == "RS256":
            numbers = rsa.RSAPublicNumbers(_int(key["e"]), _int(key["n"]))
            public = numbers.public_key()
            if public.key_size < _SHORTEST_RSA_BITS:
                return False
            public.verify(signature, signed, padding.PKCS1v15(), SHA256())
            return True
        if key.get("crv") != "P-256" or len(signature) != _ES256_BYTES:
            return False
        half = _ES256_BYTES // 2
        pair = (int.from_bytes(part, "big") for part in (signature[:half], signature[half:]))
        point = ec.EllipticCurvePublicNumbers(_int(key["x"]), _int(key["y"]), ec.SECP256R1())
        point.public_key().verify(utils.encode_dss_signature(*pair), signed, ec.ECDSA(SHA256()))
    except (InvalidSignature, ValueError, KeyError, TypeError):
        return False
    return True


def _header(token: str) -> dict[str, Any]:
    if len(token) > _MOST_BYTES or token.count(".") != 2:
        raise refused("it has no ID token that can be read")
    return _json(token.partition(".")[0])


def _json(part: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(_bytes(part))
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise refused("its ID token is damaged") from None
    if not isinstance(found, dict):
        raise refused("its ID token is damaged")
    return found


def _bytes(part: str) -> bytes:
    try:
        return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise refused("its ID token is damaged") from None


def _int(part: str) -> int:
    return int.from_bytes(_bytes(part), "big")


def _number(claims: Mapping[str, Any], name: str) -> float:
    found = claims.get(name)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise refused(f"its ID token has no '{name}'")
    return float(found)
