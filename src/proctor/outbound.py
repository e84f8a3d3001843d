"""Requests that Proctor makes on others' behalf: which addresses they may reach, and a client that checks.

A Dockerfile, an image's name, a webhook or a repository's address is written by a stranger, and so is every
redirect that follows. The address that is connected to decides, never how it was written or what a name meant
a moment before: each one is checked when its socket is made.
"""

from __future__ import annotations

import asyncio
import fnmatch
import ipaddress
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from proctor.model.network import Range, may_be_reached
from proctor.outgoing import proxy_for, trusted

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from urllib.request import OpenerDirector

    import aiohttp
    from yarl import URL

_LOCAL = re.compile(r"\|-- (\S+)\n\s+/32 host LOCAL")


class OutOfReachError(OSError):
    """What a request would connect to is not an address of the internet, and nothing opens it."""


def own_addresses(proc: Path = Path("/proc")) -> Iterator[str]:
    """Every address of this machine, as the kernel lists them."""
    try:
        yield from dict.fromkeys(_LOCAL.findall((proc / "net/fib_trie").read_text()))
        for line in (proc / "net/if_inet6").read_text().splitlines():
            yield str(ipaddress.IPv6Address(int(line.split()[0], 16)))
    except FileNotFoundError:
        return  # a kernel without one of them


@dataclass(frozen=True, kw_only=True)
class Reach:
    """What requests on others' behalf may connect to: the internet, and what an operator opens beyond it."""

    allow: tuple[str, ...] = ()
    """Addresses, ranges, and names (`*.example.org` for those below), whatever those resolve to."""
    servers: frozenset[str] = frozenset()
    """`host:port` of servers that the settings name: mirrors, registries. Without a port, the usual one."""
    opened_by: str = "`network_allow`"
    """The setting that opens more, for messages."""

    @cached_property
    def _opened(self) -> tuple[Range, ...]:
        return tuple(ipaddress.ip_network(text, strict=False) for text in self.allow if _is_range(text))

    def names(self, url: URL) -> bool:
        """Whether the operator named the very host of an address: then it may be anywhere."""
        host = (url.host or "").rstrip(".").lower()
        written = f"[{host}]" if ":" in host else host
        if {f"{written}:{url.port}", written if url.is_default_port() else ""} & self.servers:
            return True
        patterns = (text.lower() for text in self.allow if not _is_range(text))
        return any(fnmatch.fnmatchcase(host, pattern) for pattern in patterns)

    def allows(self, address: str) -> bool:
        """Whether a connection to an address is allowed."""
        return may_be_reached(address, self._opened, frozenset(own_addresses()))

    def refusal(self, host: str = "") -> OutOfReachError:
        """The error for a host that may not be reached."""
        return OutOfReachError(f"{host} is not an address of the internet; {self.opened_by} can permit it")

    def addresses(self, url: URL) -> list[str]:
        """The addresses of a host, as far as they may be reached; OutOfReachError where none may."""
        answers = socket.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
        known = dict.fromkeys(str(answer[4][0]) for answer in answers)
        reachable = [address for address in known if self.names(url) or self.allows(address)]
        if not reachable:
            raise self.refusal(url.host or "")
        return reachable

    def open_socket(self, info: tuple[Any, ...]) -> socket.socket:
        """A socket for one address that a name has, unless it may not be reached."""
        family, kind, protocol, _, address = info
        if not self.allows(str(address[0])):
            raise self.refusal()
        return socket.socket(family, kind, protocol)


def _is_range(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


class Outbound:
    """A client of HTTP servers that strangers name. Redirects are not followed: each is another request."""

    def __init__(self, reach: Reach, *, ca_bundle: str = "", proxied: bool = False, **options: Any) -> None:
        """`proxied`: through the proxies of the environment. `options` are those of an aiohttp session."""
        self.reach = reach
        self._ca_bundle = ca_bundle
        self._proxied = proxied
        self._options = options
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for session in self._sessions.values():
            await session.close()

    async def request(
        self, method: str, url: URL, *, anywhere: bool = False, **given: Any
    ) -> aiohttp.ClientResponse:
        """An answer whose body is still to be read. `anywhere`: a person of this machine named the server."""
        import aiohttp

        if url.host and url.host.endswith("."):  # or `127.0.0.1.` would be a name that a proxy looks up
            url = url.with_host(url.host.rstrip("."))
        proxy = proxy_for(url) if self._proxied else None
        anywhere = anywhere or self.reach.names(url)
        if proxy and not anywhere:
            await self._check_proxied(url)
        session = self._session(checked=not (anywhere or proxy))
        try:
            return await session.request(method, url, allow_redirects=False, proxy=proxy, **given)
        except aiohttp.ClientConnectorError as error:
            if isinstance(error.os_error, OutOfReachError):
                raise self.reach.refusal(url.host or "") from None
            raise

    async def is_inside(self, url: URL) -> bool:
        """Whether a host has an address that is not the internet's."""
        try:
            return not all(map(self.reach.allows, await _looked_up(url)))
        except OSError:
            return False  # whoever connects says so

    async def _check_proxied(self, url: URL) -> None:
        """Refuse a name that leads inside; one that only the proxy can look up is the proxy's to judge."""
        if await self.is_inside(url):
            raise self.reach.refusal(url.host or "")

    def _session(self, *, checked: bool) -> aiohttp.ClientSession:
        import aiohttp

        if checked not in self._sessions:
            connector = aiohttp.TCPConnector(
                ssl=trusted(self._ca_bundle),
                limit=16,
                use_dns_cache=False,
                socket_factory=self.reach.open_socket if checked else None,
            )
            self._sessions[checked] = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), **self._options
            )
        return self._sessions[checked]


def opener_from(first: str, reach: Reach) -> OpenerDirector:
    """Opens an address that a person of this machine named, and what it redirects to.

    A server of the internet is not followed to other addresses; one inside may name others inside. Checked
    is who was connected to, before a request is sent.
    """
    from http.client import HTTPConnection, HTTPSConnection
    from urllib.request import HTTPHandler, HTTPSHandler, Request, build_opener, getproxies

    from yarl import URL

    own = [URL(first), *(URL(text if "://" in text else f"http://{text}") for text in getproxies().values())]
    free = {(url.host, url.port) for url in own}

    def check(connection: HTTPConnection) -> None:
        host = connection.host.strip("[]")
        if (host, connection.port) not in free and not reach.allows(connection.sock.getpeername()[0]):
            answers = socket.getaddrinfo(own[0].host, own[0].port, type=socket.SOCK_STREAM)
            if all(reach.allows(str(answer[4][0])) for answer in answers):
                connection.close()
                raise reach.refusal(host)

    class Http(HTTPConnection):
        def connect(self) -> None:
            super().connect()
            check(self)

    class Https(HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            check(self)

    class HttpHandler(HTTPHandler):
        def http_open(self, request: Request) -> HTTPResponse:
            return self.do_open(Http, request)

    class HttpsHandler(HTTPSHandler):
        def https_open(self, request: Request) -> HTTPResponse:
            return self.do_open(Https, request)

    return build_opener(HttpHandler, HttpsHandler)


async def _looked_up(url: URL) -> list[str]:
    answers = await asyncio.get_running_loop().getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
    return [str(answer[4][0]) for answer in answers]
