"""Errors as `application/problem+json`. Every code is in one table, with its status and what it means."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from proctor.errors import (
    FenceError,
    NotFoundError,
    ParamError,
    ProctorError,
    RunHeldError,
    RunStateError,
    SpecError,
    StoreError,
    TaskError,
    UsageError,
)

_log = logging.getLogger("proctor.server")

MEDIA_TYPE = "application/problem+json"

CODES: Mapping[str, tuple[int, str]] = {
    "bad_request": (400, "The request is wrong."),
    "unknown_parameter": (400, "The address has a parameter that this route does not know."),
    "key_in_address": (400, "A key or token is in the address, where logs would keep it."),
    "spec_invalid": (400, "The spec is wrong."),
    "task_invalid": (400, "The task is wrong."),
    "not_signed_in": (401, "A token is needed."),
    "forbidden": (403, "The token does not allow this."),
    "spec_forbidden": (403, "The spec asks for something that only the command line of the server may have."),
    "host_refused": (403, "The server does not answer under this host name."),
    "origin_refused": (403, "A page of another origin may not do this."),
    "read_only": (403, "This server only shows results."),
    "not_found": (404, "There is no such thing, or not in your project."),
    "method_not_allowed": (405, "The route does not have this method."),
    "conflict": (409, "The present state does not allow this."),
    "run_held": (409, "Another process executes the run."),
    "too_large": (413, "The request is too large."),
    "unsupported_media_type": (415, "The route does not take this content type."),
    "range_refused": (416, "The range is outside what there is."),
    "invalid": (422, "A value does not fit."),
    "idempotency_mismatch": (422, "The idempotency key was used for another request."),
    "quota": (429, "The project's quota is used up."),
    "rate_limited": (429, "Too many requests with this token."),
    "internal": (500, "The server failed; its log says why."),
    "upstream": (502, "Something that the server depends on failed."),
    "store_unavailable": (503, "The store cannot be read or written now."),
    "stopping": (503, "The server is stopping."),
}
"""Code → HTTP status and title. Codes never change their meaning."""

_OF_ERRORS: tuple[tuple[type[ProctorError], str], ...] = (
    (SpecError, "spec_invalid"),
    (ParamError, "spec_invalid"),
    (TaskError, "task_invalid"),
    (RunHeldError, "run_held"),
    (RunStateError, "conflict"),
    (NotFoundError, "not_found"),
    (UsageError, "bad_request"),
    (FenceError, "conflict"),
    (StoreError, "store_unavailable"),
)
_OF_STATUS = {400: "bad_request", 401: "not_signed_in", 403: "forbidden", 404: "not_found"} | {
    405: "method_not_allowed",
    413: "too_large",
    415: "unsupported_media_type",
    416: "range_refused",
}


class Problem(Exception):  # noqa: N818 - the name of the format
    """A refusal with a code of the table; `detail` is a sentence for a person."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        errors: Sequence[Mapping[str, str]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.errors = errors
        self.headers = headers or {}

    @property
    def status(self) -> int:
        """The HTTP status of its code."""
        return CODES[self.code][0]

    def to_mapping(self) -> dict[str, Any]:
        """As the body of an answer."""
        status, title = CODES[self.code]
        found: dict[str, Any] = {
            "type": f"/problems/{self.code}",
            "title": title,
            "status": status,
            "code": self.code,
            "detail": self.detail,
        }
        return found | ({"errors": list(self.errors)} if self.errors else {})


def response(problem: Problem) -> Response:
    """The answer that a problem is."""
    return Response(
        msgspec.json.encode(problem.to_mapping()),
        problem.status,
        media_type=MEDIA_TYPE,
        headers={"Cache-Control": "no-store", **problem.headers},
    )


def of_error(error: ProctorError) -> Problem:
    """What an error of Proctor means to a caller. What it says of this machine's store stays in the log."""
    said = str(error)
    code = next((code for kind, code in _OF_ERRORS if isinstance(error, kind)), "")
    if code == "store_unavailable":
        _log.error("%s", error)
        return Problem(code, "The store cannot be read or written now; the server's log says why")
    if code:
        return Problem(code, said)
    _log.error("%s: %s", type(error).__name__, error)
    return Problem("upstream" if error.http_status == 502 else "internal", said)


def of_validation(error: RequestValidationError) -> Problem:
    """Which values of a request do not fit, and why. The values themselves are not repeated."""
    errors = [
        {"where": ".".join(str(part) for part in each["loc"]), "message": str(each["msg"])}
        for each in error.errors()
    ]
    first = errors[0] if errors else {"where": "request", "message": "not understood"}
    return Problem("invalid", f"{first['where']}: {first['message']}", errors=errors)


def install(app: FastAPI) -> None:
    """Answer every error of an application as a problem."""

    def shown(request: Request, problem: Problem) -> Response:
        """As the caller may see it, if it is known already who calls."""
        found, caller = response(problem), getattr(request.state, "caller", None)
        state = getattr(request.app.state, "proctor", None)  # none before the server has begun
        return found if state is None or (caller and caller.on_machine) else state.places.hidden_in(found)

    async def on_problem(request: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)
        return shown(request, error)

    async def on_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, ProctorError)
        return shown(request, of_error(error))

    async def on_validation(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return response(of_validation(error))

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if isinstance(error.__cause__, Problem):  # FastAPI wraps what is raised while it reads a body
            return shown(request, error.__cause__)
        code = _OF_STATUS.get(error.status_code, "bad_request" if error.status_code < 500 else "internal")
        return response(Problem(code, f"{CODES[code][1]}", headers=dict(error.headers or {})))

    async def on_crash(_: Request, error: Exception) -> Response:
        return response(Problem("internal", f"{type(error).__name__}; the server's log says more"))

    app.add_exception_handler(Problem, on_problem)
    app.add_exception_handler(ProctorError, on_error)
    app.add_exception_handler(RequestValidationError, on_validation)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(Exception, on_crash)
