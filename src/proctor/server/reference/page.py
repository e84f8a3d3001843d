"""`/docs`: the API on one page, without a script and without a request to another host."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import HTMLResponse, Response

from proctor.server.problem import CODES

STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { margin: 0 auto; max-width: 60rem; padding: 1rem; }
code, pre { font: 13px/1.45 ui-monospace, monospace; }
pre { overflow: auto; padding: .75rem; border: 1px solid color-mix(in srgb, currentColor 20%, transparent); }
details { border-bottom: 1px solid color-mix(in srgb, currentColor 20%, transparent); padding: .4rem 0; }
summary { cursor: pointer; }
summary b { display: inline-block; min-width: 4.5rem; }
summary span { opacity: .75; }
table { border-collapse: collapse; }
td, th { text-align: left; vertical-align: top; padding: .2rem 1rem .2rem 0; }
"""


def install(app: FastAPI) -> None:
    """Add the page and its style."""

    async def page(request: Request) -> Response:
        return HTMLResponse(written(request.app.openapi()))

    async def style(_: Request) -> Response:
        return Response(STYLE, media_type="text/css", headers={"cache-control": "max-age=3600"})

    app.add_route("/docs", page, include_in_schema=False)
    app.add_route("/docs/style.css", style, include_in_schema=False)


def written(spec: Mapping[str, Any]) -> str:
    """The page of an OpenAPI description."""
    return "".join(
        (
            "<!doctype html><html lang=en><meta charset=utf-8><title>API of Proctor</title>",
            '<meta name=viewport content="width=device-width"><link rel=stylesheet href="/docs/style.css">',
            "<h1>API of Proctor</h1>",
            *(f"<p>{_code(part)}</p>" for part in spec["info"]["description"].strip().split("\n\n")),
            '<p>The same for programs: <a href="/openapi.json">openapi.json</a>.</p>',
            *_routes(spec),
            "<h2>Problems</h2><table><tr><th>code<th>status<th>meaning",
            *(
                f"<tr><td><code>{code}</code><td>{status}<td>{escape(title)}"
                for code, (status, title) in CODES.items()
            ),
            "</table></html>",
        )
    )


def _routes(spec: Mapping[str, Any]) -> Iterator[str]:
    by_tag: dict[str, list[tuple[str, str, Mapping[str, Any]]]] = {}
    for path, item in spec["paths"].items():
        for method, operation in item.items():
            by_tag.setdefault(operation.get("tags", ["other"])[0], []).append((method, path, operation))
    for tag, found in by_tag.items():
        yield f"<h2>{escape(tag[:1].upper() + tag[1:])}</h2>"
        for method, path, operation in found:
            yield from _route(method, path, operation)


def _route(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    summary = escape(operation.get("summary", ""))
    yield f"<details><summary><b>{method.upper()}</b> <code>{escape(path)}</code> <span>{summary}</span>"
    yield f"</summary><p>{_code(operation.get('description', ''))}</p>"
    if scope := operation.get("x-scope"):
        yield f"<p>Scope: <code>{escape(scope)}</code></p>"
    if operation.get("parameters"):
        yield "<table><tr><th>parameter<th>in<th>meaning"
        for each in operation["parameters"]:
            yield f"<tr><td><code>{escape(each['name'])}</code><td>{each['in']}"
            yield f"<td>{_code(each.get('description', ''))}"
        yield "</table>"
    for status, answer in sorted(operation["responses"].items()):
        for content in answer.get("content", {}).values():
            if status.startswith("2") and "example" in content:
                yield f"<pre>{escape(json.dumps(content['example'], indent=2, ensure_ascii=False))}</pre>"
    yield "</details>"


def _code(text: str) -> str:
    """Text with its backquoted parts as code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts))
