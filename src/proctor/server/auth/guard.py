"""What every request passes before any route: host names, other origins, keys in addresses, sizes, headers.

Pure ASGI, outermost: what is refused here is not looked at any further.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders

from proctor.server.problem import Problem, response

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
REQUEST_HEADER = "x-proctor-request"
BODY_BYTES = 4 << 20
UPLOAD_BYTES = 101 << 20
"""An archive of 100 MB, and the form around it."""
_KEY = re.compile(
    r"(?:^|&)(?:[\w.-]*(?:api_?key|_key|token|secret|password|authorization))=[^&]", re.IGNORECASE
)
_KEY_VALUE = re.compile(r"=(?:pt_|sk-|sk_|AIza|ghp_|github_pat_)", re.IGNORECASE)
HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "content-security-policy": (
        "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    ),
}
"""Of every answer; a route may have stricter ones."""
_TRANSPORT = "max-age=31536000"


@dataclass(frozen=True, slots=True)
class Guard:
    """The outermost application."""

    app: App
    hosts: Collection[str]
    """Names under which the server answers, besides loopback's."""
    tokens: bool
    """Whether callers prove who they are; without it only loopback is trusted, and pages of it."""
    secure: bool = False
    """Whether the connection is TLS."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or hand on with limits and headers."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            self._check(scope, Headers(scope=scope))
        except Problem as problem:
            await response(problem)(scope, receive, self._with_headers(send))
            return
        await self.app(scope, _limited(scope, receive), self._with_headers(send))

    def _check(self, scope: Scope, headers: Headers) -> None:
        query = scope.get("query_string", b"").decode("latin-1")
        if _KEY.search(query) or _KEY_VALUE.search(query):
            scope["query_string"] = b""
            raise Problem(
                "key_in_address",
                "The address holds a key or token, which logs and histories keep. Send it as a header, or "
                "store it with PUT /api/secrets/NAME; and replace the key that was sent",
            )
        host = _name(headers.get("host", ""))
        if host not in LOOPBACK and host not in self.hosts:
            raise Problem("host_refused", "The server does not answer under this host name; see --allow-host")
        if scope["method"] not in SAFE:
            self._check_origin(scope, headers)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > _most(scope):
            raise Problem("too_large", f"A request of this kind has at most {_most(scope) >> 20} MiB")

    def _check_origin(self, scope: Scope, headers: Headers) -> None:
        """A page of another site may neither use a session nor the trust in loopback."""
        by_token = self.tokens and headers.get("authorization")
        origin = headers.get("origin")
        if origin and not self._is_ours(scope, headers, origin):
            raise Problem("origin_refused", "The request comes from a page of another origin")
        if headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
            raise Problem("origin_refused", "The request comes from a page of another origin")
        if by_token or headers.get(REQUEST_HEADER):
            return
        if not origin and not self.tokens:
            return  # no page: browsers name the origin of every such request
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "application/json" and origin:
            return
        raise Problem("origin_refused", "Send the header 'X-Proctor-Request: 1', which other pages cannot")

    def _is_ours(self, scope: Scope, headers: Headers, origin: str) -> bool:
        parts = urlsplit(origin)
        return parts.scheme in {scope.get("scheme", "http"), "https"} and parts.netloc == headers.get("host")

    def _with_headers(self, send: Send) -> Send:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if self.secure:
                    headers.setdefault("strict-transport-security", _TRANSPORT)
            await send(message)

        return sending


def _most(scope: Scope) -> int:
    return UPLOAD_BYTES if scope["path"] == "/api/tasks" else BODY_BYTES


def _limited(scope: Scope, receive: Receive) -> Receive:
    """Count what is really sent: a body may say nothing of its length."""
    most, seen = _most(scope), 0

    async def receiving() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > most:
            raise Problem("too_large", f"A request of this kind has at most {most >> 20} MiB")
        return message

    return receiving


def _name(host: str) -> str:
    """The name in a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0].lower() if host.count(":") == 1 else host.lower()
