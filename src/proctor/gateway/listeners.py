"""The sockets on which the gateway listens: one for programs of this machine, and those in sandboxes."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from aiohttp import web

from proctor.gateway.bounds import Bounds
from proctor.gateway.tokens import Access
from proctor.quota import Quota

Handle = Callable[[Access | None, web.BaseRequest], Awaitable[web.StreamResponse]]
_MOST_HEADERS = 64
"""Of 8 kB at most; agents send some 25."""
_ACCEPTING = 3
"""Turns of the loop until a connection that is being accepted is among those that can be closed."""


class Listeners:
    """By the attempt that a socket is for; None: for all that have a token."""

    def __init__(self, bounds: Bounds, log: logging.Logger) -> None:
        self._bounds = bounds
        self._log = log
        self._open: dict[Access | None, list[tuple[asyncio.Server, BoundedServer]]] = {}

    async def add(self, access: Access | None, listener: socket.socket, handle: Handle) -> None:
        """Serve on a listening socket."""
        server = BoundedServer(
            self._bounds.connections_of_attempt() if access else None,
            partial(handle, access),
            handler_cancellation=True,
            keepalive_timeout=self._bounds.head_s,
            max_headers=_MOST_HEADERS,
            auto_decompress=False,
            access_log=None,
            logger=self._log,
        )
        listening = await asyncio.get_running_loop().create_server(server, sock=listener)
        self._open.setdefault(access, []).append((listening, server))

    async def close(self, access: Access | None) -> None:
        """Close the sockets of an attempt, with all their connections."""
        loop = asyncio.get_running_loop()
        for listening, server in self._open.pop(access, ()):
            for listener in listening.sockets:
                loop.remove_reader(listener.fileno())
            await _some_turns()  # a closed server makes no connection of what it has accepted, and loses it
            listening.close()
            transports = [handler.transport for handler in server.connections if handler.transport]
            await server.shutdown(1.0)
            for transport in transports:
                transport.abort()  # or what is left to say to an agent that is gone would keep it for ever
            await _some_turns()


async def _some_turns() -> None:
    """Let the event loop finish what it has begun: connections that it accepts or closes."""
    for _ in range(_ACCEPTING):
        await asyncio.sleep(0)


class BoundedServer(web.Server):
    """Answers so many connections of a sandbox; more are closed with a word."""

    def __init__(self, quota: Quota | None, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._quota = quota
        self._counted: set[Any] = set()

    def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:
        """Of aiohttp's own."""
        super().connection_made(handler, transport)
        if self._quota is None:
            return
        if self._quota.take():
            self._counted.add(handler)
            return
        message = b'{"error": {"message": "too many connections from this sandbox: at most %d"}}' % (
            self._quota.most
        )
        head = b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
        transport.write(head + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(message) + message)
        transport.close()

    def connection_lost(self, handler: Any, exc: BaseException | None = None) -> None:
        """Of aiohttp's own."""
        if handler in self._counted:
            self._counted.discard(handler)
            assert self._quota
            self._quota.give()
        super().connection_lost(handler, exc)
