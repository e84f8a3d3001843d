"""A sandbox for the trial that comes next, started while others run, so that the trial does not wait for it.

It is as fresh as any other and is used once, by that trial or by none. Whatever goes wrong with it is
forgotten: the trial starts a sandbox of its own, and what is wrong is met there and recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from proctor.errors import SandboxError
from proctor.model.plan import PlannedTrial
from proctor.sandbox.base import Sandbox, SandboxRequest

Started = tuple[SandboxRequest, Sandbox]
_KEPT = 2


class NextSandbox:
    """Sandboxes for the trials announced last: one, and the one before while it is not taken yet."""

    def __init__(self, start: Callable[[PlannedTrial], Awaitable[Started | None]]) -> None:
        self._start = start
        self._starting: dict[str, asyncio.Task[Started | None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def start_for(self, trial: PlannedTrial) -> None:
        """This trial comes next: start its sandbox."""
        if trial.key not in self._starting:
            self._starting[trial.key] = asyncio.create_task(self._begin(trial))
            if len(self._starting) > _KEPT:
                self._discard(self._starting.pop(next(iter(self._starting))))

    async def _begin(self, trial: PlannedTrial) -> Started | None:
        try:
            return await self._start(trial)
        except Exception:  # noqa: BLE001 - the trial itself meets the same, and there it is recorded
            return None

    async def take(self, key: str, request: SandboxRequest) -> Sandbox | None:
        """The sandbox, if there is one for this trial and just this request; it is the caller's then."""
        starting = self._starting.pop(key, None)
        if starting is None:
            return None
        try:
            found = await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._discard(starting)
            raise
        if found and replace(found[0], name=request.name) == request and getattr(found[1], "alive", True):
            return found[1]
        self._discard(starting)
        return None

    def _discard(self, starting: asyncio.Task[Started | None]) -> None:
        starting.cancel()  # its image may take longer to build than all trials do
        leaving = asyncio.create_task(_stop(starting))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)

    async def close(self) -> None:
        """No more trials will come: stop what was not used."""
        while self._starting:
            self._discard(self._starting.popitem()[1])
        if self._leaving:
            await asyncio.gather(*self._leaving)


async def _stop(starting: asyncio.Task[Started | None]) -> None:
    await asyncio.wait({starting})
    if not starting.cancelled() and (found := starting.result()):
        with suppress(SandboxError):
            await found[1].stop()
