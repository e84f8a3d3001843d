"""Requests that the server sends to addresses that people gave it: the internet, not its own network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from proctor.errors import UsageError
from proctor.outgoing import trusted
from proctor.sandbox.image.address import checked_resolver, literal, permitted

TIMEOUT_S = 10.0
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

        check_address(url)
        host = urlsplit(url).hostname or ""
        if literal(host) and not permitted(host, host, self.allow):
            return Answer(
                0, f"{host} is not an address of the internet; {OPENED_BY} can permit it", final=True
            )
        connector = aiohttp.TCPConnector(
            resolver=checked_resolver(self.allow, OPENED_BY),
            use_dns_cache=False,
            force_close=True,
            ssl=trusted(self.ca_bundle),
        )
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        given: dict[str, Any] = {"data": body, "headers": {"User-Agent": "proctor", **(headers or {})}}
        try:
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
                session.request(method, url, allow_redirects=False, **given) as answer,
            ):
                read = await answer.content.read(MOST_BYTES)
                return Answer(answer.status, f"HTTP {answer.status}", read)
        except TimeoutError:
            return Answer(0, f"no answer within {TIMEOUT_S:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Answer(0, f"not reached: {error or type(error).__name__}"[:200])
