"""Requests that the server sends to addresses that people gave it: the internet, not its own network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from proctor.errors import UsageError
from proctor.outbound import Outbound, OutOfReachError, Reach

if TYPE_CHECKING:
    import aiohttp

TIMEOUT_S = 10.0
"""For everything: looking the name up, connecting, sending, and reading the answer."""
MOST_BYTES = 1 << 20
OPENED_BY = "the server's setting webhook_allow"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    """0: nothing did."""
    said: str
    """In a few words; never what the other side wrote."""
    body: bytes = b""
    final: bool = False
    """Whether another try would end the same."""

    @property
    def good(self) -> bool:
        """Whether it was taken."""
        return 200 <= self.status < 300


def check_address(url: str) -> None:
    """UsageError unless an address may be one of a webhook; names are looked up when it is used."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UsageError("the address of a webhook begins with http:// or https:// and names a host")
    if parts.username or parts.password:
        raise UsageError("the address of a webhook holds no password; give it as the secret")


@dataclass(frozen=True, slots=True)
class Outside:
    """Sends requests. No redirection is followed, and no private address is reached unless it is allowed."""

    allow: Sequence[str] = ()
    ca_bundle: str = ""

    async def send(
        self, method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send one request and read the beginning of what comes back."""
        import aiohttp
        from yarl import URL

        check_address(url)
        reach = Reach(allow=tuple(self.allow), opened_by=OPENED_BY)
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        sent = {"User-Agent": "proctor", "Accept-Encoding": "identity", **(headers or {})}
        try:
            async with (
                Outbound(reach, ca_bundle=self.ca_bundle, timeout=timeout, auto_decompress=False) as client,
                await client.request(method, URL(url), data=body, headers=sent) as answer,
            ):
                return Answer(answer.status, f"HTTP {answer.status}", await _beginning(answer.content))
        except TimeoutError:
            return Answer(0, f"no answer within {TIMEOUT_S:g} s")
        except OutOfReachError as error:
            return Answer(0, str(error))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Answer(0, f"not reached: {error or type(error).__name__}"[:200])


async def _beginning(content: aiohttp.StreamReader) -> bytes:
    """As much of an answer as is of interest; the rest is left with its sender."""
    read = bytearray()
    async for chunk in content.iter_any():
        read += chunk
        if len(read) >= MOST_BYTES:
            break
    return bytes(read[:MOST_BYTES])
