"""A process of Harbor's Python, and the line to it. When either end dies, so does the other."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from proctor.errors import HostError
from proctor.sandbox.harbor.line import Answer, Line, LineLost, Refused
from proctor.sandbox.harbor.place import HarborPlace, command

_LEAVES_S = 5.0
"""How long it may take to write down what it knows, and to end what it started."""
_KEPT = 2000


class Bridge:
    """The process while the context is open. `ask` raises Refused, or HostError when the process is gone."""

    def __init__(
        self,
        place: HarborPlace,
        *,
        env: Mapping[str, str],
        cwd: Path,
        answer: Answer,
        on_output: Callable[[bytes], None] = lambda _: None,
        leaves_s: float = _LEAVES_S,
    ) -> None:
        self._place, self._env, self._cwd = place, dict(env), cwd
        self._answer, self._on_output, self._leaves_s = answer, on_output, leaves_s
        self._said = b""

    async def __aenter__(self) -> Self:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *command(self._place.folder, "serve", str(theirs.fileno())),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                    env=self._env,
                    cwd=self._cwd,
                )
            except OSError as error:
                ours.close()
                raise HostError(f"Harbor's Python cannot be started: {error.strerror}") from error
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        self._line = Line(reader, writer, self._answer)
        self._reading = asyncio.create_task(self._line.run())
        self._listening = asyncio.create_task(self._listen())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let it write down what it knows, then end it with all that it started."""
        try:
            with contextlib.suppress(TimeoutError, LineLost, Refused):
                async with asyncio.timeout(self._leaves_s):
                    try:
                        await self._line.ask("leave")
                    finally:
                        self._line.close()
                    await self._process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
            self._reading.cancel()
            await asyncio.gather(self._reading, self._listening, return_exceptions=True)

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    async def ask(self, what: str, **fields: Any) -> Any:
        """What it answers."""
        try:
            return await self._line.ask(what, **fields)
        except LineLost:
            raise HostError(await self._why_lost()) from None

    async def _why_lost(self) -> str:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._leaves_s):
                await self._process.wait()
                await self._listening
        code = self._process.returncode
        how = "closed its line" if code is None else f"ended with exit code {code}"
        if code is not None and code < 0:
            how = f"was killed by signal {-code}"
        said = self._said.decode(errors="replace").strip()
        return f"the process that runs Harbor {how}{f': {said}' if said else ''}"

    async def _listen(self) -> None:
        assert self._process.stdout
        while data := await self._process.stdout.read(1 << 16):
            self._said = (self._said + data)[-_KEPT:]
            self._on_output(data)
