"""What one attempt may have at the gateway at a time, so that one cannot use up what all attempts share."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from aiohttp import web

from proctor.processes import allow_open_files
from proctor.quota import Pool, Quota

_PIECE_BYTES = 128
"""What a piece of an answer takes beside its bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Of one attempt, if nothing else is said."""

    request_bytes: int = 32 << 20
    """One request, as the strictest provider has it."""
    flight_bytes: int = 96 << 20
    """Requests and answers that are under way."""
    own_bytes: int = 4 << 20
    """Of them, those that other attempts cannot take away."""
    calls: int = 1024
    own_calls: int = 64
    connections: int = 128
    """From its sandbox."""
    own_connections: int = 8
    tape_bytes: int = 256 << 20
    """What it asked and got, as it came."""
    taped_bytes: int = 64 << 20
    """The same, compressed."""
    body_s: float = 120.0
    """How long a request may take to arrive."""
    head_s: float = 120.0
    """How long a connection may be open without one."""
    read_s: float = 60.0
    """How long an agent may keep an answer waiting, all its pieces together; then it counts as gone."""

    def bytes_of_attempt(self) -> Quota:
        """What one attempt may have under way."""
        return Quota(_flight_bytes(), own=self.own_bytes, most=self.flight_bytes)

    def calls_of_attempt(self) -> Quota:
        """How many calls."""
        return Quota(_calls(), own=self.own_calls, most=self.calls)

    def connections_of_attempt(self) -> Quota:
        """How many connections of its sandbox."""
        return Quota(_connections(), own=self.own_connections, most=self.connections)


@cache
def _flight_bytes() -> Pool:
    """For all gateways of this process."""
    return Pool(512 << 20)


@cache
def _calls() -> Pool:
    """For all gateways of this process: each is a connection to a provider."""
    return Pool(allow_open_files() // 8)


@cache
def _connections() -> Pool:
    """For all gateways of this process."""
    return Pool(allow_open_files() // 8)


class BoundError(Exception):
    """An attempt has too much under way; `status` is what its agent is told."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Flight:
    """One call's part of what its attempt has under way; given back when nobody works on it any more."""

    def __init__(self, bounds: Bounds, calls: Quota, size: Quota) -> None:
        """BoundError when there are too many already."""
        if not calls.take():
            raise BoundError(429, f"this attempt has too many calls under way: at most {calls.most}")
        self.bounds = bounds
        self._calls = calls
        self._size = size
        self.carried = False
        """Whether a task works on it, which ends it."""
        self._taken = 0
        self._open = True

    def hold_request(self, size: int) -> None:
        """More of a request has come, or is to be sent."""
        if not self._take(size):
            most = self._size.most >> 20
            raise BoundError(
                429, f"the requests and answers of this attempt that are under way may have {most} MiB"
            )

    def hold_piece(self, size: int) -> bool:
        """More of an answer has come; False when there is no room to keep it."""
        return self._take(size + _PIECE_BYTES)

    def _take(self, size: int) -> bool:
        if not self._size.take(size):
            return False
        self._taken += size
        return True

    def drop_pieces(self, pieces: Sequence[tuple[float, int]]) -> None:
        """Of an answer that is not kept any more."""
        size = sum(size + _PIECE_BYTES for _, size in pieces)
        self._size.give(size)
        self._taken -= size

    def end(self, _: object = None) -> None:
        """It is over; whoever works on it calls this."""
        if self._open:
            self._open = False
            self._calls.give()
            self._size.give(self._taken)


async def read_body(request: web.BaseRequest, flight: Flight) -> bytes:
    """A request's body as it came; BoundError when it is too large, or takes too long."""
    most = flight.bounds.request_bytes
    message = f"a request may have {most >> 20} MiB"
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise BoundError(415, "a request's body comes as it is, not compressed")
    if request.content_length and request.content_length > most:
        raise BoundError(413, f"{message}; this one has {request.content_length >> 20}")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(flight.bounds.body_s):
            async for part in request.content.iter_any():
                size += len(part)
                if size > most:
                    raise BoundError(413, f"{message}; this one has more")
                flight.hold_request(len(part))
                parts.append(part)
    except TimeoutError:
        raise BoundError(408, f"the request did not come within {flight.bounds.body_s:g} s") from None
    return parts[0] if len(parts) == 1 else b"".join(parts)
