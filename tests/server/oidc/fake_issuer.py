"""A small issuer on loopback: discovery, keys, and codes that become ID tokens. It checks PKCE itself."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
from cryptography.hazmat.primitives.hashes import SHA256

CLIENT = "proctor-test"
SECRET = "a secret of the client"


def encoded(data: bytes | dict[str, Any]) -> str:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def number(value: int) -> str:
    return encoded(value.to_bytes((value.bit_length() + 7) // 8, "big"))


@dataclass
class FakeIssuer:
    """An issuer, and what its next ID token says."""

    address: str = ""
    rsa_key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))
    ec_key: ec.EllipticCurvePrivateKey = field(
        default_factory=lambda: ec.generate_private_key(ec.SECP256R1())
    )
    algorithm: str = "RS256"
    claims: dict[str, Any] = field(default_factory=dict)
    """Besides the usual ones, or in place of them; None takes one away."""
    header: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def authorize(self, address: str) -> str:
        """Somebody signs in at the address: the query with which they go back."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        code = secrets.token_hex(8)
        self.codes[code] = query
        return f"code={code}&state={query['state']}&session_state=x"

    def token(self, query: dict[str, str]) -> str:
        now = time.time()
        usual = {
            "iss": self.address, "aud": CLIENT, "sub": "u-1", "exp": now + 300, "iat": now,
            "nonce": query["nonce"], "email": "ada@example.org", "email_verified": True,
            "groups": ["engineers"],
        }  # fmt: skip
        claims = {name: value for name, value in {**usual, **self.claims}.items() if value is not None}
        return self.signed(claims)

    def signed(self, claims: dict[str, Any]) -> str:
        header = {"alg": self.algorithm, "kid": self.algorithm, **self.header}
        text = f"{encoded(header)}.{encoded(claims)}"
        if self.algorithm == "ES256":
            r, s = utils.decode_dss_signature(self.ec_key.sign(text.encode(), ec.ECDSA(SHA256())))
            signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
        else:
            signature = self.rsa_key.sign(text.encode(), padding.PKCS1v15(), SHA256())
        return f"{text}.{encoded(signature)}"

    @property
    def keys(self) -> list[dict[str, Any]]:
        public, point = self.rsa_key.public_key().public_numbers(), self.ec_key.public_key().public_numbers()
        return [
            {"kty": "RSA", "kid": "RS256", "use": "sig", "n": number(public.n), "e": number(public.e)},
            {"kty": "EC", "kid": "ES256", "crv": "P-256", "x": number(point.x), "y": number(point.y)},
        ]

    def answer(self, path: str, form: dict[str, str], login: str) -> tuple[int, dict[str, Any]]:
        self.asked.append(path)
        if path == "/.well-known/openid-configuration":
            usual = {"issuer": self.address, "authorization_endpoint": f"{self.address}/authorize"}
            usual |= {"token_endpoint": f"{self.address}/token", "jwks_uri": f"{self.address}/keys"}
            return 200, {**usual, **self.about}
        if path == "/keys":
            return 200, {"keys": self.keys}
        query = self.codes.pop(form.get("code", ""), None)
        challenge = encoded(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        if path != "/token" or query is None or challenge != query["code_challenge"]:
            return 400, {"error": "invalid_grant"}
        if (
            base64.b64decode(login.removeprefix("Basic ")).decode()
            != f"{CLIENT}:{SECRET.replace(' ', '%20')}"
        ):
            return 401, {"error": "invalid_client"}
        if form["redirect_uri"] != query["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        return 200, {"id_token": self.token(query), "access_token": "x", "token_type": "Bearer"}


@contextmanager
def fake_issuer() -> Iterator[FakeIssuer]:
    issuer = FakeIssuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("content-length", 0))
            form = {name: values[0] for name, values in parse_qs(self.rfile.read(length).decode()).items()}
            status, found = issuer.answer(self.path, form, self.headers.get("authorization", ""))
            body = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - the base class's name

        def log_message(self, *_: object) -> None:
            """Nothing to do."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield issuer
    server.shutdown()
    server.server_close()
    thread.join()
