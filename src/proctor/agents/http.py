"""Exchange JSON over HTTP/1.1 with asyncio alone: hundreds of agents wait here, each for a few kilobytes."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import urlsplit

_MAX_BODY = 64 << 20
_MAX_LINE = 64 << 10


class HttpError(Exception):
    """The exchange itself failed: no connection, no answer, or one that is not HTTP."""


class NoAnswerInTime(HttpError):  # noqa: N818 - says what happened
    """Whoever is there took longer than the caller waits."""


@dataclass(frozen=True, slots=True)
class Response:
    """A status, headers in lower case, and the body."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> Any:
        """The body as JSON; HttpError when it is not."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise HttpError(f"the answer is not JSON: {self.body[:200]!r}") from error


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Endpoint:
    """An address to post to. Connections are kept for the next request: handshakes cost more than turns."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            self._secure = parts.scheme == "https"
            self._port = parts.port or (443 if self._secure else 80)
        except ValueError as error:
            raise HttpError(f"{url!r} is not an http(s) address: {error}") from error
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise HttpError(f"{url!r} is not an http(s) address")
        self._host = parts.hostname
        self._name = parts.netloc.rpartition("@")[2]
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._idle: list[Streams] = []

    async def post_json(self, payload: Any, headers: Mapping[str, str], *, timeout_s: float) -> Response:
        """One request; HttpError when there is no answer."""
        body = json.dumps(payload).encode()
        return await self._ask(lambda: _request("POST", self._name, self._path, body, headers), timeout_s)

    async def get(self, headers: Mapping[str, str], *, timeout_s: float) -> Response:
        """The same without a body."""
        return await self._ask(lambda: _request("GET", self._name, self._path, b"", headers), timeout_s)

    async def _ask(self, make: Callable[[], bytes], timeout_s: float) -> Response:
        where = f"{self._host}:{self._port}"
        try:
            request = make()
            async with asyncio.timeout(timeout_s):
                return await self._exchange(request)
        except TimeoutError as error:
            raise NoAnswerInTime(f"no answer from {where} within {timeout_s:g} s") from error
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            raise HttpError(f"{where}: {error or type(error).__name__}") from error

    async def close(self) -> None:
        """Let go of the connections."""
        while self._idle:
            self._idle.pop()[1].close()

    async def _exchange(self, request: bytes) -> Response:
        while self._idle:
            streams = self._idle.pop()
            if streams[0].at_eof() or streams[1].is_closing():
                streams[1].close()
                continue
            try:
                return await self._over(streams, request)
            except (ConnectionError, asyncio.IncompleteReadError) as error:
                if getattr(error, "partial", b""):
                    raise  # it had begun to answer
                # The other side had grown tired of waiting; that is no fault, and a new connection may do.
        secure = _trust() if self._secure else None
        streams = await asyncio.open_connection(self._host, self._port, ssl=secure, limit=_MAX_LINE)
        return await self._over(streams, request)

    async def _over(self, streams: Streams, request: bytes) -> Response:
        reader, writer = streams
        keep = False
        try:
            writer.write(request)
            await writer.drain()
            response = await _read(reader)
            framed = "content-length" in response.headers or "transfer-encoding" in response.headers
            keep = framed and response.headers.get("connection", "").lower() != "close"
            return response
        finally:
            if keep:
                self._idle.append(streams)
            else:
                writer.close()


@cache
def _trust() -> ssl.SSLContext:
    """Whom to believe; reading all certificates takes longer than a request."""
    return ssl.create_default_context()


def _request(method: str, host: str, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    sent = {"Content-Type": "application/json", "Content-Length": str(len(body))} if body else {}
    lines = {"Host": host, **sent, "Accept": "application/json", **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    if "\n" in path or any("\n" in value for value in lines.values()):
        raise ValueError("a header or path holds a line break")
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


async def _read(reader: asyncio.StreamReader) -> Response:
    status_line = (await reader.readuntil(b"\r\n")).split(None, 2)
    status = int(status_line[1])
    headers: dict[str, str] = {}
    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return Response(status, headers, await _chunks(reader))
    length = headers.get("content-length")
    if length is None:
        return Response(status, headers, await _to_end(reader))
    if int(length) > _MAX_BODY:
        raise ValueError(f"an answer of {length} bytes is too large")
    return Response(status, headers, await reader.readexactly(int(length)))


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    whole = bytearray()
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        whole += (await reader.readexactly(size + 2))[:-2]
        if len(whole) > _MAX_BODY:
            raise ValueError("the answer is too large")
    return bytes(whole)


async def _to_end(reader: asyncio.StreamReader) -> bytes:
    whole = bytearray()
    while part := await reader.read(_MAX_LINE):
        whole += part
        if len(whole) > _MAX_BODY:
            raise ValueError("the answer is too large")
    return bytes(whole)
