"""ADD of an address: a file fetched over HTTP by Proctor itself, from the internet and not from this network.

A Dockerfile is written by a stranger. Every host that is asked, also after a redirect, must have a public
address or be covered by `network_allow`.
"""

from __future__ import annotations

import fnmatch
import hashlib
import ipaddress
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urljoin, urlsplit

from proctor.errors import ImageError
from proctor.model.network import NOT_THE_INTERNET
from proctor.sandbox.network_rules import own_addresses

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.abc import AbstractResolver, ResolveResult

MOST_BYTES = 4 << 30
_MOST_REDIRECTS = 10
_CONNECT_S = 30.0
_SILENCE_S = 60.0
_BLOCK = 1 << 18
_MOVED = {301, 302, 303, 307, 308}


def permitted(address: str, host: str, allow: Sequence[str]) -> bool:
    """Whether an address may be reached under a name: a public one, or one that `allow` covers."""
    found = ipaddress.ip_address(address.partition("%")[0])
    found = getattr(found, "ipv4_mapped", None) or found
    if not any(found in each for each in NOT_THE_INTERNET) and str(found) not in own_addresses():
        return True
    for each in allow:
        try:
            if found in ipaddress.ip_network(each, strict=False):
                return True
        except ValueError:
            if fnmatch.fnmatchcase(host.lower().rstrip("."), each.lower()):
                return True
    return False


def file_name(address: str) -> str:
    """The name that an address ends with; empty when it ends with a slash."""
    name = unquote(urlsplit(address).path.rpartition("/")[2])
    return "" if name in {".", ".."} or "/" in name or "\0" in name else name


async def fetch(
    address: str, target: Path, *, allow: Sequence[str], where: str, most_bytes: int = MOST_BYTES
) -> str:
    """Write what is at an address to a file; its SHA-256. ImageError says what went wrong."""
    import aiohttp

    shown = _shown(address)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=_SILENCE_S)
    connector = aiohttp.TCPConnector(resolver=checked_resolver(allow), use_dns_cache=False)
    try:
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            response = await _answer(session, address, allow, f"{where}: {shown}")
            async with response:
                return await _written(response, target, most_bytes, f"{where}: {shown}")
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise ImageError(f"{where}: {shown} could not be fetched: {error or type(error).__name__}") from error


async def _answer(
    session: aiohttp.ClientSession, address: str, allow: Sequence[str], where: str
) -> aiohttp.ClientResponse:
    for _ in range(_MOST_REDIRECTS):
        parts = urlsplit(address)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ImageError(f"{where}: leads to something that is not http or https")
        _check_literal(parts.hostname, allow, where)
        response = await session.get(address, allow_redirects=False, headers={"Accept-Encoding": "identity"})
        moved = response.headers.get("Location") if response.status in _MOVED else None
        if moved is None:
            if response.status != 200:
                response.close()
                raise ImageError(f"{where}: the server answers {response.status} {response.reason}")
            return response
        response.close()
        address = urljoin(address, moved)
    raise ImageError(f"{where}: more than {_MOST_REDIRECTS} redirects")


async def _written(response: aiohttp.ClientResponse, target: Path, most_bytes: int, where: str) -> str:
    seen, size = hashlib.sha256(), 0
    with target.open("wb") as file:
        async for piece in response.content.iter_chunked(_BLOCK):
            size += len(piece)
            if size > most_bytes:
                raise ImageError(f"{where}: more than {most_bytes} bytes")
            seen.update(piece)
            file.write(piece)
    if response.content_length is not None and size != response.content_length:
        raise ImageError(f"{where}: ended after {size} of {response.content_length} bytes")
    return seen.hexdigest()


def _check_literal(host: str, allow: Sequence[str], where: str) -> None:
    """An address written in place of a name is not looked up, and must be checked here."""
    if literal(host) and not permitted(host, host, allow):
        raise ImageError(f"{where}: {_refusal(host)}")


def literal(host: str) -> bool:
    """Whether a host is written as an address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _refusal(host: str, opened_by: str = "`network_allow`") -> str:
    return f"{host} is not an address of the internet; {opened_by} can permit it"


def _shown(address: str) -> str:
    """An address without its query and password, which may be secret."""
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


def checked_resolver(allow: Sequence[str], opened_by: str = "`network_allow`") -> AbstractResolver:
    """Looks names up for a client, and finds only addresses that may be reached."""
    from aiohttp.abc import AbstractResolver
    from aiohttp.resolver import ThreadedResolver

    class Checked(AbstractResolver):
        """Looks names up and leaves out what may not be reached."""

        def __init__(self) -> None:
            self._inner = ThreadedResolver()

        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
        ) -> list[ResolveResult]:
            found = await self._inner.resolve(host, port, family)
            kept = [each for each in found if permitted(each["host"], host, allow)]
            if not kept:
                raise OSError(None, _refusal(host, opened_by))
            return kept

        async def close(self) -> None:
            await self._inner.close()

    return Checked()
