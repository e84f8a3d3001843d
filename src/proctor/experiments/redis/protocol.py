"""The small part of Redis's protocol (RESP 2) that the experiment needs: commands out, replies in."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any


class RedisError(Exception):
    """What the server answered instead of a result."""


class Connection:
    """A connection over TCP. A pipeline is several commands in one write."""

    def __init__(self, host: str, port: int, timeout_s: float = 30.0) -> None:
        self._socket = socket.create_connection((host, port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self._socket.makefile("rb")

    def __call__(self, *command: str | bytes | float) -> Any:
        """One command and its reply; RedisError when it is refused."""
        return self.pipeline([command])[0]

    def pipeline(self, commands: Sequence[Sequence[str | bytes | float]]) -> list[Any]:
        """Several commands at once, and their replies; RedisError when one is refused."""
        self._socket.sendall(b"".join(map(_encoded, commands)))
        replies = [self._reply() for _ in commands]
        for reply in replies:
            if isinstance(reply, RedisError):
                raise reply
        return replies

    def close(self) -> None:
        """Hang up."""
        self._reader.close()
        self._socket.close()

    def _reply(self) -> Any:
        line = self._reader.readline()
        if not line.endswith(b"\r\n"):
            raise RedisError("the server hung up")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            return RedisError(rest.decode("utf-8", "replace"))
        if kind == b":":
            return int(rest)
        size = int(rest)
        if size < 0:
            return None
        if kind == b"$":
            return self._reader.read(size + 2)[:-2]
        return [self._reply() for _ in range(size)]


def _encoded(command: Sequence[str | bytes | float]) -> bytes:
    parts = [part if isinstance(part, bytes) else str(part).encode() for part in command]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
