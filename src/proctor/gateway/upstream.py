"""The way to providers: the agent's token stays here, the provider's key goes in its place."""

from __future__ import annotations

import io
from contextlib import AbstractAsyncContextManager
from urllib.parse import unquote_plus

import aiohttp
from yarl import URL

from proctor.gateway.asked import Asked
from proctor.gateway.body import LARGE
from proctor.outgoing import proxy_for, trusted

_PASSED_ON = frozenset({
    "accept", "accept-language", "user-agent", "anthropic-version", "anthropic-beta", "openai-beta",
    "anthropic-dangerous-direct-browser-access", "x-goog-api-client", "http-referer", "referer", "x-title",
    "x-app", "originator", "version", "session_id", "session-id", "x-session-id", "x-session-affinity",
    "conversation_id", "conversation-id", "thread-id", "idempotency-key", "x-request-id",
    "x-client-request-id",
})  # fmt: skip
"""Headers of agents that providers get: another could choose an account, a model or an address."""
_PASSED_ON_BEGINNINGS = ("x-stainless-", "x-claude-", "x-codex-")
_OWN_HEADERS = {"Accept-Encoding": "identity", "Content-Type": "application/json"}
"""A body is what it was read as: a translator would take one that is called a form for another request."""
_CONNECT_S = 20.0


class Upstream:
    """The way to providers: kept connections, proxies and trust."""

    def __init__(self, ca_bundle: str) -> None:
        self._ca_bundle = ca_bundle
        self._session: aiohttp.ClientSession | None = None
        self._proxies: dict[str, URL | None] = {}

    def ask(self, asked: Asked) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Make one call."""
        if self._session is None:
            self._session = self._open()
        provider, url = asked.provider, asked.address()
        if provider.base_url not in self._proxies:
            self._proxies[provider.base_url] = proxy_for(url)
        headers = {name: value for name, value in asked.headers.items() if _passes(name.lower())}
        headers |= _OWN_HEADERS
        headers |= {**provider.headers, **provider.credentials()}
        return self._session.post(
            url,
            data=io.BytesIO(asked.body) if len(asked.body) > LARGE else asked.body,
            headers=headers,
            proxy=self._proxies[provider.base_url],
            allow_redirects=False,
        )

    async def close(self) -> None:
        """Let go of the connections."""
        if self._session:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=trusted(self._ca_bundle)),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Content-Type", "Accept"),
        )


def _passes(name: str) -> bool:
    return name in _PASSED_ON or name.startswith(_PASSED_ON_BEGINNINGS)


def without_key(query: str) -> str:
    """A query as it came, without the token in it and without other ways to say whose call it is."""
    if not query:
        return query
    return "&".join(part for part in query.split("&") if not _names_caller(part.partition("=")[0]))


def _names_caller(name: str) -> bool:
    plain = unquote_plus(name).lower() if "%" in name or "+" in name else name.lower()
    return plain in {"key", "access_token", "oauth_token"} or plain.startswith("$")
