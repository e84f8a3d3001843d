"""Keeps the engine's process alive: starts it, wakes it, starts it again when it dies, ends it in time."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress

_log = logging.getLogger("proctor.server")

STOP_S = 3.0
"""How long the engine may take to save what runs; then it is killed, and its leases end by themselves."""
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.2, 10.0
LOOK, HOLD_BACK, GO_ON = b"\n", b"+", b"-"
"""What an engine is told on its input; the end of it tells it to stop."""


class Supervisor:
    """One engine process, for as long as the server lives."""

    def __init__(self, total: int, environ: Mapping[str, str], person: str = "") -> None:
        """`environ`: the variables of the engine, its settings among them. `person`: as of `Engine`."""
        self.total = total
        self.person = person
        self.environ = environ
        self.restarts = 0
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._ending = False

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def start(self) -> None:
        """Start the engine, and keep it running."""
        self._task = asyncio.create_task(self._keep())

    def wake(self) -> None:
        """Tell the engine to look at the queue now."""
        self._tell(LOOK)

    def hold_back(self) -> None:
        """Tell the engine that people are submitting runs."""
        self._tell(HOLD_BACK)

    def go_on(self) -> None:
        """Tell it that nobody does any more."""
        self._tell(GO_ON)

    def _tell(self, what: bytes) -> None:
        if self._process and self._process.stdin and self.pid:
            with suppress(OSError, RuntimeError):
                self._process.stdin.write(what)

    async def stop(self) -> None:
        """End the engine: it saves what runs, and is killed when that takes too long."""
        self._ending = True
        if self._process and self.pid:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(self._process.wait(), STOP_S)
            except TimeoutError:
                _log.warning("the engine did not end in %g s and is killed; its runs go on later", STOP_S)
                with suppress(ProcessLookupError):
                    self._process.kill()
                await self._process.wait()
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _keep(self) -> None:
        pause_s = _FIRST_PAUSE_S
        loop = asyncio.get_running_loop()
        while not self._ending:
            began = loop.time()
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "proctor.server.engine",
                str(self.total),
                *([self.person] if self.person else []),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                env=self.environ,
            )
            code = await self._process.wait()
            if self._ending:
                return
            self.restarts += 1
            _log.warning("the engine ended with %s and is started again", code)
            pause_s = _FIRST_PAUSE_S if loop.time() - began > 60 else min(pause_s * 2, _LAST_PAUSE_S)
            await asyncio.sleep(pause_s)
