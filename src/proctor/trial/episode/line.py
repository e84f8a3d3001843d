"""A line of JSON messages to a program that runs inside a sandbox: one question, one answer.

Nothing that comes back is trusted: it is bounded in size, and may be anything or nothing.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from proctor.agents.base import BudgetExhausted
from proctor.agents.episodes.agent import INSIDE
from proctor.errors import ProctorError, SandboxError
from proctor.sandbox.base import ExecResult, Sandbox, end_processes, listen

_START_S = 60.0
_END_S = 5.0
_START = "import sys; sys.path[0] = {root!r}; from episode.{program} import main; main({arguments})"


class Gone(ProctorError):  # noqa: N818 - what happened, which the attempt judges
    """The program ended, or said what is no answer."""


class Line:
    """The connection to one program."""

    def __init__(self, sandbox: Sandbox, *, max_bytes: int, total_bytes: int) -> None:
        """`max_bytes` of one answer, `total_bytes` of all."""
        self.sandbox = sandbox
        self._max_bytes = max_bytes
        self._left_bytes = total_bytes
        self._running: asyncio.Task[ExecResult] | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(
        self, program: str, *arguments: str, env: Mapping[str, str], log: Callable[[bytes], None]
    ) -> None:
        """Start the program and wait until it has called back; SandboxError when it cannot."""
        listener = await listen(self.sandbox)
        try:
            listener.setblocking(False)
            given = ", ".join(map(repr, (listener.getsockname()[1], *arguments)))
            script = _START.format(root=INSIDE, program=program, arguments=given)
            self._running = asyncio.create_task(
                self.sandbox.exec(
                    ["python3", "-u", "-s", "-B", "-c", script],
                    env=env,
                    cwd="/",
                    on_output=lambda _, data: log(data),
                    keep_bytes=4096,
                )
            )
            connection = await self._accept(listener)
            self._reader, self._writer = await asyncio.open_connection(sock=connection, limit=self._max_bytes)
        finally:
            listener.close()

    async def _accept(self, listener: socket.socket) -> socket.socket:
        """The program's call. Only one is taken, and nothing of the agent or the task runs before it."""
        assert self._running is not None
        accepting = asyncio.ensure_future(asyncio.get_running_loop().sock_accept(listener))
        waiting = {accepting, self._running}
        try:
            await asyncio.wait(waiting, timeout=_START_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not accepting.done():
                accepting.cancel()
                # The loop knows a listener by its number: closed before it is forgotten, the next one with
                # that number would never be heard.
                await asyncio.gather(accepting, return_exceptions=True)
        if not accepting.cancelled():
            return accepting.result()[0]
        if not self._running.done():
            raise SandboxError(f"Python did not start inside within {_START_S:g} s")
        ended = self._running.result()
        said = ended.stderr.decode("utf-8", "replace").strip()[-300:]
        raise SandboxError(
            f"the sandbox needs python3, which could not be started: exit code {ended.exit_code} {said}"
        )

    async def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a question; Gone when there is none, BudgetExhausted when all were too long."""
        assert self._reader is not None
        assert self._writer is not None
        try:
            self._writer.write(json.dumps(question).encode() + b"\n")
            await self._writer.drain()
            line = await self._reader.readline()
        except (OSError, ValueError) as error:  # ValueError: longer than the limit
            if isinstance(error, OSError):
                raise Gone(await self.how_it_ended()) from error
            raise Gone(f"an answer of more than {self._max_bytes:,} bytes") from error
        if not line.endswith(b"\n"):
            raise Gone(await self.how_it_ended())
        self._left_bytes -= len(line)
        if self._left_bytes < 0:
            raise BudgetExhausted("the answers of the episode together are larger than the output limit")
        return _decoded(line)

    async def how_it_ended(self) -> str:
        """What is known of a program that gives no answer any more."""
        assert self._running is not None
        with suppress(TimeoutError, SandboxError):
            async with asyncio.timeout(2.0):
                ended = await asyncio.shield(self._running)
            return f"its process ended with exit code {ended.exit_code}"
        return "its process closed the connection"

    async def end(self) -> None:
        """End the program and everything that it started."""
        with suppress(SandboxError):
            await end_processes(self.sandbox)

    async def close(self) -> None:
        """Let go of a program that has ended."""
        if self._writer:
            self._writer.close()
        if self._running:
            await asyncio.wait({self._running}, timeout=_END_S)
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)


def _decoded(line: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(line, parse_constant=str)
    except (ValueError, RecursionError) as error:
        raise Gone(f"an answer that is not JSON: {error}") from error
    if not isinstance(answer, dict):
        raise Gone("an answer that is not a mapping")
    try:
        json.dumps(answer, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:  # half of a surrogate pair, which no file can hold
        raise Gone(f"an answer that is not text: {error}") from error
    return answer
