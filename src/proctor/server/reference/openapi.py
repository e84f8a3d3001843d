"""OpenAPI of the application: what FastAPI knows of it, with problems, scopes and examples of answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from proctor.server.auth.caller import SCOPES
from proctor.server.problem import CODES, MEDIA_TYPE
from proctor.server.reference.example import plain, schema_of, shapes
from proctor.server.reference.examples import EXAMPLES, SHAPES

_METHODS = ("get", "put", "post", "patch", "delete")
_KNOWN = {id(example): name for name, example in SHAPES.items()}
_PROBLEM = {"$ref": "#/components/schemas/Problem"}
_USUAL = {400: "bad_request", 401: "not_signed_in", 403: "forbidden", 429: "rate_limited"}
_DESCRIPTION = """\
Run benchmarks of code and of AI agents, and read their results.

Times are UNIX seconds, names are in snake_case, lists are `{items, next}` with an opaque `cursor`. What is
wrong is answered as `application/problem+json` with a stable `code`. Reading routes have weak ETags. The
routes of the older API have ISO 8601 times and bare lists with `Link` headers.
"""


def describe(app: FastAPI) -> dict[str, Any]:
    """The whole description; made once."""
    if app.openapi_schema:
        return app.openapi_schema
    found = get_openapi(
        title=app.title,
        version="1",
        summary=app.summary,
        description=_DESCRIPTION,
        routes=app.routes,
    )
    components = found.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problem"] = _problem()
    schemas |= shapes(SHAPES)
    components["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": _scopes()},
        "session": {"type": "apiKey", "in": "cookie", "name": "proctor_session"},
    }
    for path, item in found["paths"].items():
        for method in _METHODS:
            if method in item:
                _complete(f"{method.upper()} {path}", item[method])
    app.openapi_schema = found
    return found


def _complete(name: str, operation: dict[str, Any]) -> None:
    """Add to one operation what FastAPI does not know."""
    scope = operation.get("x-scope", "")
    responses = operation["responses"]
    responses.pop("422", None)
    good = next(code for code in sorted(responses) if code[0] in "23")
    if good != "204" and name in EXAMPLES:
        example = EXAMPLES[name]
        content = {"schema": schema_of(example, _KNOWN), "example": plain(example)}
        responses[good]["content"] = {"application/json": content}
    if scope:
        operation["security"] = [{"token": []}, {"session": []}]
    for code in _refusals(name, scope=scope, body=bool(operation.get("requestBody"))):
        responses[str(CODES[code][0])] = _refusal(code)
    if name.startswith("GET") and "application/json" in responses[good].get("content", {}):
        responses["304"] = {"description": "The caller has it already (`If-None-Match`)."}


def _refusals(name: str, *, scope: str, body: bool) -> Iterator[str]:
    """What else a route may answer, by code."""
    yield from (code for status, code in _USUAL.items() if scope or status == 400)
    if "{" in name:
        yield "not_found"
    if "/oidc/" in name:
        yield from ("not_found", "not_signed_in", "forbidden", "upstream")
    if body:
        yield from ("invalid", "too_large")
    if name.startswith(("POST", "DELETE", "PATCH")) and "{" in name:
        yield "conflict"


def _refusal(code: str) -> dict[str, Any]:
    status, title = CODES[code]
    example = {"type": f"/problems/{code}", "title": title, "status": status, "code": code, "detail": title}
    return {"description": title, "content": {MEDIA_TYPE: {"schema": _PROBLEM, "example": example}}}


def _problem() -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["type", "title", "status", "code", "detail"],
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "code": {"type": "string", "enum": sorted(CODES)},
            "detail": {"type": "string"},
            "errors": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["where", "message"],
                    "properties": {"where": {"type": "string"}, "message": {"type": "string"}},
                },
            },
        },
    }


def _scopes() -> str:
    return "`Authorization: Bearer pt_…`. Scopes: " + " ".join(
        f"`{scope}`: {meaning}" for scope, meaning in SCOPES.items()
    )
