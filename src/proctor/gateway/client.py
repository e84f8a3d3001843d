"""The agent's side of one call: an answer that begins once, and is kept alive until it does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from proctor.gateway.apis import Api, error_document, error_event

EVENT_STREAM = "text/event-stream"
_NOT_PASSED_BACK = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-connection", "te", "trailer", "upgrade",
    "transfer-encoding", "content-length", "content-encoding", "set-cookie", "alt-svc",
    "strict-transport-security",
})  # fmt: skip


def error_response(api: Api, status: int, message: str, code: str = "") -> web.Response:
    """An error in the API's own shape."""
    document = error_document(api, status, message, code)
    return web.Response(status=status, body=json.dumps(document).encode(), content_type="application/json")


class Client:
    """Who asked. It may go away at any moment; then what is written goes nowhere."""

    def __init__(
        self, request: web.BaseRequest, api: Api, *, events: bool, grace_s: float, beat_s: float
    ) -> None:
        self.status = 0
        """What it was answered; 0 until then."""
        self.gone = False
        self.response: web.StreamResponse | None = None
        self._request = request
        self._api = api
        self._beat_s = beat_s
        self.keeps_alive = events
        """Whether it hears something while it waits."""
        self._beating: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(grace_s, self._start_beating) if events else None

    @property
    def has_headers(self) -> bool:
        """Whether headers are out: what goes wrong from now on is said in the stream."""
        return self.response is not None

    async def whole(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """An answer at once."""
        await self.quiet()
        if self.gone:
            return
        if self.has_headers:
            await self._write(body)
            return
        self.status = status
        response = web.Response(status=status, headers=_passed_back(headers), body=body)
        self.response = response
        await self._send(response)

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """The headers of an answer whose body comes in pieces."""
        await self.quiet()
        if self.gone or self.has_headers:
            return
        self.status = status
        self.response = web.StreamResponse(status=status, headers=_passed_back(headers))
        await self._send(self.response)

    async def piece(self, data: bytes) -> None:
        """The next piece."""
        if data and not self.gone:
            await self._write(data)

    async def fail(self, status: int, message: str, code: str = "") -> None:
        """Say that it failed: as an answer of that status, or in the stream that has begun."""
        await self.quiet()
        if self.gone:
            return
        if self.has_headers:
            await self._write(error_event(self._api, status, message, code))
            return
        self.status = status
        self.response = error_response(self._api, status, message, code)
        await self._send(self.response)

    async def quiet(self) -> None:
        """No more signs of life: the answer itself comes now."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if beating := self._beating:
            self._beating = None
            beating.cancel()
            await asyncio.wait([beating])

    def _start_beating(self) -> None:
        self._beating = asyncio.get_running_loop().create_task(self._beat())

    async def _beat(self) -> None:
        """Headers, then a comment now and then: clients give up on silence, and ignore comments."""
        if not self.has_headers:
            self.status = 200
            headers = {"Content-Type": EVENT_STREAM, "Cache-Control": "no-cache"}
            self.response = web.StreamResponse(headers=headers)
            await self._send(self.response)
        while not self.gone:
            await self._write(b": waiting for the model\n\n")
            await asyncio.sleep(self._beat_s)

    async def _send(self, response: web.StreamResponse) -> None:
        try:
            await response.prepare(self._request)
            if isinstance(response, web.Response):
                await response.write_eof()
        except ConnectionError:
            self.gone = True

    async def _write(self, data: bytes) -> None:
        try:
            assert self.response
            await self.response.write(data)
        except ConnectionError:
            self.gone = True


def _passed_back(headers: Mapping[str, str]) -> dict[str, Any]:
    return {name: value for name, value in headers.items() if name.lower() not in _NOT_PASSED_BACK}
