"""POST JSON over HTTP/1.1 with asyncio alone: hundreds of agents wait here, each for a few kilobytes."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

_MAX_BODY = 64 << 20
_MAX_LINE = 64 << 10


class HttpError(Exception):
    """The exchange itself failed: no connection, no answer, or one that is not HTTP."""


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


async def post_json(url: str, payload: Any, headers: Mapping[str, str], *, timeout_s: float) -> Response:
    """One request on its own connection."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise HttpError(f"{url!r} is not an http(s) address")
    secure = ssl.create_default_context() if parts.scheme == "https" else None
    port = parts.port or (443 if secure else 80)
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=secure, limit=_MAX_LINE)
            try:
                path = parts.path + (f"?{parts.query}" if parts.query else "")
                writer.write(_request(parts.netloc.rpartition("@")[2], path or "/", payload, headers))
                await writer.drain()
                return await _read(reader)
            finally:
                writer.close()
    except TimeoutError as error:
        raise HttpError(f"no answer from {parts.hostname}:{port} within {timeout_s:g} s") from error
    except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
        raise HttpError(f"{parts.hostname}:{port}: {error or type(error).__name__}") from error


def _request(host: str, path: str, payload: Any, headers: Mapping[str, str]) -> bytes:
    body = json.dumps(payload).encode()
    lines = {
        "Host": host,
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Accept": "application/json",
        "Connection": "close",
        **headers,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    if "\n" in path or any("\n" in value for value in lines.values()):
        raise ValueError("a header or path holds a line break")
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body


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
