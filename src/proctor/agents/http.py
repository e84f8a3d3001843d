"""Exchange JSON with a model's service: one answer to one request, bounded in time and size."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from proctor.outgoing import proxy_for, trusted

if TYPE_CHECKING:
    import aiohttp

_MAX_BODY = 64 << 20


class HttpError(Exception):
    """The exchange itself failed: no connection, no answer, or one that is not HTTP."""


class NoAnswerInTime(HttpError):  # noqa: N818 - says what happened
    """Whoever is there took longer than the caller waits."""


@dataclass(frozen=True, slots=True)
class Response:
    """A status, headers in lower case, and the body."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> Any:
        """The body as JSON; HttpError when it is not."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise HttpError(f"the answer is not JSON: {self.body[:200]!r}") from error


class Endpoint:
    """An address to post to. Connections are kept for the next request: handshakes cost more than turns."""

    def __init__(self, url: str, *, ca_bundle: str = "") -> None:
        try:
            parts = urlsplit(url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError as error:
            raise HttpError(f"{url!r} is not an http(s) address: {error}") from error
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise HttpError(f"{url!r} is not an http(s) address")
        self._where = f"{parts.hostname}:{port}"
        self._url = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl()
        self._ca_bundle = ca_bundle
        self._session: aiohttp.ClientSession | None = None
        self._answered = False

    async def post_json(self, payload: Any, headers: Mapping[str, str], *, timeout_s: float) -> Response:
        """One request; HttpError when there is no answer."""
        sent = {"Content-Type": "application/json", **headers}
        return await self._ask("POST", json.dumps(payload).encode(), sent, timeout_s)

    async def get(self, headers: Mapping[str, str], *, timeout_s: float) -> Response:
        """The same without a body."""
        return await self._ask("GET", None, headers, timeout_s)

    async def close(self) -> None:
        """Let go of the connections."""
        session, self._session = self._session, None
        self._answered = False
        if session:
            await session.close()

    async def _ask(
        self, method: str, body: bytes | None, headers: Mapping[str, str], timeout_s: float
    ) -> Response:
        import aiohttp

        try:
            async with asyncio.timeout(timeout_s):
                try:
                    return await self._exchange(method, body, headers)
                except aiohttp.ClientConnectionError as error:
                    if not self._answered or isinstance(error, aiohttp.ClientConnectorError):
                        raise
                # A kept connection that the other side had grown tired of; a new one may do.
                self._answered = False
                return await self._exchange(method, body, headers)
        except TimeoutError as error:
            raise NoAnswerInTime(f"no answer from {self._where} within {timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise HttpError(f"{self._where}: {error or type(error).__name__}") from error

    async def _exchange(self, method: str, body: bytes | None, headers: Mapping[str, str]) -> Response:
        from yarl import URL

        if self._session is None:
            self._session = self._open()
        url = URL(self._url)
        # Redirects are answers like any other: the key is for this host alone.
        request = self._session.request(
            method, url, data=body, headers=headers, proxy=proxy_for(url), allow_redirects=False
        )
        async with request as response:
            whole = bytearray()
            async for piece in response.content.iter_any():
                whole += piece
                if len(whole) > _MAX_BODY:
                    raise ValueError("the answer is too large")
            self._answered = True
            found = {name.lower(): value for name, value in response.headers.items()}
            return Response(response.status, found, bytes(whole))

    def _open(self) -> aiohttp.ClientSession:
        import aiohttp

        secure = self._url.startswith("https:")
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=trusted(self._ca_bundle) if secure else True),
            timeout=aiohttp.ClientTimeout(total=None),
            headers={"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "proctor"},
            cookie_jar=aiohttp.DummyCookieJar(),
        )
