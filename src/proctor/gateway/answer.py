"""What a provider answers: passed on to the agent as it comes, metered and kept for the tape meanwhile."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import aiohttp

from proctor.gateway.apis import Api
from proctor.gateway.asked import Asked
from proctor.gateway.body import LARGE
from proctor.gateway.bounds import Flight
from proctor.gateway.call_options import aside
from proctor.gateway.client import EVENT_STREAM, Client
from proctor.gateway.usage import StreamMeter, Usage, usage_of

_MOST_BYTES = 64 << 20
"""Of an answer that is not streamed."""
_KEPT_HEADERS = ("content-type", "request-id", "x-request-id")


class Answer:
    """The answer to one call. Until some of it has been passed on it can be asked for again."""

    def __init__(self, asked: Asked, client: Client, started: float, flight: Flight) -> None:
        self.status = 0
        """0 until a provider has begun to answer."""
        self.headers: dict[str, str] = {}
        self.chunks: list[tuple[float, int]] = []
        """Of what was passed on: seconds since the call began, and how many bytes."""
        self.size = 0
        """How many bytes in all."""
        self.pieces: list[bytes] = []
        """All of it for the tape, unless that is more than the attempt has room for."""
        self.complete = True
        """Whether the pieces are all."""
        self.usage: Usage | None = None
        self.first_token_s: float | None = None
        self.failure = ""
        """What was wrong with it."""
        self._asked = asked
        self._client = client
        self._started = started
        self._flight = flight
        self._keys = asked.provider.key_filter()
        self._meter: StreamMeter | None = None
        self._silence: asyncio.Timeout | None = None
        self._silence_s = 0.0
        self._heard_s = 0.0

    async def take(
        self, response: aiohttp.ClientResponse, silence: asyncio.Timeout, silence_s: float
    ) -> None:
        """Pass it on. The timeout ends it when nothing comes for so long."""
        self.status = response.status
        headers = self._keys.headers(response.headers)
        self.headers = {name: headers[name] for name in _KEPT_HEADERS if name in headers}
        self._silence, self._silence_s = silence, silence_s
        if response.content_type == EVENT_STREAM:
            await self._stream(response, headers)
        elif self._asked.wanted.streamed and self._asked.route.api is Api.GEMINI:
            await self._array(response, headers)
        else:
            body = self._keys.whole(await _read(response))
            self.took(body)
            await self._read_usage(body)
            await self._client.whole(response.status, headers, body)

    async def cut(self, message: str) -> None:
        """It broke off after some of it was passed on: nobody can take that back."""
        self.failure = message
        if self._meter:
            await self._rest(self._meter)
            await self._client.fail(502, f"Proctor: {message}", "stream_cut")

    def took(self, piece: bytes, *, data: bool = True) -> None:
        """Note a piece that is passed on; one without data is only a sign of life."""
        now = time.monotonic() - self._started
        if data and self.first_token_s is None:
            self.first_token_s = now
        self.size += len(piece)
        if self.complete and self._flight.hold_piece(len(piece)):
            self.chunks.append((now, len(piece)))
            self.pieces.append(piece)
        elif self.complete:
            self.forget()
        if self._silence and now > self._heard_s + self._silence_s / 10:
            # Seldom: a timer for each piece would cost more than the piece.
            self._heard_s = now
            self._silence.reschedule(asyncio.get_running_loop().time() + self._silence_s)

    def forget(self) -> None:
        """Keep nothing of it: there is no room."""
        self.complete = False
        self._flight.drop_pieces(self.chunks)
        self.chunks, self.pieces = [], []

    async def _stream(self, response: aiohttp.ClientResponse, headers: Mapping[str, str]) -> None:
        meter = self._meter = StreamMeter(self._asked.route.api, drops_usage=self._asked.wanted.adds_usage)
        async for chunk in response.content.iter_any():
            passed = meter.feed(self._keys.feed(chunk))
            self.usage = meter.usage if meter.finished else None
            if not self.size:
                await self._client.begin(response.status, headers)
            if passed:
                self.took(passed, data=meter.began)
                await self._client.piece(passed)
        await self._rest(meter)
        if not self.size:
            await self._client.begin(response.status, headers)
        if meter.error or not meter.finished:
            self.failure = meter.error or "the stream ended before its end"

    async def _rest(self, meter: StreamMeter) -> None:
        if rest := meter.feed(self._keys.rest()) + meter.end():
            self.took(rest)
            await self._client.piece(rest)
        self.usage = meter.usage if meter.finished else None

    async def _array(self, response: aiohttp.ClientResponse, headers: Mapping[str, str]) -> None:
        """A stream that is one array in JSON."""
        async for chunk in response.content.iter_any():
            await self._client.begin(response.status, headers)
            await self._array_piece(self._keys.feed(chunk))
        await self._array_piece(self._keys.rest())
        if self.complete:
            await self._read_usage(b"".join(self.pieces))

    async def _array_piece(self, piece: bytes) -> None:
        if piece:
            self.took(piece)
            await self._client.piece(piece)

    async def _read_usage(self, body: bytes) -> None:
        try:
            self.usage = usage_of(self._asked.route.api, await aside(body, partial(_decoded, body)))
        except ValueError:
            self.failure = "the answer is not JSON"


def _decoded(body: bytes) -> Any:
    """In a thread, a large answer lets others run at each of its objects, which are made in Python."""
    return json.loads(body, object_pairs_hook=_object if len(body) > LARGE else None)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(pairs)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        parts.append(chunk)
        size += len(chunk)
        if size > _MOST_BYTES:
            raise ValueError("the answer is too large")
    return b"".join(parts)
