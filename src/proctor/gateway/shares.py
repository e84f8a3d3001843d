"""Limits of providers that all gateways of a store share: what is seen goes there, one's share comes back.

Reports are made twice a second while there are calls, and at once when a provider refuses or a call has to
wait.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from proctor.errors import StoreError
from proctor.gateway.limiter import Limiter, Seen
from proctor.store.limits import Report, Share
from proctor.store.portions import LEASE_S
from proctor.store.spending import Spending

_LOG = logging.getLogger("proctor.gateway")
_REPORT_S = 0.5
_SOONEST_S = 0.1
"""So long lies between two reports of calls that wait for a larger share."""
_SURE_S = LEASE_S * 2 / 3
_IDLE_S = 3.0
_SAY_EVERY_S = 60.0
T = TypeVar("T")


@dataclass(kw_only=True)
class _Shared:
    """A limiter, and where its limit is kept."""

    provider: str
    model: str
    limiter: Limiter
    reported_at: float = float("-inf")
    until: float = 0.0
    """The share is one's own until then."""
    active_at: float = field(default_factory=time.monotonic)


class Shares:
    """The limiters of one gateway."""

    def __init__(self, spending: Spending | None) -> None:
        self._spending = spending
        self._holder = secrets.token_hex(16)
        self._known: dict[tuple[str, str], _Shared] = {}
        self._needed = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "proctor-limits")
        self._task: asyncio.Task[None] | None = None
        self._said_at = float("-inf")

    def limiter(self, provider: str, model: str, most: int) -> Limiter:
        """The limiter of a provider's model; a share of one where there is a store."""
        key = provider, model
        if key not in self._known:
            limiter = Limiter(most, on_need=self._needed.set if self._spending else None)
            self._known[key] = _Shared(provider=provider, model=model, limiter=limiter)
            if self._spending and self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._run())
        return self._known[key].limiter

    async def close(self) -> None:
        """Give back every share."""
        if self._task and self._spending:
            spending = self._spending
            self._task.cancel()
            await asyncio.wait([self._task])
            with suppress(StoreError):
                await self._in_thread(lambda: spending.leave(self._holder))
        self._thread.shutdown()

    async def _run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_REPORT_S):
                    await self._needed.wait()
            self._needed.clear()
            for each in list(self._known.values()):
                await self._look_after(each)
            if any(each.limiter.lacks for each in self._known.values()):
                await asyncio.sleep(_SOONEST_S)
                self._needed.set()

    async def _look_after(self, shared: _Shared) -> None:
        now, limiter = time.monotonic(), shared.limiter
        if limiter.wanted():
            shared.active_at = now
        idle = now - shared.active_at > _IDLE_S
        if idle and not limiter.limit and not limiter.seen.refused:
            return
        if limiter.lacks or now - shared.reported_at >= _REPORT_S:
            await self._report(shared, idle=idle)
        if time.monotonic() > shared.until:
            limiter.lose_share()

    async def _report(self, shared: _Shared, *, idle: bool) -> None:
        assert self._spending
        limiter, asked_at, limits = shared.limiter, time.monotonic(), self._spending.limits
        seen, limiter.seen = limiter.seen, Seen()
        # Nobody waits for what a gateway keeps that is alone; another gives back what it does not use.
        wanted = limiter.wanted() or ({"": 1} if limiter.alone and not idle else {})
        report = Report(
            provider=shared.provider,
            model=shared.model,
            most=limiter.most,
            wanted=wanted,
            busy=limiter.busy,
            answered=seen.answered,
            refused=tuple(seen.refused),
            pause_s=seen.pause_s,
        )
        shared.reported_at = asked_at
        try:
            share: Share = await self._in_thread(lambda: limits.exchange(self._holder, report))
        except StoreError:
            limiter.seen.refused[:0] = seen.refused
            limiter.seen.answered += seen.answered
            limiter.seen.pause_s = max(limiter.seen.pause_s, seen.pause_s)
            self._say_away(holds=asked_at < shared.until)
            return
        shared.until = asked_at + _SURE_S
        if limiter.seen.refused:
            share = share._replace(share=min(share.share, int(limiter.limit)), alone=False)
        limiter.take_share(share)

    def _say_away(self, *, holds: bool) -> None:
        now = time.monotonic()
        if now - self._said_at > _SAY_EVERY_S:
            self._said_at = now
            what = "go on within this process's share" if holds else "wait until it answers again"
            _LOG.warning("the store of the shared limits does not answer; calls of models %s", what)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
