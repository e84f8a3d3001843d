"""The web page: its files, and its frame at every address that is not the API's.

The files are built by `make setup` from ui/ and are part of the wheel. Nothing here needs a token: the page
has no data of its own, and asks the API for everything it shows.
"""

from __future__ import annotations

import gzip
import mimetypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from proctor.server.problem import Problem

STATIC = Path(__file__).parent / "static"
_NOT_PAGES = ("api/", "static/", "docs", "metrics", "openapi.json", "livez", "readyz", "health")
_FOREVER = "public, max-age=31536000, immutable"
"""Names of files hold a digest of their content: a new version has a new name."""
_ASK = "no-cache"
_COMPRESSED_FROM = 600
NOT_BUILT = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Proctor</title>
<meta name="viewport" content="width=device-width,initial-scale=1"></head><body>
<h1>The web page is not built</h1>
<p>The server works: its API is at <a href="/docs">/docs</a>, and <code>proctor ls</code> and
<code>proctor report RUN --open</code> show what has run.</p>
<p>To build the page, run <code>make ui</code> in Proctor's source tree, then reload. It needs the network
once, for its pinned packages; the last lines that <code>make ui</code> prints say what is missing.
Packages of Proctor that were installed with pip have the page already.</p>
</body></html>
"""


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    compressed: bytes
    """Empty where it would save nothing."""
    media_type: str


def install(app: FastAPI) -> None:
    """Answer every address that no route has. To be called after all routes are there."""
    app.add_route("/static/{name}", _static, methods=["GET", "HEAD"], include_in_schema=False)
    app.add_route("/{address:path}", _page, methods=["GET", "HEAD"], include_in_schema=False)


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    found = _read(STATIC, name)
    if found is None or name.startswith(".") or name == "index.html":
        raise Problem("not_found", "There is no such file")
    return _answer(request, found, _FOREVER if "-" in name else _ASK)


async def _page(request: Request) -> Response:
    address = request.path_params["address"]
    if address.startswith(_NOT_PAGES):
        raise Problem("not_found", "There is no such address")
    found = _read(STATIC, "index.html")
    if found is None:
        return Response(NOT_BUILT, 503, {"cache-control": "no-store"}, "text/html; charset=utf-8")
    return _answer(request, found, _ASK)


def _answer(request: Request, found: _File, caching: str) -> Response:
    headers = {"cache-control": caching, "vary": "accept-encoding"}
    content = found.content
    if found.compressed and "gzip" in request.headers.get("accept-encoding", ""):
        content, headers["content-encoding"] = found.compressed, "gzip"
    return Response(content, headers=headers, media_type=found.media_type)


def _read(folder: Path, name: str) -> _File | None:
    path = folder / name
    if path.parent != folder or not path.is_file():
        return None
    return _load(path, path.stat().st_mtime_ns)


@cache
def _load(path: Path, changed_ns: int) -> _File:  # noqa: ARG001 - a changed file is another one
    content = path.read_bytes()
    kind = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}.get(path.suffix)
    kind = kind or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    small = len(content) < _COMPRESSED_FROM or not (kind.startswith("text/") or "svg" in kind)
    named = f"{kind}; charset=utf-8" if kind.startswith("text/") else kind
    return _File(content, b"" if small else gzip.compress(content, 9), named)
