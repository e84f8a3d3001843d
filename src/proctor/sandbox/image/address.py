"""ADD of an address: a file fetched over HTTP by Proctor itself, from the internet and not from this network.

A Dockerfile is written by a stranger: every server, also after a redirect, is one that `Reach` allows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from proctor.errors import ImageError
from proctor.outbound import Outbound, Reach

if TYPE_CHECKING:
    import aiohttp

MOST_BYTES = 4 << 30
_MOST_REDIRECTS = 10
_CONNECT_S = 30.0
_SILENCE_S = 60.0
_BLOCK = 1 << 18
_MOVED = {301, 302, 303, 307, 308}


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
    try:
        async with (
            Outbound(Reach(allow=tuple(allow)), timeout=timeout) as client,
            await _answer(client, address, f"{where}: {shown}") as response,
        ):
            return await _written(response, target, most_bytes, f"{where}: {shown}")
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise ImageError(f"{where}: {shown} could not be fetched: {error or type(error).__name__}") from error


async def _answer(client: Outbound, address: str, where: str) -> aiohttp.ClientResponse:
    from yarl import URL

    url = URL(address)
    for _ in range(_MOST_REDIRECTS):
        if url.scheme not in {"http", "https"} or not url.host:
            raise ImageError(f"{where}: leads to something that is not http or https")
        response = await client.request("GET", url, headers={"Accept-Encoding": "identity"})
        moved = response.headers.get("Location") if response.status in _MOVED else None
        if moved is None:
            if response.status != 200:
                response.close()
                raise ImageError(f"{where}: the server answers {response.status} {response.reason}")
            return response
        response.close()
        url = url.join(URL(moved))
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


def _shown(address: str) -> str:
    """An address without its query and password, which may be secret."""
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"
