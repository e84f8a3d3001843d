"""A model's service that runs anywhere: scripted replies, with latency, errors and rate limits.

For tests, load runs and trying things out. It speaks the chat-completions dialect on a loopback port.
Its few lines of HTTP are its own: in a load run it must cost less than the agents that it serves.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

Script = Callable[[Mapping[str, Any], int], str | None]
"""(request, how many assistant turns it already holds) → the next shell command; None when done."""


def commands(*lines: str) -> Script:
    """A model that sends these commands in order, then says it is done."""
    return lambda _, turn: lines[turn] if turn < len(lines) else None


@dataclass
class FakeProvider:
    """Answers on `base_url` while the context is open."""

    script: Script
    latency_s: float = 0.0
    errors: Sequence[int] = ()
    """Status codes to send first, one per request, before behaving."""
    rate_per_s: float | None = None
    """Requests beyond this in any second get 429 with a Retry-After."""
    key: str | None = None
    """When set, requests without it get 401."""
    models: Sequence[str] = ("*",)
    """Names that it lists and takes; `*` takes any, as services with wildcards say it."""
    lists_models: bool = True
    """Whether it answers GET /models; some services do not."""
    requests: list[Mapping[str, Any]] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    connections: int = 0
    """How many were made."""
    keep_requests: bool = True
    keep_alive: bool = True
    """Whether a connection serves more than one request."""
    clock: Callable[[], float] = time.monotonic
    tls: ssl.SSLContext | None = None
    """Speaks TLS when set."""

    async def __aenter__(self) -> Self:
        self._faults = deque(self.errors)
        self._recent: deque[float] = deque()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=2048, ssl=self.tls)
        port = self._server.sockets[0].getsockname()[1]
        self.base_url = f"{'https' if self.tls else 'http'}://127.0.0.1:{port}/v1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.hang_up()
        await self._server.wait_closed()

    def hang_up(self) -> None:
        """Close every connection, as services do with idle ones."""
        for writer in list(self._writers):
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.connections += 1
        try:
            while await self._one(reader, writer):
                pass
        except (OSError, EOFError, ValueError, KeyError):
            return
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request of a connection; whether there may be another."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head.split("\r\n")[1:] if line)
        }
        if head.startswith("GET "):
            status, extra, answer = self._listing(headers)
        else:
            body = json.loads(await reader.readexactly(int(headers["content-length"])))
            status, extra, answer = self._answer(headers, body)
        if status == 200 and self.latency_s:
            await asyncio.sleep(self.latency_s)
        payload = json.dumps(answer).encode()
        self.statuses.append(status)
        ending = "" if self.keep_alive else "Connection: close\r\n"
        head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(payload)}\r\n{extra}{ending}\r\n"
        writer.write(head.encode() + payload)
        await writer.drain()
        return self.keep_alive

    def _listing(self, headers: Mapping[str, str]) -> tuple[int, str, dict[str, Any]]:
        if self.key is not None and headers.get("authorization") != f"Bearer {self.key}":
            return 401, "", {"error": {"message": "wrong key"}}
        if not self.lists_models:
            return 404, "", {"error": {"message": "no such path"}}
        return 200, "", {"object": "list", "data": [{"id": name, "object": "model"} for name in self.models]}

    def _answer(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> tuple[int, str, dict[str, Any]]:
        if self.keep_requests:
            self.requests.append(body)
        if self.key is not None and headers.get("authorization") != f"Bearer {self.key}":
            return 401, "", {"error": {"message": "wrong key"}}
        if self._faults:
            return self._faults.popleft(), "", {"error": {"message": "a fault on purpose"}}
        if self._too_fast():
            return 429, "Retry-After: 0.05\r\n", {"error": {"message": "slow down"}}
        if "*" not in self.models and body.get("model") not in self.models:
            return 404, "", {"error": {"message": f"the model {body.get('model')!r} does not exist"}}
        turn = sum(message.get("role") == "assistant" for message in body["messages"])
        command = self.script(body, turn)
        name, arguments = ("finish", {}) if command is None else ("shell", {"command": command})
        call = {
            "id": f"call-{turn}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        prompt = sum(len(str(message.get("content") or "")) for message in body["messages"]) // 4
        message = {"role": "assistant", "content": "", "tool_calls": [call]}
        return (
            200,
            "",
            {
                "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
                "usage": {"prompt_tokens": prompt, "completion_tokens": len(command or "") // 4 + 1},
            },
        )

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
