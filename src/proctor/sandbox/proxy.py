"""The proxy of an allow-list: it connects to the hosts of the list only.

It needs no process inside: a socket that listens on the inside's loopback is served out here. It is our own
so that the address that was checked is the one that is connected to, and because it need only pass bytes on.
What one sandbox may have open at a time is bounded: its descriptors are this process's.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial

from proctor.processes import allow_open_files
from proctor.quota import Pool, Quota
from proctor.sandbox.network_rules import AddressRules

PORT = 3128
EVERY_HOST = "*"
"""Entry of an allow-list that no spec or task may have: every name, though never a private address."""
_HEAD_BYTES = 16 * 1024
_TOO_MANY = (
    b"HTTP/1.1 429 Too Many Requests\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyBounds:
    """What one sandbox may have."""

    connections: int = 128
    own_connections: int = 8
    """Of them, those that other sandboxes cannot take away."""
    connecting: int = 4
    """At a time; more wait for their turn."""
    head_s: float = 30.0
    """How long a request's head may take."""
    connect_s: float = 20.0
    idle_s: float = 600.0
    """How long nothing may pass."""
    half_s: float = 60.0
    """The same, once one side has said all."""

    def connections_of_sandbox(self) -> Quota:
        """How many it may have open."""
        return Quota(_connections(), own=self.own_connections, most=self.connections)


@cache
def _connections() -> Pool:
    """For all sandboxes of this process; a connection has two descriptors."""
    return Pool(allow_open_files() // 8)


@cache
def _lookups() -> ThreadPoolExecutor:
    """Names are looked up apart: a slow one would hold up everything else that needs a thread."""
    return ThreadPoolExecutor(8, "proctor-lookup")


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

    def __init__(
        self, allow_list: Sequence[str], rules: AddressRules, bounds: ProxyBounds | None = None
    ) -> None:
        self._allow_list = tuple(allow_list)
        self._rules = rules
        self._bounds = bounds or ProxyBounds()
        self._quota = self._bounds.connections_of_sandbox()
        self._connecting = asyncio.Semaphore(self._bounds.connecting)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

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
        if not self._quota.take():
            writer.write(_TOO_MANY)
            writer.close()
            return
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            async with asyncio.timeout(self._bounds.head_s) as patience:
                await self._serve(reader, writer, patience)
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            pass  # a client inside broke its own connection
        finally:
            try:
                await _close(writer, self._bounds.half_s)
            finally:
                self._quota.give()
                self._open.discard(task)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, patience: asyncio.Timeout
    ) -> None:
        """One connection; each part of it has its own patience."""
        head = await reader.readuntil(b"\r\n\r\n")
        method, target, version = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
        host, port, path = _target(method, target)
        if not allowed(host, self._allow_list):
            body = f"proctor: {host} is not on the allow-list\n".encode()
            writer.write(b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: ")
            writer.write(str(len(body)).encode() + b"\r\n\r\n" + body)
            await writer.drain()
            return
        patience.reschedule(None)
        try:
            async with self._connecting, asyncio.timeout(self._bounds.connect_s):
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
            tunnel = _Tunnel(patience, self._bounds)
            await asyncio.gather(tunnel.pump(reader, back), tunnel.pump(there, writer))
        finally:
            await _close(back, self._bounds.half_s)

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to an address of a host that may be reached: a name on the list opens no private one."""
        loop = asyncio.get_running_loop()
        error: OSError | None = None
        look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        for *_, address in await loop.run_in_executor(_lookups(), look_up):
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


async def _close(writer: asyncio.StreamWriter, within_s: float) -> None:
    """Close a connection; one whose other side takes nothing is cut, and does not stay open uncounted."""
    task = asyncio.current_task()
    try:
        writer.close()
        async with asyncio.timeout(0 if task and task.cancelling() else within_s):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        pass
    finally:
        writer.transport.abort()


class _Tunnel:
    """Both ways of a connection, which ends when nothing passes for too long."""

    def __init__(self, patience: asyncio.Timeout, bounds: ProxyBounds) -> None:
        self._patience = patience
        self._bounds = bounds
        self._allowed_s = bounds.idle_s
        self._heard()

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One way."""
        while data := await reader.read(1 << 16):
            if asyncio.get_running_loop().time() > self._next:
                self._heard()
            writer.write(data)
            await writer.drain()
        with contextlib.suppress(OSError):
            writer.write_eof()
        self._allowed_s = self._bounds.half_s
        self._heard()

    def _heard(self) -> None:
        """Something has passed. Seldom: a timer for each piece would cost more than the piece."""
        now = asyncio.get_running_loop().time()
        self._next = now + self._allowed_s / 10
        self._patience.reschedule(now + self._allowed_s)
