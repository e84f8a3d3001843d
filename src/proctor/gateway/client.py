"""The agent's side of one call: an answer that begins once, and is kept alive until it does.

An agent is at the other end of a connection, or in this very process.
"""

from __future__ import annotations

import asyncio
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from proctor.gateway.apis import Api, error_document, error_event, model_entry, model_list

EVENT_STREAM = "text/event-stream"
_LOOK_S = 5.0
_JSON = {"Content-Type": "application/json"}
_NOT_PASSED_BACK = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-connection", "te", "trailer", "upgrade",
    "transfer-encoding", "content-length", "content-encoding", "set-cookie", "alt-svc",
    "strict-transport-security",
})  # fmt: skip


def error_response(api: Api, status: int, message: str, code: str = "") -> web.Response:
    """An error in the API's own shape."""
    document = error_document(api, status, message, code)
    return web.Response(status=status, body=json.dumps(document).encode(), content_type="application/json")


class RefusedError(Exception):
    """A request that cannot become a call; the text is for the agent, and no provider was asked."""

    def __init__(self, status: int, message: str, code: str = "") -> None:
        super().__init__(message)
        self.status, self.code = status, code


def listed(api: Api, name: str, models: Sequence[str], known: str | None) -> web.Response:
    """The models of an attempt, or the one that a name means."""
    if not name:
        return web.json_response(model_list(api, models))
    if known is None:
        return error_response(api, 404, f"this attempt has no model '{name[:100]}'", "model_not_found")
    return web.json_response(model_entry(api, known))


class Client(ABC):
    """Who asked. It may go away at any moment; then what is written goes nowhere."""

    def __init__(self, api: Api) -> None:
        self.status = 0
        """What it was answered; 0 until then."""
        self.gone = False
        self.has_headers = False
        """Whether headers are out: what goes wrong from now on is said in the stream."""
        self.keeps_alive = False
        """Whether it hears something while it waits."""
        self._api = api
        self._beat_s = 0.0
        self._beating: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def keep_alive(self, grace_s: float, beat_s: float) -> None:
        """It wants a stream: after a while it hears something now and then, until the answer begins."""
        self.keeps_alive, self._beat_s = True, beat_s
        self._timer = asyncio.get_running_loop().call_later(grace_s, self._start_beating)

    async def whole(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """An answer at once."""
        await self.quiet()
        if self.gone:
            return
        if self.has_headers:
            await self._write(body)
            return
        self.status, self.has_headers = status, True
        await self._send(status, headers, body)

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """The headers of an answer whose body comes in pieces."""
        await self.quiet()
        if self.gone or self.has_headers:
            return
        self.status, self.has_headers = status, True
        await self._send(status, headers, None)

    async def piece(self, data: bytes) -> None:
        """The next piece."""
        if data and not self.gone:
            await self._write(data)

    async def fail(self, status: int, message: str, code: str = "") -> bytes:
        """Say that it failed, in the stream that has begun or as an answer, whose body is returned."""
        await self.quiet()
        if self.gone:
            return b""
        if self.has_headers:
            await self._write(error_event(self._api, status, message, code))
            return b""
        body = json.dumps(error_document(self._api, status, message, code)).encode()
        await self.whole(status, _JSON, body)
        return b"" if self.gone else body

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
            self.status, self.has_headers = 200, True
            await self._send(200, {"Content-Type": EVENT_STREAM, "Cache-Control": "no-cache"}, None)
        while not self.gone:
            await self._write(b": waiting for the model\n\n")
            await asyncio.sleep(self._beat_s)

    @abstractmethod
    async def _send(self, status: int, headers: Mapping[str, str], body: bytes | None) -> None:
        """Begin the answer; without a body, that comes in pieces."""

    @abstractmethod
    async def _write(self, data: bytes) -> None:
        """More of the body."""


class RemoteClient(Client):
    """An agent at the other end of a connection."""

    def __init__(self, request: web.BaseRequest, api: Api) -> None:
        super().__init__(api)
        self.response: web.StreamResponse | None = None
        self.writing_since = 0.0
        """When it began to take what it is being sent; 0 while nothing is."""
        self.written_s = 0.0
        """How long it took for what it has."""
        self._request = request

    def abort(self) -> None:
        """It takes nothing: it counts as gone."""
        if transport := self._request.transport:
            transport.abort()

    async def _send(self, status: int, headers: Mapping[str, str], body: bytes | None) -> None:
        given = _passed_back(headers)
        if body is None:
            response = web.StreamResponse(status=status, headers=given)
        else:
            response = web.Response(status=status, headers=given, body=body)
        self.response = response
        self.writing_since = time.monotonic()
        try:
            await response.prepare(self._request)
            if body is not None:
                await response.write_eof()
        except ConnectionError:
            self.gone = True
        self.writing_since = 0.0

    async def _write(self, data: bytes) -> None:
        self.writing_since = time.monotonic()
        try:
            assert self.response
            await self.response.write(data)
        except ConnectionError:
            self.gone = True
        self.written_s += time.monotonic() - self.writing_since
        self.writing_since = 0.0


class Clients:
    """Agents that are being answered. One that hardly takes any of it would keep a place at the provider."""

    def __init__(self, read_s: float) -> None:
        self._read_s = read_s
        self._open: set[RemoteClient] = set()
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def watched(self, client: RemoteClient) -> Iterator[None]:
        """While it is answered."""
        self._open.add(client)
        if self._timer is None:
            self._wait()
        try:
            yield
        finally:
            self._open.discard(client)

    def close(self) -> None:
        """Watch no longer."""
        if self._timer:
            self._timer.cancel()

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(min(_LOOK_S, self._read_s), self._look)

    def _look(self) -> None:
        self._timer = None
        late = time.monotonic() - self._read_s
        for client in self._open:
            if 0 < client.writing_since < late + client.written_s:
                client.abort()
        if self._open:
            self._wait()


class LocalClient(Client):
    """An agent of this process, which gets its answer when that is complete."""

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        version = {"anthropic-version": "2023-06-01"} if api is Api.MESSAGES else {}
        self.headers = {**_JSON, "Accept": "*/*", "User-Agent": "Proctor", **version}
        """Of its calls."""
        self._pieces: list[bytes] = []

    @property
    def body(self) -> bytes:
        """What it was answered."""
        return b"".join(self._pieces)

    async def _send(self, status: int, headers: Mapping[str, str], body: bytes | None) -> None:  # noqa: ARG002
        if body:
            self._pieces.append(body)

    async def _write(self, data: bytes) -> None:
        self._pieces.append(data)


def _passed_back(headers: Mapping[str, str]) -> dict[str, Any]:
    return {name: value for name, value in headers.items() if name.lower() not in _NOT_PASSED_BACK}
