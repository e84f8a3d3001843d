"""Trials of any run of the store that is running: the source of a worker that serves many runs at once.

A run is made ready when the store first has something of it for this worker, and let go of when that is done.
The store chooses; here is only what the choice needs to know of this process: what it has promised already,
and that timings want it for themselves.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ParamSpec, TypeVar

from msgspec.structs import replace

from proctor.disk import nearly_full
from proctor.engine.base import Executor, WarmsUp
from proctor.errors import ProctorError, StoreError
from proctor.model.spec import Retries
from proctor.model.trial import Offers
from proctor.runs.running import ReadyRun
from proctor.runs.sources import Held
from proctor.store.calls import StoreCalls
from proctor.store.choice import OpenRun, Wish
from proctor.store.database import NewerSchemaError
from proctor.store.steps import Ended, Taken
from proctor.store.store import Store
from proctor.threads import in_own_thread

_IDLE_S = 5.0
"""How long what a run needs is kept when there is nothing to do for it."""
_AGAIN_S = 30.0
"""After so long a run that could not be made ready is tried again: a key or a program may have come."""
_SOON_S = 1e9
"""Trials that wait after an error are still to come."""

_P = ParamSpec("_P")
_T = TypeVar("_T")
Opened = tuple[ReadyRun, Executor]


@dataclass(slots=True)
class _Kept:
    run: ReadyRun
    executor: Executor
    used_at: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class _Refusal:
    why: str
    until: float


class AnyRun:
    """The trials of all runs that this process can execute."""

    def __init__(
        self,
        store: Store,
        calls: StoreCalls,
        offers: Offers,
        open_run: Callable[[str], Opened],
        *,
        worker: str,
        lease_s: float,
        say: Callable[[str], None],
        only: str = "",
        until_idle: bool = False,
        poll_s: float = 0.5,
        place: Path | None = None,
        leaving: Callable[[], bool] = lambda: False,
    ) -> None:
        """`open_run` is called in a thread; what it raises leaves the run to others. `only`: of this run.

        `place`: on the disk that attempts write to; nothing is taken while it is nearly full.
        `leaving`: whether to give up on a store that does not answer.
        """
        self.store = store
        self.offers = replace(offers, runs=(only,)) if only else offers
        self.idle_s = poll_s
        self.poll_s: float | None = poll_s
        self.woken: Callable[[], None] = lambda: None
        """Called when a run has been made ready."""
        self._calls = calls
        self._open_run = open_run
        self._worker = worker
        self._lease_s = lease_s
        self._say = say
        self._only = only
        self._until_idle = until_idle
        self._place = place
        self._leaving = leaving
        self._full = False
        self._kept: dict[str, _Kept] = {}
        self._opening: dict[str, asyncio.Task[None]] = {}
        self._refused: dict[str, _Refusal] = {}
        self._failure: ProctorError | None = None

    @property
    def opening(self) -> bool:
        """Whether a run is being made ready."""
        return bool(self._opening)

    def refuse(self, run_id: str, why: str) -> bool:
        """Take nothing of a run for a while, for what is missing may come; whether that is new."""
        before, now = self._refused.get(run_id), time.monotonic()
        self._refused[run_id] = _Refusal(why, now + _AGAIN_S)
        if before is None or before.why != why:
            self._say(f"run {run_id}: no trials of it are taken: {why}")
        return before is None or before.until <= now

    @property
    def left(self) -> dict[str, str]:
        """The runs that were refused lately, each with the reason."""
        now = time.monotonic()
        self._refused = {run: each for run, each in self._refused.items() if now < each.until + _AGAIN_S}
        return {run_id: each.why for run_id, each in self._refused.items()}

    def _refuses(self) -> frozenset[str]:
        now = time.monotonic()
        return frozenset(run_id for run_id, each in self._refused.items() if now < each.until)

    def executor_of(self, run_id: str) -> Executor:
        """Of a run that was made ready."""
        return self._kept[run_id].executor

    def retries_of(self, run_id: str) -> Retries:
        """The policy of a run that was made ready."""
        return self._kept[run_id].run.spec.retries

    async def exchange(
        self, finished: Sequence[Ended], room: int, running: Collection[Held]
    ) -> tuple[list[bool], Taken]:
        """Write what has ended, and take what the store says comes next: one transaction."""
        if self._failure:
            raise self._failure
        asked = room > 0 and not any(held.trial.kind == "experiment" for held in running)
        wish = self._wish(room, running) if asked and not self._lacks_space() else None
        written, found, taken = await self._patiently(
            self.store.exchange_any, finished, wish, worker=self._worker, lease_s=self._lease_s
        )
        if wish:
            self._open(found)
            await self._close_idle({each.id for each in found}, running)
        return written, taken

    def _lacks_space(self) -> bool:
        """Whether the disk is too full: what is taken then would only use up the attempts of its trials."""
        lacks = self._place is not None and nearly_full(self._place)
        if lacks != self._full:
            self._full = lacks
            self._say(
                f"the disk of {self._place} is nearly full: nothing is taken until there is room"
                if lacks
                else "there is room on the disk again"
            )
        return lacks

    def _wish(self, room: int, running: Collection[Held]) -> Wish:
        """What this process can still promise."""
        promised_mb = sum(held.lease.memory_mb for held in running)
        offers = replace(self.offers, memory_mb=max(0, self.offers.memory_mb - promised_mb))
        return Wish(offers, room, frozenset(self._kept), self._refuses(), idle=not running)

    def _open(self, found: Collection[OpenRun]) -> None:
        """Begin to make those ready that are not: they are taken from in a later turn."""
        known = {*self._kept, *self._opening, *self._refuses()}
        for run in found:
            if run.id not in known:
                self._opening[run.id] = asyncio.create_task(self._make_ready(run.id))

    async def _make_ready(self, run_id: str) -> None:
        try:
            ready, executor = await in_own_thread(self._open_run, run_id)
            self._kept[run_id] = _Kept(ready, executor)
            if isinstance(executor, WarmsUp):
                await executor.warm_up(ready.plan.trials)
            self._say(f"run {run_id}: {ready.info.name}")
        except ProctorError as error:
            if self._only:
                self._failure = error
            self.refuse(run_id, str(error))
        finally:
            self._opening.pop(run_id, None)
            self.woken()

    async def _close_idle(self, wanted: Collection[str], running: Collection[Held]) -> None:
        busy = {held.lease.run_id for held in running} | set(wanted)
        now = time.monotonic()
        for run_id, kept in list(self._kept.items()):
            if run_id in busy:
                kept.used_at = now
            elif now - kept.used_at > _IDLE_S:
                del self._kept[run_id]
                await kept.executor.close()

    async def more(self) -> bool:
        """Until it is told to stop there may always be more, unless it ends when there is nothing to do."""
        if self._failure:
            raise self._failure
        if not self._until_idle:
            await self._close_idle((), ())
            return True
        found = await self._patiently(self.store.runs_for, self.offers, _SOON_S)
        refused = self._refuses()
        return bool(self._opening) or any(each.id not in refused for each in found)

    async def _patiently(self, function: Callable[_P, _T], *args: _P.args, **more: _P.kwargs) -> _T:
        """Call the store; while it is away try again, for what runs is kept until its lease has ended."""
        told = False
        while True:
            try:
                found = await self._calls(function, *args, **more)
            except StoreError as error:
                if not self.store.remote or self._leaving() or isinstance(error, NewerSchemaError):
                    raise
                if not told:
                    self._say(f"the store does not answer, it is tried again: {error}")
                    told = True
                await asyncio.sleep(1.0)
            else:
                return found

    async def close(self) -> None:
        """End what is kept ready."""
        for task in self._opening.values():
            task.cancel()
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        while self._kept:
            await self._kept.popitem()[1].executor.close()
