"""Networks of a sandbox: none, public through slirp4netns, or an allow-list of hosts through a proxy.

The allow-list needs no process inside: a socket that listens on the inside's loopback is served out here, by
a proxy that connects to the hosts of the list and to nobody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import shutil
import socket
from collections.abc import Sequence

from proctor.errors import SandboxError
from proctor.sandbox.init.client import Keeper

PROXY_PORT = 3128
_HEAD_BYTES = 16 * 1024
_CONNECT_S = 20.0
_READY_S = 15.0
RESOLVER = "10.0.2.3"
"""The resolver that slirp4netns offers inside."""


def proxy_environment() -> dict[str, str]:
    """Variables that make programs inside use the proxy."""
    address = f"http://127.0.0.1:{PROXY_PORT}"
    names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
    return dict.fromkeys(names, address) | dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1")


def allowed(host: str, allow_list: Sequence[str]) -> bool:
    """Whether a host is on the list; `*.example.org` stands for every name below example.org."""
    host = host.rstrip(".").lower()
    for each in allow_list:
        entry = each.rstrip(".").lower()
        if host == entry or (entry.startswith("*.") and host.endswith(entry[1:])):
            return True
    return False


class PublicNetwork:
    """A slirp4netns process that gives one sandbox the outside world, without the host's loopback."""

    def __init__(self) -> None:
        self._task: asyncio.Task[int] | None = None
        self._exit_fd = -1

    async def start(self, keeper: Keeper, init_pid: int) -> None:
        """Connect the network namespace of an init."""
        if not shutil.which("slirp4netns"):
            raise SandboxError("network 'public' needs slirp4netns: install it, or use network 'none'")
        leave, self._exit_fd = os.pipe2(os.O_CLOEXEC)
        ready, tell = os.pipe2(os.O_CLOEXEC)
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        command = [
            "slirp4netns", "--configure", "--mtu=65520", "--disable-host-loopback", "--enable-seccomp",
            "--ready-fd=1", "--exit-fd=3", "--netns-type=path", f"/proc/{init_pid}/ns/net", "tap0",
        ]  # fmt: skip
        self._task = asyncio.get_running_loop().create_task(keeper.run(command, [null, tell, null, leave]))
        await asyncio.sleep(0)  # the task has sent the descriptors now
        for fd in (leave, tell, null):
            os.close(fd)
        try:
            await _readable(ready, _READY_S)
            connected = os.read(ready, 1)
        except BaseException:
            await self.stop()
            raise
        finally:
            os.close(ready)
        if not connected:
            await self.stop()
            raise SandboxError("slirp4netns could not connect the sandbox (is /dev/net/tun there?)")
        # Clouds hand out credentials on link-local addresses; the inside cannot take this route away again.
        await keeper.run(
            ["nsenter", f"--net=/proc/{init_pid}/ns/net", "ip", "route", "add", "blackhole", "169.254.0.0/16"]
        )

    async def stop(self) -> None:
        """Disconnect."""
        if self._exit_fd >= 0:
            os.close(self._exit_fd)
            self._exit_fd = -1
        if self._task:
            with contextlib.suppress(SandboxError, asyncio.CancelledError):
                await self._task
            self._task = None


async def _readable(fd: int, timeout_s: float) -> None:
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    loop.add_reader(fd, event.set)
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        raise SandboxError(f"slirp4netns was not ready after {timeout_s:.0f} s") from None
    finally:
        loop.remove_reader(fd)


class AllowListProxy:
    """An HTTP proxy on a socket of the inside's loopback; other hosts get 403."""

    def __init__(self, allow_list: Sequence[str]) -> None:
        self._allow_list = tuple(allow_list)
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
                there, back = await _connect(host, port)
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


async def _connect(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a public address of a host: a name on the list must not lead into the host's own network."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    literal = _is_address(host)
    for _, _, _, _, address in found:
        if literal or ipaddress.ip_address(address[0]).is_global:
            return await asyncio.open_connection(str(address[0]), port, limit=1 << 16)
    raise OSError(f"{host} has no public address")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


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
