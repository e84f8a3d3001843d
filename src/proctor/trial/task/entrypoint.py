"""The ENTRYPOINT of a task's image, started before the agent and left running beside it, as Harbor does.

It gets a command that only waits, and has done its preparations once it starts that command.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Literal

from proctor.errors import SandboxError
from proctor.sandbox.base import ExecResult, Root, Sandbox

LOG = "entrypoint.log"
_REACHED = b"proctor: the entrypoint has started its command; left in the background: "
_WAIT = (
    'read -r left 2>/dev/null < "/proc/$$/task/$$/children"; '
    f'echo "{_REACHED.decode()}${{left:-nothing}}"; exec sleep infinity'
)
_COMMAND = ("sh", "-c", _WAIT)
_REACH_S = 5.0
"""How long an entrypoint may prepare; one that never starts its command is a service itself."""
_SETTLE_S = 1.0
"""What programs in the background get until they are up, where no health check can tell."""


class Entrypoint:
    """The entrypoint of one attempt's sandbox."""

    def __init__(self, log: Callable[[str, bytes], None]) -> None:
        self._log = log
        self._running: asyncio.Task[ExecResult] | None = None
        self._reached = asyncio.Event()
        self._said = b""

    async def start(self, sandbox: Sandbox, root: Root, *, checked: bool) -> list[str]:
        """Start it and wait until it is ready; notes when it has ended. `checked`: a health check follows."""
        if not starts_something(root.entrypoint):
            return []
        self._running = asyncio.create_task(
            sandbox.exec([*root.entrypoint, *_COMMAND], on_output=self._heard, keep_bytes=0)
        )
        reached = asyncio.create_task(self._reached.wait())
        try:
            await asyncio.wait(
                {self._running, reached}, timeout=_REACH_S, return_when=asyncio.FIRST_COMPLETED
            )
            if self._leaves_programs() and not checked:
                await asyncio.wait({self._running}, timeout=_SETTLE_S)
        finally:
            reached.cancel()
        if not self._running.done():
            return []
        code = (await self._running).exit_code
        return [f"the image's ENTRYPOINT ended with exit code {code} before the agent began; see {LOG}"]

    async def stop(self) -> None:
        """Wait for it no longer; it ends with its sandbox."""
        running, self._running = self._running, None
        if running:
            running.cancel()
            with suppress(asyncio.CancelledError, SandboxError):
                await running

    def _heard(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        del stream
        self._log(LOG, data)
        if not self._reached.is_set():
            self._said = (self._said + data)[-4096:]
            at = self._said.find(_REACHED)
            if at >= 0 and b"\n" in self._said[at:]:
                self._reached.set()

    def _leaves_programs(self) -> bool:
        return self._reached.is_set() and _REACHED + b"nothing" not in self._said


def starts_something(entrypoint: Sequence[str]) -> bool:
    """Whether it is more than a shell that waits for a command."""
    if not entrypoint:
        return False
    shell = posixpath.basename(entrypoint[0]) in {"sh", "bash", "dash", "ash", "zsh"}
    return not (shell and all(word.startswith("-") for word in entrypoint[1:]))
