"""How Proctor's own HTTP requests leave this machine: the proxy they use and the certificates they trust.

Proxies are those of the environment (HTTP_PROXY, HTTPS_PROXY, NO_PROXY); loopback never uses one. Trusted is
what OpenSSL trusts here, which SSL_CERT_FILE may replace, and what the setting `ca_bundle` adds.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from yarl import URL


def is_loopback(host: str) -> bool:
    """Whether a `host:port` is this machine."""
    name = host.partition("]")[0].lstrip("[")
    name = name.partition(":")[0] if name.count(":") == 1 else name
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def proxy_for(url: URL) -> URL | None:
    """The proxy for an address, with its password if it has one: never to be shown."""
    from urllib.request import getproxies, proxy_bypass

    from yarl import URL

    host = url.host or ""
    if is_loopback(host) or proxy_bypass(f"{host}:{url.port}"):
        return None
    given = getproxies().get(url.scheme)
    return URL(given if "://" in given else f"http://{given}") if given else None


def trusted(ca_bundle: str = "") -> ssl.SSLContext:
    """Whom to believe; OSError when the bundle cannot be read."""
    return _context(ca_bundle, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@lru_cache(maxsize=4)
def _context(ca_bundle: str, *_: str | None) -> ssl.SSLContext:
    """Kept: reading all certificates takes longer than a request."""
    context = ssl.create_default_context()
    if ca_bundle:
        context.load_verify_locations(Path(ca_bundle).expanduser())
    return context
