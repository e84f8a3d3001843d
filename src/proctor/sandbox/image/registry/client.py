"""Requests to a registry's servers: authorized, redirected without leaking, tried again with back-off."""

from __future__ import annotations

import asyncio
import email.utils
import random
import time
from types import TracebackType
from typing import Any, Self

import aiohttp
from yarl import URL

from proctor.outbound import Outbound, OutOfReachError
from proctor.sandbox.image.registry.access import Access, Endpoint, RegistryError, refused, said_by_server
from proctor.sandbox.image.registry.authorization import Authorization

_MOST_ERROR_BYTES = 64 << 10
_MOST_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_FINE = frozenset({200, 206})
_READ_BYTES = 1 << 20


class Client:
    """One session with registries; shared by all images of one command."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self.patience = access.patience
        self._schemes: dict[str, str] = {}
        self._probing: dict[str, asyncio.Lock] = {}
        self._inside: dict[str, bool] = {}
        """Which servers are not on the internet, for a person who may name such a one."""

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(
            total=None, connect=self.patience.connect_s, sock_read=self.patience.silence_s
        )
        self._outbound = Outbound(
            self.access.reach,
            ca_bundle=self.access.ca_bundle,
            proxied=True,
            timeout=timeout,
            auto_decompress=False,
            headers={"Accept-Encoding": "identity", "User-Agent": "proctor"},
            read_bufsize=_READ_BYTES,
        )
        self._authorization = Authorization(self._request, self.access)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._outbound.__aexit__(kind, error, trace)

    async def open(
        self, endpoint: Endpoint, repository: str, path: str, headers: dict[str, str]
    ) -> aiohttp.ClientResponse:
        """An answer with status 200 or 206, whose body is still to be read; RegistryError otherwise."""
        connecting = 0
        for number in range(self.patience.tries):
            try:
                return await self._ask(endpoint, repository, path, headers)
            except RegistryError as error:
                problem = error
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                problem = unreachable(endpoint, error)
            connecting += problem.status == 0
            if not problem.retry or connecting >= self.patience.tries_to_connect:
                break
            if number + 1 < self.patience.tries:
                await asyncio.sleep(problem.wait_s or self.wait_s(number))
        raise problem

    def logged_in(self, endpoint: Endpoint, repository: str) -> str:
        """With which login a repository was opened; empty: it is open to all."""
        name = f"{endpoint.prefix}/{repository}" if endpoint.prefix else repository
        return self._authorization.logged_in(endpoint, name)

    def wait_s(self, number: int) -> float:
        """How long to wait after so many failures: twice as long each time, and random by half."""
        longest: float = min(self.patience.longest_wait_s, self.patience.first_wait_s * 2.0**number)
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - it only spreads requests

    async def _request(
        self, endpoint: Endpoint, method: str, url: URL, **given: Any
    ) -> aiohttp.ClientResponse:
        """One request for an image: to its server, to a token service, or to where these redirect.

        A person may name a registry of their own network, and that one others of it. A registry of the
        internet has no business there, and on a server nobody has who is not in its settings.
        """
        if self.access.project is None and endpoint.host not in self._inside:
            base = URL(f"{endpoint.schemes[0]}://{endpoint.host}")
            self._inside[endpoint.host] = await self._outbound.is_inside(base)
        inside = self._inside.get(endpoint.host, False)
        return await self._outbound.request(method, url, anywhere=inside, **given)

    async def _ask(
        self, endpoint: Endpoint, repository: str, path: str, headers: dict[str, str]
    ) -> aiohttp.ClientResponse:
        base = URL(f"{await self._scheme(endpoint)}://{endpoint.host}/v2/")
        name = f"{endpoint.prefix}/{repository}" if endpoint.prefix else repository
        url = base.join(URL(f"{name}/{path}", encoded=True))
        sent = self._authorization.header(endpoint, name)
        response = await self._followed(endpoint, url, headers, sent)
        if response.status == 401:
            challenges = response.headers.getall("WWW-Authenticate", [])
            if header := await self._authorization.answer(endpoint, base, name, challenges, sent):
                response.close()
                response = await self._followed(endpoint, url, headers, header)
        if response.status in _FINE:
            return response
        try:
            body = await response.content.read(_MOST_ERROR_BYTES)
        finally:
            response.close()
        raise await self._refusal(endpoint, name, response, body)

    async def _refusal(
        self, endpoint: Endpoint, name: str, response: aiohttp.ClientResponse, body: bytes
    ) -> RegistryError:
        found = await self._authorization.found(endpoint, name)
        detail = said_by_server(body, tuple(self._authorization.secrets))
        wait_s = retry_after_s(response.headers.get("Retry-After", ""), time.time())
        status = response.status
        text = refused(endpoint, status, detail, found)
        if wait_s > self.patience.longest_retry_after_s:
            text += f"; it asks to wait {wait_s:.0f} s"
        return RegistryError(
            text,
            status=status,
            retry=(status in {408, 429} or status >= 500) and wait_s <= self.patience.longest_retry_after_s,
            wait_s=wait_s,
        )

    async def _followed(
        self, endpoint: Endpoint, url: URL, headers: dict[str, str], authorization: str
    ) -> aiohttp.ClientResponse:
        """The answer behind redirects. Only the server that was asked first sees the credentials."""
        first = url.origin()
        for _ in range(_MOST_REDIRECTS):
            own = {"Authorization": authorization} if authorization and url.origin() == first else {}
            response = await self._request(endpoint, "GET", url, headers={**headers, **own})
            if response.status not in _REDIRECTS:
                return response
            target = response.headers.get("Location", "")
            response.close()
            try:
                following = url.join(URL(target))
            except ValueError:
                break
            if following.scheme not in {"http", "https"} or (url.scheme, following.scheme) == (
                "https",
                "http",
            ):
                raise RegistryError(
                    f"{url.host} redirects to an address without TLS ({following.host}); refused"
                )
            url = following
        raise RegistryError(f"{first.host} redirects too often, or to an invalid address")

    async def _scheme(self, endpoint: Endpoint) -> str:
        """With or without TLS; where both are possible, found out by a request without credentials."""
        if len(endpoint.schemes) == 1:
            return endpoint.schemes[0]
        async with self._probing.setdefault(endpoint.host, asyncio.Lock()):
            if endpoint.host not in self._schemes:
                self._schemes[endpoint.host] = "http" if await self._speaks_http(endpoint) else "https"
        return self._schemes[endpoint.host]

    async def _speaks_http(self, endpoint: Endpoint) -> bool:
        try:
            url = URL(f"http://{endpoint.host}/v2/")
            async with await self._request(endpoint, "GET", url) as response:
                return response.status != 400  # what a server that wants TLS answers
        except (aiohttp.ClientConnectorError, OutOfReachError, TimeoutError):
            raise
        except (aiohttp.ClientError, OSError):
            return False


def retry_after_s(text: str, now: float) -> float:
    """The seconds of a `Retry-After` header, which may be a date."""
    if text.strip().isdigit():
        return float(text)
    parsed = email.utils.parsedate_tz(text) if text else None
    return max(0.0, email.utils.mktime_tz(parsed) - now) if parsed else 0.0


def unreachable(endpoint: Endpoint, error: BaseException) -> RegistryError:
    """A failed connection, as a sentence."""
    name = f"the mirror {endpoint.host}" if endpoint.is_mirror else endpoint.host
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return RegistryError(
            f"the name {endpoint.host} cannot be resolved: no network, or misspelt", retry=True
        )
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return RegistryError(
            f"{name} has a certificate that is not trusted here: "
            f"set SSL_CERT_FILE, or the setting ca_bundle, to the file of its certificate authority"
        )
    if isinstance(error, aiohttp.ClientSSLError):
        return RegistryError(
            f"{name} does not speak TLS as expected; if it uses plain HTTP, add it to the setting "
            f"plain_http_registries"
        )
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return RegistryError(f"{name} cannot be reached: no connection within the time limit")
    if isinstance(error, TimeoutError):
        return RegistryError(f"{name} gave no answer in time", retry=True)
    refused_here = isinstance(error, OutOfReachError)
    reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    reason = str(error) if refused_here else reason
    if isinstance(error, aiohttp.ClientConnectorError):
        reason = error.os_error.strerror or reason
    return RegistryError(f"{name} cannot be reached: {reason}", retry=not refused_here)
