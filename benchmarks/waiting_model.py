"""A model's service for benchmarks of many agents: answers after a fixed time, and costs next to nothing.

Not the scripted provider of the package, which takes a millisecond of CPU per call: a real service is on
another machine, and this one shares two cores with what is measured.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import re
from multiprocessing.connection import Connection
from typing import Any, Self

import psutil

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_SAID = re.compile(rb'"role": ?"assistant"')
_MODELS = {"object": "list", "data": [{"id": "fake", "object": "model"}]}


def _encoded(document: Any) -> bytes:
    body = json.dumps(document).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _turn(number: int, tool: str, **arguments: str) -> bytes:
    call = {"name": tool, "arguments": json.dumps(arguments)}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"call_{number}", "type": "function", "function": call}],
    }
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    usage = {"prompt_tokens": 1000, "completion_tokens": 10, "total_tokens": 1010}
    return _encoded(
        {"id": "x", "object": "chat.completion", "model": "fake", "choices": [choice], "usage": usage}
    )


def _script(turns: int) -> list[bytes]:
    """So many answers, of which the last two say that it is done."""
    lines = ["echo hello > /app/hello.txt", *["true"] * (turns - 3)]
    commands = [_turn(at, "shell", command=line) for at, line in enumerate(lines)]
    return [*commands, *(_turn(at, "finish") for at in (turns - 2, turns - 1))]


class Service(asyncio.Protocol):
    """One connection. Which turn it is stands in the conversation."""

    requests = 0

    def __init__(self, turns: list[bytes], latency_s: float) -> None:
        self._turns, self._latency_s = turns, latency_s
        self._held = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._held += data
        end = self._held.find(b"\r\n\r\n") + 4
        if end < 4:
            return
        length = _LENGTH.search(self._held, 0, end)
        size = int(length[1]) if length else 0
        if len(self._held) < end + size:
            return
        body, self._held = self._held[end : end + size], self._held[end + size :]
        if not body:
            self._send(_encoded(_MODELS))
            return
        Service.requests += 1
        answer = self._turns[min(len(_SAID.findall(body)), len(self._turns) - 1)]
        asyncio.get_running_loop().call_later(self._latency_s, self._send, answer)

    def _send(self, answer: bytes) -> None:
        if self._transport and not self._transport.is_closing():
            self._transport.write(answer)


def _serve(pipe: Connection, latency_s: float, turns: int) -> None:
    async def go() -> None:
        loop, script = asyncio.get_running_loop(), _script(turns)
        made = await loop.create_server(lambda: Service(script, latency_s), "127.0.0.1", 0, backlog=4096)
        pipe.send(f"http://127.0.0.1:{made.sockets[0].getsockname()[1]}/v1")
        while await asyncio.to_thread(pipe.recv) == "count":
            pipe.send(Service.requests)

    asyncio.run(go())


class WaitingModel:
    """The service, in a process of its own; three turns at least."""

    def __init__(self, latency_s: float, turns: int) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(
            target=_serve, args=(theirs, latency_s, turns), daemon=True
        )
        self._process.start()
        self.url = str(self._pipe.recv())

    @property
    def requests(self) -> int:
        """How many came so far."""
        self._pipe.send("count")
        return int(self._pipe.recv())

    @property
    def cpu_s(self) -> float:
        """What it has used so far."""
        used = psutil.Process(self._process.pid).cpu_times()
        return float(used.user + used.system)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.send("stop")
        self._process.join()
