"""The proxy of an allow-list: it connects to the hosts of the list only.

It needs no process inside: a socket that listens on the inside's loopback is served out here. It is our own
so that the address that was checked is the one that is connected to, and because it need only pass bytes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Sequence

from proctor.sandbox.network_rules import AddressRules

PORT = 3128
EVERY_HOST = "*"
"""Entry of an allow-list that no spec or task may have: every name, though never a private address."""
_HEAD_BYTES = 16 * 1024
_CONNECT_S = 20.0


def proxy_environment(port: int = PORT) -> dict[str, str]:
    """Variables that make programs inside use the proxy."""
    address = f"http://127.0.0.1:{port}"
    names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
    return dict.fromkeys(names, address) | dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1")


def allowed(host: str, allow_list: Sequence[str]) -> bool:
    """Whether a host is on the list; `*.example.org` matches every name below example.org."""
    host = host.rstrip(".").lower()
    address = _address(host)
    for each in allow_list:
        entry = each.rstrip(".").lower()
        if entry in {EVERY_HOST, host} or (
            entry.startswith("*.") and host.endswith(entry[1:]) and not address
        ):
            return True
        if address and "/" in entry and address in ipaddress.ip_network(entry, strict=False):
            return True
    return False


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


class AllowListProxy:
    """An HTTP proxy on a socket of the inside's loopback; other hosts get 403."""

    def __init__(self, allow_list: Sequence[str], rules: AddressRules) -> None:
        self._allow_list = tuple(allow_list)
        self._rules = rules
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self.refused: set[str] = set()

    async def start(self, listener: socket.socket) -> None:
        """Serve on a socket that listens inside."""
        self._server = await asyncio.start_server(self._accept, sock=listener, limit=_HEAD_BYTES)

    async def stop(self) -> None:
        """Close every connection."""
        if self._server:
            self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            pass  # a client inside broke its own connection
        finally:
            self._open.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, target, version = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
        host, port, path = _target(method, target)
        if not allowed(host, self._allow_list):
            self.refused.add(host)
            body = f"proctor: {host} is not on the allow-list\n".encode()
            writer.write(b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: ")
            writer.write(str(len(body)).encode() + b"\r\n\r\n" + body)
            await writer.drain()
            return
        try:
            async with asyncio.timeout(_CONNECT_S):
                there, back = await self._connect(host, port)
        except (OSError, TimeoutError):
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            return
        try:
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                back.write(_one_request(head, method, path, version))
            await asyncio.gather(_pump(reader, back), _pump(there, writer))
        finally:
            back.close()

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to an address of a host that may be reached: a name on the list opens no private one."""
        loop = asyncio.get_running_loop()
        error: OSError | None = None
        for *_, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            if self._rules.allows(str(address[0])):
                try:
                    return await asyncio.open_connection(str(address[0]), port, limit=1 << 16)
                except OSError as refused:
                    error = refused
        raise error or OSError(f"{host} has no permitted address")


def _target(method: str, target: str) -> tuple[str, int, str]:
    if method == "CONNECT":
        host, _, port = target.rpartition(":")
        return host.strip("[]"), int(port), ""
    if not target.startswith("http://"):
        raise ValueError(target)
    place, slash, path = target[len("http://") :].partition("/")
    host, colon, port = place.rpartition(":") if not place.endswith("]") else (place, "", "")
    if not colon:
        host, port = place, "80"
    return host.strip("[]"), int(port), slash + path or "/"


def _one_request(head: bytes, method: str, path: str, version: str) -> bytes:
    """The request as the server wants it; one per connection, so that no second one skips the list."""
    lines = head.split(b"\r\n")[1:-2]
    dropped = (b"proxy-connection:", b"connection:", b"proxy-authorization:")
    kept = [line for line in lines if not line.lower().startswith(dropped)]
    first = f"{method} {path} {version}".encode()
    return b"\r\n".join([first, *kept, b"Connection: close", b"", b""])


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()
