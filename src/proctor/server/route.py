"""What every route of the API does around its own work.

Before the body is read: who asks, whether they may, how often they did, and whether the address has
parameters that the route does not know. After: a weak ETag on what was read, and 304 for those who have it;
what was changed under an idempotency key is not changed again.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from hashlib import blake2b
from time import perf_counter
from typing import Any

import msgspec
from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.responses import Response

from proctor.errors import ProctorError
from proctor.server.auth.authenticate import authenticate
from proctor.server.auth.caller import NOBODY, Anybody, Needs
from proctor.server.idempotency import idempotency_key, once, own_key
from proctor.server.problem import Problem
from proctor.server.state import state_of

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

JSON = "application/json"


class Route(APIRoute):
    """A route with a need, known parameters and an ETag."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.openapi_extra = {**(self.openapi_extra or {}), "x-scope": need_of(self).scope}

    def get_route_handler(self) -> Handler:
        """The handler of FastAPI, with ours around it."""
        handler = super().get_route_handler()
        need = need_of(self)
        known = {each for found in _all(self.dependant) for each in _aliases(found)}
        reads = self.methods == {"GET"}
        calls = [each.call for each in _all(self.dependant)]
        keyed, itself = idempotency_key in calls, own_key in calls

        path = self.path

        async def handle(request: Request) -> Response:
            began = perf_counter()
            status = 500
            try:
                found = await respond(request)
                status = found.status_code
            except Problem as problem:
                status = problem.status
                raise
            except (ProctorError, RequestValidationError) as error:
                status = getattr(error, "http_status", 422)
                raise
            finally:
                took_s, state = perf_counter() - began, state_of(request)
                state.requests.observe(request.method, path, status, took_s)
                if state.tracing:
                    state.tracing.request(request.method, path, status, took_s, request.headers)
            return found

        async def respond(request: Request) -> Response:
            refuse_unknown(request, known)
            state = state_of(request)
            caller = NOBODY if isinstance(need, Anybody) else await authenticate(request, state)
            need.check(caller, state.mode)
            if caller.token:
                state.limits.take(caller.token, state.clock())
            request.state.caller = caller
            if keyed:
                try:
                    found = await once(request, state, caller, handler, itself=itself)
                finally:
                    await request.close()  # the files of a form that was only looked at
            else:
                found = await handler(request)
            found = found if caller.on_machine else state.places.hidden_in(found)
            return with_etag(request, found) if reads else found

        return handle


def need_of(route: APIRoute) -> Needs:
    """The scope that a route needs; a route without one is a mistake of ours."""
    for each in _all(route.dependant):
        if isinstance(each.call, Needs):
            return each.call
    raise TypeError(f"{route.path} names no scope: give it a Reader, Runner, Worker or Admin")


def refuse_unknown(request: Request, known: set[str]) -> None:
    """Refuse parameters that the route does not know: a misspelt filter would silently do nothing."""
    for name in request.query_params:
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise Problem("unknown_parameter", f"'{name}' is not a parameter here; there are: {names}")


def with_etag(request: Request, answer: Response) -> Response:
    """The answer with a weak ETag, or 304 when the caller has it already. Streams have none."""
    body = getattr(answer, "body", None)
    if answer.status_code != 200 or not isinstance(body, bytes):
        return answer
    tag = answer.headers.get("etag") or f'W/"{blake2b(body, digest_size=12).hexdigest()}"'
    answer.headers["etag"] = tag
    answer.headers.setdefault("cache-control", "private, no-cache")
    asked = request.headers.get("if-none-match", "")
    if tag in (each.strip() for each in asked.split(",")):
        kept = {name: answer.headers[name] for name in ("etag", "cache-control")}
        return Response(status_code=304, headers=kept)
    return answer


def answer(value: Any, status: int = 200, /, **headers: str) -> Response:
    """A JSON answer. Routes return it themselves: what they build needs no second check."""
    return Response(msgspec.json.encode(value), status, media_type=JSON, headers=headers)


def _all(dependant: Dependant) -> Iterator[Dependant]:
    yield dependant
    for each in dependant.dependencies:
        yield from _all(each)


def _aliases(dependant: Dependant) -> Iterator[str]:
    for each in dependant.query_params:
        yield each.alias
