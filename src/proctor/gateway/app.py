"""The gateway itself: a server next to the trials, on loopback and on sockets handed over by sandboxes.

Bodies and chunks pass as they are; the agent's token goes, the provider's key comes in its place.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from proctor.errors import UsageError
from proctor.gateway.apis import Api, Route, api_of_listing, listing, recognise
from proctor.gateway.asked import Asked
from proctor.gateway.body import BodyError
from proctor.gateway.bounds import BoundError, Bounds, Flight, read_body
from proctor.gateway.budget import Books
from proctor.gateway.call_options import aside, changed_body, read_request
from proctor.gateway.client import (
    Client,
    Clients,
    LocalClient,
    RefusedError,
    RemoteClient,
    error_response,
    listed,
)
from proctor.gateway.exchange import Exchange
from proctor.gateway.lasting_refusals import LastingRefusals
from proctor.gateway.limiter import Retry
from proctor.gateway.listeners import Listeners
from proctor.gateway.prices import Prices
from proctor.gateway.providers import Providers
from proctor.gateway.replay import Replay
from proctor.gateway.replayed import play
from proctor.gateway.shares import Shares
from proctor.gateway.tape import Recorder, Redact
from proctor.gateway.tokens import PREFIX, Access, Tokens
from proctor.gateway.translator import Translators
from proctor.gateway.upstream import Upstream, without_key
from proctor.store.spending import Spending

_LOG = logging.getLogger("proctor.gateway")
_SILENT = logging.getLogger("proctor.gateway.http")
"""The server's own messages quote request lines, and a token may be in one."""
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False
_SMALL = 1 << 16
_READ_AT_A_TIME = 2
"""Bodies that are not small: each takes up to thirty times its size, and time in which nothing else runs."""


class Gateway:
    """Serves models to attempts. An attempt with a `replay`, its own or this one, reaches no provider."""

    def __init__(
        self,
        providers: Providers,
        prices: Prices | None = None,
        *,
        spending: Spending | None = None,
        replay: Replay | None = None,
        records: bool = True,
        spool: Path | None = None,
        redact: Redact | None = None,
        retry: Retry | None = None,
        ca_bundle: str = "",
        litellm: Sequence[str] = (),
        bounds: Bounds | None = None,
        grace_s: float = 5.0,
        beat_s: float = 5.0,
        drain_s: float = 60.0,
    ) -> None:
        self.providers = providers
        self.prices = prices or Prices.load()
        self._replay = replay
        self._records = records
        self._spool = spool
        self._redact = redact
        self._retry = retry or Retry()
        self._bounds = bounds or Bounds()
        self._grace_s, self._beat_s, self._drain_s = grace_s, beat_s, drain_s
        self._tokens = Tokens()
        self._recorders: dict[Access, Recorder] = {}
        self._shares: Shares | None = None
        self._upstream = Upstream(ca_bundle)
        self._translators = Translators(litellm, ca_bundle)
        self._spending = spending
        self._books: Books | None = None
        self._clients = Clients(self._bounds.read_s)
        self._reading = asyncio.Semaphore(_READ_AT_A_TIME)
        self._listeners = Listeners(self._bounds, _SILENT)
        self._lasting = LastingRefusals()
        self.base_url = ""
        """Where agents outside of sandboxes find it; `/v1` is added for clients of OpenAI's APIs."""

    async def __aenter__(self) -> Self:
        if self._spending:
            self._books = Books(self._spending, self.prices)
        self._shares = Shares(self._spending)
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        await self._listeners.add(None, listener, self._handle)
        self.base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for access in self._tokens.all():
            await self.end(access)
        await self._listeners.close(None)
        self._clients.close()
        await self._upstream.close()
        await self._translators.close()
        if self._books:
            await self._books.close()
        if self._shares:
            await self._shares.close()
        for recorder in self._recorders.values():
            recorder.close()

    def issue(self, **what: Any) -> Access:
        """A token for an attempt; see `Access` for what it may be given."""
        quotas = {
            "calls_under_way": self._bounds.calls_of_attempt(),
            "bytes_under_way": self._bounds.bytes_of_attempt(),
        }
        access = Access(**{"replay": self._replay, **quotas, **what})
        if access.budgets and not self._spending and access.replay is None:
            raise UsageError("budgets need a store to be kept in")
        for model in access.models:
            if access.replay is None:
                self.providers.of(model)
        self._tokens.add(access)
        if self._records and access.replay is None:
            head = {
                "run": access.run_id,
                "trial": access.trial,
                "attempt": access.attempt,
                "models": access.models,
            }
            secrets = {"token": access.token, **self.providers.keys()}
            self._recorders[access] = Recorder(head, secrets, self._spool, self._redact, self._bounds)
        return access

    async def prepare(self, model: str, apis: Collection[Api]) -> None:
        """Have a LiteLLM ready where an agent with these APIs needs one; UsageError when that cannot be."""
        provider, _ = self.providers.of(model)
        if provider.translates_for(apis):
            await self._translators.open(provider)

    def lasting_refusal(self, run_id: str, model: str) -> str:
        """Why the provider of a model is asked no more in a run; empty while it is."""
        return self._lasting.reason(run_id, self.providers.of(model)[0].name)[1]

    def recorder(self, access: Access) -> Recorder | None:
        """The tape of an attempt, to be saved after its end."""
        return self._recorders.get(access)

    async def end(self, access: Access) -> None:
        """The attempt is over. Returns when all its calls are settled."""
        await self._tokens.end(access)
        await self._listeners.close(access)
        if self._books:
            await self._books.flush()

    def forget(self, access: Access) -> None:
        """Its tape has been saved, or is not wanted."""
        if recorder := self._recorders.pop(access, None):
            recorder.close()

    async def add_socket(self, listener: socket.socket, access: Access) -> None:
        """Serve one attempt and no other on a listening socket; its token is then good nowhere else."""
        access.bound = True
        await self._listeners.add(access, listener, self._handle)

    async def ask(self, access: Access, path: str, data: bytes) -> tuple[int, bytes]:
        """A call of an agent in this process: as any other, but for the connection. Status and body."""
        route = recognise(path)
        if route is None:
            raise UsageError(f"the gateway has no {path}")
        client = LocalClient(route.api)
        try:
            if access.ended:
                await client.fail(401, "the attempt has ended", "invalid_api_key")
            else:
                with self._flight(access) as flight:
                    flight.hold_request(len(data))
                    await self._call(access, route, data, client, flight, headers=client.headers)
        except BoundError as error:
            await client.fail(error.status, str(error))
        except Exception as error:  # noqa: BLE001 - as in _handle: the gateway's failure is not the agent's
            _LOG.error("a request failed inside the gateway: %s", type(error).__name__)
            await client.fail(500, "the gateway failed")
        return client.status, client.body

    # Requests

    async def _handle(self, bound: Access | None, request: web.BaseRequest) -> web.StreamResponse:
        route = recognise(request.path)
        api = route.api if route else api_of_listing(request.path, request.headers)
        try:
            return await self._answer(bound, request, route, api)
        except BoundError as error:
            response = error_response(api, error.status, f"Proctor: {error}")
            response.headers.update({"Retry-After": "1"} if error.status == 429 else {})
            return response
        except ConnectionError:
            return web.Response(status=400)
        except Exception as error:  # noqa: BLE001 - a request must not end the gateway; its text may hold secrets
            _LOG.error("a request failed inside the gateway: %s", type(error).__name__)
            return error_response(api, 500, "the gateway failed")

    async def _answer(
        self, bound: Access | None, request: web.BaseRequest, route: Route | None, api: Api
    ) -> web.StreamResponse:
        if "upgrade" in request.headers.get("connection", "").lower():
            return error_response(api, 426, "no websockets here; use plain requests")
        if request.path == "/" and request.method in {"GET", "HEAD"}:
            return web.Response(text="" if request.method == "HEAD" else "The gateway of Proctor.\n")
        found = self._authenticate(bound, request)
        if isinstance(found, str):
            if bound and route:
                bound.refusal = found
            return error_response(api, 401, found, "invalid_api_key")
        if request.method == "GET" and (name := listing(request.path)) is not None:
            return listed(api, name, found.models, found.resolve(name))
        if route is None or request.method != "POST":
            found.refusal = f"the gateway has no {request.method} {request.path[:200]}"
            return error_response(api, 404, found.refusal)
        client = RemoteClient(request, route.api)
        with self._clients.watched(client), self._flight(found) as flight:
            body, query = await read_body(request, flight), request.rel_url.raw_query_string
            await self._call(found, route, body, client, flight, headers=request.headers, query=query)
        return client.response or web.Response(status=400)

    @contextmanager
    def _flight(self, access: Access) -> Iterator[Flight]:
        """One call's part of what its attempt may have under way; a call goes on without its agent."""
        flight = Flight(self._bounds, access.calls_under_way, access.bytes_under_way)
        try:
            yield flight
        finally:
            if not flight.carried:
                flight.end()

    def _authenticate(self, bound: Access | None, request: web.BaseRequest) -> Access | str:
        """Whose request it is, or why it is nobody's."""
        offered = [request.headers.get(name, "") for name in ("x-api-key", "x-goog-api-key")]
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        offered += [bearer.strip()] if scheme.lower() == "bearer" else []
        in_query = request.query.get("key", "")
        for token in (*offered, in_query):
            access = self._tokens.find(token) if token else None
            if access and access.bound == (bound is not None) and bound in {None, access}:
                return access
        if in_query and not in_query.startswith(PREFIX):
            return (
                "a provider's key does not belong into an address; use the token that the attempt was given"
            )
        return "this is not the token of a running attempt"

    async def _call(
        self,
        access: Access,
        route: Route,
        data: bytes,
        client: Client,
        flight: Flight,
        *,
        headers: Mapping[str, str],
        query: str = "",
    ) -> None:
        """One call, from what was asked to what is answered."""
        try:
            if len(data) <= _SMALL:
                work = await self._work(access, route, data, client, flight, headers, query)
            else:
                async with access.reading, self._reading:
                    work = await self._work(access, route, data, client, flight, headers, query)
        except RefusedError as error:
            access.refusal = str(error)
            await client.fail(error.status, str(error), error.code)
        else:
            await self._carry(access, client, flight, *work)

    async def _work(
        self,
        access: Access,
        route: Route,
        data: bytes,
        client: Client,
        flight: Flight,
        headers: Mapping[str, str],
        query: str,
    ) -> tuple[Coroutine[Any, Any, None], Exchange | None]:
        """What there is to do for a call; RefusedError when it cannot be made."""
        try:
            body, asks = await aside(data, partial(read_request, route, data))
        except BodyError as error:
            raise RefusedError(400, f"Proctor: {error}") from error
        model = access.resolve(asks.model)
        if model is None:
            message = f"this attempt may not use the model '{asks.model[:100]}'; "
            message += f"it has {', '.join(access.models)}"
            raise RefusedError(404, message, "model_not_found")
        if asks.streamed and (route.api is not Api.GEMINI or "alt=sse" in query.split("&")):
            client.keep_alive(self._grace_s, self._beat_s)
        if access.replay:
            return play(access.replay, access, route, asks, model, body.text, client), None
        provider, provider_model = self.providers.of(model)
        translated = None if route.api in provider.apis else self._translators.of(provider, route.api)
        if route.api not in provider.apis and translated is None:
            message = f"'{model}' is reached by {', '.join(sorted(provider.apis))}, and this is {route.api}"
            raise RefusedError(400, f"{message}; the gateway does not translate", "api_mismatch")
        change = partial(
            changed_body,
            route,
            body,
            asks,
            provider_model,
            hosted=access.hosted_tools,
            fields=provider.fields,
        )
        try:
            changed = await aside(data, change)
            flight.hold_request(len(changed or b""))
        except (BodyError, BoundError) as error:
            raise RefusedError(getattr(error, "status", 400), f"Proctor: {error}") from error
        asked = Asked(
            access=access,
            route=route,
            wanted=asks,
            model=model,
            provider=translated or provider,
            translated=translated is not None,
            provider_model=provider_model,
            sent=data,
            body=data if changed is None else changed,
            query=without_key(query),
            headers=headers,
        )
        assert self._shares
        exchange = Exchange(
            asked=asked,
            client=client,
            upstream=self._upstream,
            limiter=self._shares.limiter(provider.name, provider_model, provider.concurrency),
            prices=self.prices,
            books=self._books,
            recorder=self._recorders.get(access),
            retry=self._retry,
            flight=flight,
            lasting=self._lasting,
        )
        return exchange.run(), exchange

    async def _carry(
        self,
        access: Access,
        client: Client,
        flight: Flight,
        work: Coroutine[Any, Any, None],
        exchange: Exchange | None,
    ) -> None:
        """Wait for a call, which goes on without its agent when that leaves."""
        task = asyncio.create_task(work)
        access.working.add(task)
        task.add_done_callback(access.working.discard)
        task.add_done_callback(flight.end)
        flight.carried = True
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done() and exchange:
                exchange.leave(self._drain_s, task)
            elif not task.done():
                task.cancel()
            me = asyncio.current_task()
            if me and me.cancelling():
                raise
        except Exception as error:  # noqa: BLE001 - as in _handle; part of the answer may be out already
            _LOG.error("a call failed inside the gateway: %s", type(error).__name__)
            if not client.has_headers:
                await client.fail(500, "the gateway failed")
        if not client.has_headers:
            await client.fail(401, "the attempt has ended", "invalid_api_key")
