"""Which registries an engine may be sent to for an image that a task names."""

from __future__ import annotations

import asyncio
import socket
from urllib.parse import urlsplit

from proctor.errors import LastingImageError
from proctor.sandbox.image.references import normal
from proctor.sandbox.network_rules import NetworkRules, resolve_rules


async def check_registry(reference: str, rules: NetworkRules) -> None:
    """Refuse a registry in a private network: an engine asks it with all that this machine reaches."""
    host = urlsplit(f"//{normal(reference).partition('/')[0]}").hostname or ""
    try:
        answers = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return  # no address: the engine goes through a proxy, or fails
    allowed = await resolve_rules(rules)
    if not all(allowed.allows(str(answer[4][0])) for answer in answers):
        raise LastingImageError(
            f"image {reference} is not here, and its registry is in a private network: pull it yourself, or "
            "open the registry's address with network_allow"
        )
