"""The scripted provider's server: four APIs on a loopback port, faults, and a ledger of what it sold."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from proctor.gateway.apis import (
    Api,
    Route,
    api_of_listing,
    error_document,
    listing,
    model_entry,
    model_list,
    recognise,
)
from proctor.gateway.body import Body, BodyError
from proctor.gateway.call_options import wanted
from proctor.gateway.client import EVENT_STREAM
from proctor.gateway.provider.replies import asking, counted, events, whole
from proctor.gateway.provider.script import Asking, Fault, Script, Turn
from proctor.gateway.usage import Usage

_MOST_BODY = 128 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Sale:
    """One request in the ledger."""

    n: int
    api: Api | None
    model: str
    streamed: bool
    status: int
    key: str
    """The name of the key, never the key."""
    usage: Usage | None
    told: bool
    """Whether the answer went out to its end, and with it the usage."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


class _Server(web.Server):
    """Counts connections."""

    made = 0

    def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:
        self.made += 1
        super().connection_made(handler, transport)


@dataclass(eq=False)
class FakeProvider:
    """Answers on `base_url` while the context is open."""

    script: Script
    latency_s: float = 0.0
    errors: Sequence[int] = ()
    """Status codes to send first, one per request, before behaving."""
    faults: Sequence[Fault] = ()
    rate_per_s: float | None = None
    """Requests beyond this in any second get 429 with a Retry-After."""
    key: str | None = None
    """When set, requests without it get 401."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Several keys by name."""
    models: Sequence[str] = ("*",)
    """Names that it lists and takes; `*` takes any, as services with wildcards say it."""
    lists_models: bool = True
    """Whether it answers GET /models; some services do not."""
    requests: list[Mapping[str, Any]] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    sales: list[Sale] = field(default_factory=list)
    keep_requests: bool = True
    keep_alive: bool = True
    """Whether a connection serves more than one request."""
    clock: Callable[[], float] = time.monotonic
    tls: ssl.SSLContext | None = None
    """Speaks TLS when set."""
    port: int = 0
    ledger: Path | None = None
    """A file to which each sale is added, as a line of JSON."""

    async def __aenter__(self) -> Self:
        first = [Fault(status=each) for each in self.errors]
        self._faults = [fault for fault in (*first, *self.faults) for _ in range(fault.times)]
        self._count = 0
        self._recent: deque[float] = deque()
        self._names = {value: name for name, value in self.keys.items()}
        if self.key is not None:
            self._names[self.key] = "key"
        self._turn_faults: dict[Fault, int] = {}
        self._server = _Server(self._handle, request_factory=self._request, access_log=None)
        self._listening = await asyncio.get_running_loop().create_server(
            self._server, "127.0.0.1", self.port, ssl=self.tls, backlog=2048
        )
        port = self._listening.sockets[0].getsockname()[1]
        self.address = f"{'https' if self.tls else 'http'}://127.0.0.1:{port}"
        self.base_url = f"{self.address}/v1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.close()
        await self._server.shutdown(0.1)

    @property
    def connections(self) -> int:
        """How many were made."""
        return self._server.made

    def total(self, *, key: str | None = None) -> Usage:
        """What was sold and told, in all or with one key."""
        sold = [each.usage for each in self.sales if each.usage and each.told and key in {None, each.key}]
        names = [each for each in Usage.__slots__ if each != "stated_usd"]
        return Usage(**{name: sum(getattr(usage, name) for usage in sold) for name in names})

    # One request

    def _request(self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
        loop = asyncio.get_running_loop()
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=_MOST_BODY)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            response = await self._answer(request)
        except ConnectionError:
            return web.Response(status=400)
        if not self.keep_alive:
            response.force_close()
        return response

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/ledger":
            return web.json_response(self._books())
        key = self._key(request)
        route = recognise(request.path)
        api = route.api if route else api_of_listing(request.path, request.headers)
        if key is None:
            return self._refuse(api, 401, "wrong key")
        name = listing(request.path)
        if request.method == "GET" and name is not None:
            return self._listing(api, name)
        if route is None or request.method != "POST":
            return self._refuse(api, 404, "no such path")
        try:
            body = Body.read(await request.read())
            options = wanted(route, body)
        except BodyError as error:
            return self._refuse(api, 400, str(error))
        if self.keep_requests:
            self.requests.append(body.values)
        return await self._reply(request, route, asking(route, options, body.values), key)

    def _key(self, request: web.BaseRequest) -> str | None:
        """The name of the key that came; None when it is none of those that are let in."""
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        offered = (bearer, request.headers.get("x-api-key", ""), request.headers.get("x-goog-api-key", ""))
        if not self._names:
            return ""
        return next((self._names[each] for each in offered if each in self._names), None)

    def _listing(self, api: Api, name: str) -> web.Response:
        if not self.lists_models:
            return self._refuse(api, 404, "no such path")
        self.statuses.append(200)
        return web.json_response(model_entry(api, name) if name else model_list(api, list(self.models)))

    async def _reply(
        self, request: web.BaseRequest, route: Route, asked: Asking, key: str
    ) -> web.StreamResponse:
        fault = self._fault(asked.api, key)
        refusal = self._refusal(asked, fault)
        if refusal:
            self._sell(asked, refusal.status, key, None, told=True)
            return refusal
        if route.action == "count":
            self.statuses.append(200)
            tokens = len(asked.prompt) // 4
            return web.json_response({"input_tokens": tokens, "totalTokens": tokens})
        turn = self.script(asked)
        fault = fault or self._of_turn(turn) or Fault()
        if fault.status:
            self._sell(asked, fault.status, key, None, told=True)
            return self._refuse(asked.api, fault.status, fault.message, fault.retry_after_s)
        if self.latency_s or fault.first_byte_s:
            await asyncio.sleep(self.latency_s + fault.first_byte_s)
        return await self._send(request, asked, turn, fault, key)

    def _fault(self, api: Api, key: str) -> Fault | None:
        """The next fault that applies, once less."""
        for place, fault in enumerate(self._faults):
            if fault.key in {"", key} and fault.api in {"", api}:
                return self._faults.pop(place)
        return None

    def _of_turn(self, turn: Turn) -> Fault | None:
        if turn.fault is None or self._turn_faults.setdefault(turn.fault, turn.fault.times) <= 0:
            return None
        self._turn_faults[turn.fault] -= 1
        return turn.fault

    def _refusal(self, asked: Asking, fault: Fault | None) -> web.Response | None:
        if fault and fault.status:
            return self._refuse(asked.api, fault.status, fault.message, fault.retry_after_s)
        if self._too_fast():
            return self._refuse(asked.api, 429, "slow down", 0.05)
        if "*" not in self.models and asked.model not in self.models:
            message = f"the model {asked.model!r} does not exist"
            return self._refuse(asked.api, 404, message, code="model_not_found")
        return None

    def _refuse(
        self, api: Api, status: int, message: str, retry_after_s: float | None = None, code: str = ""
    ) -> web.Response:
        self.statuses.append(status)
        headers = {} if retry_after_s is None else {"Retry-After": f"{retry_after_s:g}"}
        return web.json_response(error_document(api, status, message, code), status=status, headers=headers)

    async def _send(
        self, request: web.BaseRequest, asked: Asking, turn: Turn, fault: Fault, key: str
    ) -> web.StreamResponse:
        self._count += 1
        number, usage = self._count, counted(turn, asked)
        self.statuses.append(200)
        if not asked.streamed:
            body = json.dumps(whole(asked, turn, number)).encode()
            if fault.malformed:
                body = body[: len(body) // 2]
            if fault.cut_after is not None:
                response: web.StreamResponse = web.StreamResponse(headers={"Content-Length": str(len(body))})
                parts = [body[: len(body) // 2]]
            else:
                here = request.transport is not None and not request.transport.is_closing()
                told = here and not fault.malformed
                self._sell(asked, 200, key, usage, told=told)
                return web.Response(body=body, content_type="application/json")
        else:
            response = web.StreamResponse(headers={"Content-Type": EVENT_STREAM})
            parts = list(events(asked, turn, number))
            if fault.malformed:
                parts[0] = b"data: {not JSON\n\n"
        # What went in is said by the first event of messages, and by the last one elsewhere.
        hidden = fault.malformed and asked.api is Api.MESSAGES

        def sell(told: bool) -> None:
            self._sell(asked, 200, key, usage, told=told and not hidden)

        return await self._stream(request, response, parts, fault, sell)

    async def _stream(
        self,
        request: web.BaseRequest,
        response: web.StreamResponse,
        parts: Sequence[bytes],
        fault: Fault,
        sell: Callable[[bool], None],
    ) -> web.StreamResponse:
        """Send piece by piece; the sale is entered however that ends."""
        told = False
        try:
            await response.prepare(request)
            for number, part in enumerate(parts):
                if number == fault.cut_after:
                    break
                if fault.chunk_s:
                    await asyncio.sleep(fault.chunk_s)
                await response.write(part)
            else:
                told = fault.cut_after is None
            if told:
                await response.write_eof()
            elif request.transport:
                request.transport.close()
        finally:
            sell(told)
        return response

    def _sell(self, asked: Asking, status: int, key: str, usage: Usage | None, *, told: bool) -> None:
        sale = Sale(
            n=len(self.sales) + 1,
            api=asked.api,
            model=asked.model,
            streamed=asked.streamed,
            status=status,
            key=key,
            usage=usage,
            told=told,
        )
        self.sales.append(sale)
        if self.ledger:
            with self.ledger.open("a") as lines:
                lines.write(json.dumps(sale.to_dict()) + "\n")

    def _books(self) -> dict[str, Any]:
        keys = sorted({each.key for each in self.sales})
        return {
            "calls": [each.to_dict() for each in self.sales],
            "totals": asdict(self.total()),
            "keys": {key: asdict(self.total(key=key)) for key in keys if key},
        }

    def _too_fast(self) -> bool:
        if self.rate_per_s is None:
            return False
        now = self.clock()
        while self._recent and now - self._recent[0] > 1:
            self._recent.popleft()
        if len(self._recent) >= self.rate_per_s:
            return True
        self._recent.append(now)
        return False
