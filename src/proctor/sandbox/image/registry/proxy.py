"""HTTP proxies as the environment names them: HTTP_PROXY, HTTPS_PROXY, NO_PROXY. Loopback never uses one."""

from __future__ import annotations

import urllib.request

from yarl import URL

from proctor.sandbox.image.registry.access import is_loopback


def proxy_for(url: URL) -> URL | None:
    """The proxy for an address, with its password if it has one: never to be shown."""
    host = url.host or ""
    if is_loopback(host) or urllib.request.proxy_bypass(f"{host}:{url.port}"):
        return None
    given = urllib.request.getproxies().get(url.scheme)
    return URL(given if "://" in given else f"http://{given}") if given else None
