"""An issuer: where it sends people, the code it takes for an ID token, and the keys it signs with."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from proctor.errors import UsageError
from proctor.outgoing import is_loopback, proxy_for, trusted
from proctor.server.auth.oidc.id_token import Expected, checked, key_id, refused
from proctor.server.problem import Problem
from proctor.settings import Settings

_ABOUT = "/.well-known/openid-configuration"
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")
_MOST_BYTES = 1 << 20
_TIMEOUT_S = 10.0
_KEEP_S = 3600.0
"""How long what an issuer says of itself serves."""
_AGAIN_S = 30.0
"""How often at most its keys are read again because a token names another one."""


def configured(settings: Settings) -> bool:
    """Whether people may sign in through an issuer; UsageError when the settings cannot work."""
    if not settings.oidc_issuer:
        return False
    if not settings.oidc_client_id:
        raise UsageError(
            "oidc_issuer is set and oidc_client_id is not; the issuer gives one to whom it registers"
        )
    if not _safe(settings.oidc_issuer):
        raise UsageError(f"oidc_issuer: '{settings.oidc_issuer[:100]}' is not an https address")
    return True


@dataclass(slots=True)
class Issuer:
    """What the server knows of the issuer; losing it costs three requests."""

    settings: Settings
    _about: dict[str, Any] = field(default_factory=dict)
    _about_at: float = 0.0
    _keys: list[dict[str, Any]] = field(default_factory=list)
    _keys_at: float = 0.0

    async def sends_to(self, query: dict[str, str], now: float) -> str:
        """The address at which somebody signs in."""
        where = await self._endpoint("authorization_endpoint", now)
        return f"{where}{'&' if '?' in where else '?'}{urlencode(query)}"

    async def claims(self, code: str, verifier: str, redirect: str, nonce: str, now: float) -> dict[str, Any]:
        """What the issuer says of whoever came back with a code."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect,
            "code_verifier": verifier,
            "client_id": self.settings.oidc_client_id,
        }
        found = await self._ask(await self._endpoint("token_endpoint", now), form)
        token = found.get("id_token")
        if not isinstance(token, str):
            raise refused("it has no ID token")
        expected = Expected(self.settings.oidc_issuer, self.settings.oidc_client_id, nonce, now)
        return checked(token, await self._signing_keys(key_id(token), now), expected)

    async def _endpoint(self, name: str, now: float) -> str:
        if not self._about or now - self._about_at > _KEEP_S:
            about = await self._ask(self.settings.oidc_issuer.rstrip("/") + _ABOUT)
            if about.get("issuer") != self.settings.oidc_issuer:
                raise Problem("upstream", "The issuer calls itself by another name than oidc_issuer")
            for each in _ENDPOINTS:
                if not isinstance(about.get(each), str) or not _safe(about[each]):
                    raise Problem("upstream", f"The issuer has no safe address for its {each}")
            self._about, self._about_at = about, now
        return str(self._about[name])

    async def _signing_keys(self, named: str, now: float) -> list[dict[str, Any]]:
        known = any(each.get("kid") == named for each in self._keys)
        age = now - self._keys_at
        if not self._keys or age > _KEEP_S or (not known and age > _AGAIN_S):
            found = (await self._ask(await self._endpoint("jwks_uri", now))).get("keys")
            self._keys = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
            self._keys_at = now
        return self._keys

    def _login(self) -> dict[str, str]:
        """How the server proves to the issuer who it is; nothing for a public client."""
        if not self.settings.oidc_client_secret:
            return {}
        pair = (self.settings.oidc_client_id, self.settings.oidc_client_secret)
        text = ":".join(quote(each, safe="") for each in pair)
        return {"Authorization": f"Basic {b64encode(text.encode()).decode()}"}

    async def _ask(self, url: str, form: dict[str, str] | None = None) -> dict[str, Any]:
        """Read an object; with a form as this client. No redirection is followed."""
        import aiohttp
        from yarl import URL

        where, headers = URL(url), self._login() if form is not None else {}
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S)) as session,
                session.request(
                    "GET" if form is None else "POST",
                    where,
                    data=form,
                    headers=headers,
                    allow_redirects=False,
                    proxy=proxy_for(where),
                    ssl=trusted(self.settings.ca_bundle),
                ) as answer,
            ):
                status, read = answer.status, await answer.content.read(_MOST_BYTES)
                while len(read) < _MOST_BYTES and (more := await answer.content.read(_MOST_BYTES)):
                    read += more
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise Problem("upstream", f"The issuer cannot be reached: {type(error).__name__}") from error
        return _object(status, read, code=form is not None)


def _object(status: int, read: bytes, *, code: bool) -> dict[str, Any]:
    if code and 400 <= status < 500:
        raise refused("it does not know the code; sign in again")
    try:
        found = msgspec.json.decode(read) if status == 200 else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = None
    if not isinstance(found, dict):
        raise Problem("upstream", f"The issuer answered with HTTP {status}, and not as OpenID Connect says")
    return found


def _safe(url: str) -> bool:
    parts = urlsplit(url)
    secure = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.netloc))
    return secure and bool(parts.hostname) and not parts.username
