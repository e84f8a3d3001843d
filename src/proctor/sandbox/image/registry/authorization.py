"""Proving to a registry who asks: Basic logins and Bearer tokens, each token for one repository.

A registry says in its first refusal what it wants. Credentials go to the registry they were saved for, and to
the token service that this registry names over the same kind of connection, and nowhere else.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import aiohttp
from yarl import URL

from proctor.sandbox.image.registry.access import (
    Access,
    Endpoint,
    RegistryError,
    refused,
    said_by_server,
)
from proctor.sandbox.image.registry.credentials import Found, Login, find_login

_PARAMETER = re.compile(r'([A-Za-z_]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_MOST_BYTES = 1 << 20
_DEFAULT_LIFE_S = 60.0
_SPARE_S = 10.0
_CLIENT = "proctor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """What a registry wants to see."""

    kind: str
    """`basic` or `bearer`."""
    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Token:
    value: str = field(repr=False)
    until: float
    """By the monotonic clock."""


def parse_challenges(headers: list[str]) -> Challenge | None:
    """The challenge to answer, of those in `WWW-Authenticate`; Bearer before Basic."""
    found = []
    for header in headers:
        kind, _, rest = header.strip().partition(" ")
        if kind.lower() in {"basic", "bearer"}:
            pairs = {name.lower(): quoted or plain for name, quoted, plain in _PARAMETER.findall(rest)}
            found.append(Challenge(kind=kind.lower(), parameters=pairs))
    return next((each for each in found if each.kind == "bearer"), found[0] if found else None)


Request = Callable[..., Awaitable[aiohttp.ClientResponse]]
"""Sends one request for an endpoint: endpoint, method, address, and what aiohttp takes."""


class Authorization:
    """The headers to send, per server and repository; tokens are kept as long as they are good."""

    def __init__(self, request: Request, access: Access) -> None:
        self._request = request
        self._access = access
        self._headers: dict[tuple[str, str], _Token] = {}
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}
        self._found: dict[tuple[str, str], Found] = {}
        self._logged_in: dict[tuple[str, str], str] = {}
        self.secrets: set[str] = set()

    def logged_in(self, endpoint: Endpoint, repository: str) -> str:
        """With which login a repository was opened, as `Access.grant` names it; empty: it is open to all."""
        return self._logged_in.get((endpoint.host, repository), "")

    def header(self, endpoint: Endpoint, repository: str) -> str:
        """What to send now; empty: nothing is known to be wanted."""
        token = self._headers.get((endpoint.host, repository))
        return token.value if token and token.until > time.monotonic() else ""

    async def found(self, endpoint: Endpoint, repository: str) -> Found:
        """The login for a server, looked up once."""
        key = (endpoint.host, repository)
        if key not in self._found:
            name = endpoint.login_name
            if self._access.grant(name, repository):
                self._found[key] = await asyncio.to_thread(find_login, name, repository)
            else:
                self._found[key] = Found(
                    instead=f"ask the server's operator to grant its login for {name} to the project "
                    f"'{self._access.project}' (setting registry_logins)"
                )
            if login := self._found[key].login:
                self.secrets |= set(login.secrets)
        return self._found[key]

    async def answer(
        self, endpoint: Endpoint, base: URL, repository: str, challenges: list[str], sent: str
    ) -> str:
        """A header that answers a refusal; empty when there is none that was not refused already."""
        key = (endpoint.host, repository)
        async with self._locks.setdefault(key, asyncio.Lock()):
            fresh = self.header(endpoint, repository)
            if fresh and fresh != sent:
                return fresh  # another request got it meanwhile
            self._headers.pop(key, None)
            challenge = parse_challenges(challenges)
            login = (await self.found(endpoint, repository)).login
            token = await self._token(endpoint, base, repository, challenge, login)
            if token is None or token.value == sent:
                return ""
            self._headers[key] = token
            if login:
                self._logged_in[key] = self._access.grant(endpoint.login_name, repository)
            self.secrets.add(token.value.partition(" ")[2])
            return token.value

    async def _token(
        self,
        endpoint: Endpoint,
        base: URL,
        repository: str,
        challenge: Challenge | None,
        login: Login | None,
    ) -> _Token | None:
        if challenge is None:
            return None
        if login and login.registry_token:
            return _Token(value=f"Bearer {login.registry_token}", until=float("inf"))
        if challenge.kind == "basic":
            return _Token(value=login.basic, until=float("inf")) if login and login.password else None
        realm = _realm(challenge, base, endpoint)
        query = {"service": challenge.parameters.get("service", "")}
        query["scope"] = challenge.parameters.get("scope") or f"repository:{repository}:pull"
        return await self._ask(
            endpoint, realm, {name: value for name, value in query.items() if value}, login
        )

    async def _ask(
        self, endpoint: Endpoint, realm: URL, query: Mapping[str, str], login: Login | None
    ) -> _Token:
        headers = {"Authorization": login.basic} if login and login.password else {}
        if login and login.identity_token:
            form = {**query, "grant_type": "refresh_token", "client_id": _CLIENT}
            form["refresh_token"] = login.identity_token
            answer = self._request(endpoint, "POST", realm, data=form)
        else:
            answer = self._request(endpoint, "GET", realm.update_query(query), headers=headers)
        async with await answer as response:
            body = await response.content.read(_MOST_BYTES)
            while more := await response.content.read(_MOST_BYTES):
                if len(body) + len(more) > _MOST_BYTES:
                    break
                body += more
            if response.status != 200:
                found = Found(login=login)
                detail = said_by_server(body, tuple(self.secrets)) or f"its token service {realm.host}"
                raise RegistryError(
                    refused(endpoint, response.status, detail, found),
                    status=response.status,
                    retry=response.status == 429 or response.status >= 500,
                )
        return _read_token(body, endpoint)


def _realm(challenge: Challenge, base: URL, endpoint: Endpoint) -> URL:
    try:
        realm = URL(challenge.parameters.get("realm", ""))
        usable = realm.scheme in {"http", "https"} and bool(realm.host) and not realm.user
    except ValueError:
        usable = False
    if not usable:
        raise RegistryError(f"{endpoint.host} names no token service that can be asked")
    if base.scheme == "https" and realm.scheme != "https":
        raise RegistryError(
            f"{endpoint.host} names a token service without TLS ({realm.host}); nothing is sent there"
        )
    return realm


def _read_token(body: bytes, endpoint: Endpoint) -> _Token:
    try:
        value = json.loads(body)
        token = str(value.get("token") or value.get("access_token") or "")
        life_s = float(value.get("expires_in") or _DEFAULT_LIFE_S)
    except (ValueError, TypeError, AttributeError):
        token, life_s = "", 0.0
    if not token or not token.isprintable():
        raise RegistryError(f"the token service of {endpoint.host} gave no token")
    spare_s = min(_SPARE_S, life_s / 2)
    return _Token(value=f"Bearer {token}", until=time.monotonic() + life_s - spare_s)
