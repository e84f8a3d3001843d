"""Coordinate a run whose trials other processes execute: tell them of work, and wait for its end.

A message wakes a place of a worker that has nothing to do; who is at work goes on by itself. What is takeable
and what is free is compared with what the broker has, and the difference is published: so a broker that was
wiped is filled again, and one that is away delays a run and never stops it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from proctor.engine.celery.app import queue_of
from proctor.engine.celery.publisher import Broker, BrokerError, Publisher
from proctor.engine.stop import Stop
from proctor.errors import StoreError
from proctor.model.trial import RunStatus
from proctor.runs.coordinator import Coordinator
from proctor.store.calls import StoreCalls
from proctor.store.fleet import nobody_can
from proctor.store.store import Store

_FIRST_S, _LAST_S = 0.5, 20.0
"""Between two looks at the broker: short while something moves, longer and longer while nothing does."""
_LOOK_S = 0.5
"""Between two looks whether a run has ended."""
_PATIENCE_S = 20.0
"""How long trials may wait before somebody is told that no worker can execute them."""
_log = logging.getLogger("proctor.runs")


class Dispatcher:
    """Tells workers by the broker that trials of a run wait."""

    def __init__(self, store: Store, run_id: str, broker: Broker) -> None:
        self.store = store
        self.run_id = run_id
        self._publisher = Publisher(broker)
        self._before = -1

    async def keep(self) -> None:
        """Publish what is missing, for as long as the run lasts. A dead broker is tried again and again."""
        pause_s, silent = _FIRST_S, False
        try:
            while True:
                try:
                    moved = await asyncio.to_thread(self.top_up)
                    pause_s = _FIRST_S if moved or silent else min(_LAST_S, pause_s * 2)
                    silent = False
                except StoreError as error:
                    if not silent and isinstance(error, BrokerError):
                        _log.warning("%s: workers find trials by themselves, later", error)
                    silent, pause_s = True, 2.0
                await asyncio.sleep(pause_s)
        finally:
            await asyncio.to_thread(self._publisher.close)

    def top_up(self) -> bool:
        """Publish what can be taken by a free place and is not in the broker; whether anything moved."""
        fleet = self.store.fleet
        demand = fleet.demand(self.run_id)
        free = fleet.free_places(self.run_id) if demand else []
        for backend, (takeable, own) in demand.items():
            places = sum(number for number, backends in free if not backend or backend in backends)
            if not own or not places:
                continue
            queue = queue_of(backend)
            missing = min(takeable, places) - self._publisher.waiting(queue)
            if missing > 0:
                found = fleet.takeable_of(self.run_id, backend, min(missing, own))
                priority = fleet.priority(self.run_id)
                self._publisher.publish(queue, [f"{self.run_id}/{index}" for index in found], priority)
        now = sum(takeable for takeable, _ in demand.values())
        moved, self._before = now != self._before, now
        return moved


class Waiting:
    """The end of a run whose trials others execute."""

    def __init__(self, coordinator: Coordinator, stop: Stop, say: Callable[[str], None]) -> None:
        self.coordinator = coordinator
        self.stop = stop
        self.say = say
        self._told = ""

    async def wait(self, calls: StoreCalls) -> None:
        """Return when no trial is left; asked to stop, when what runs has ended; asked twice, at once."""
        store, run_id = self.coordinator.store, self.coordinator.run_id
        told_at = asyncio.get_running_loop().time() + _PATIENCE_S / 4
        paused = False
        seen = await calls(store.coordination.last_event, run_id)
        while await self.coordinator.unfinished():
            if reason := await calls(store.coordination.spent_since, run_id, seen):
                self.stop.drain(str(reason))
            if self.stop.now:
                return
            if self.stop.draining:
                if not paused:
                    # Nobody takes more of a run that is not running; what runs is finished and committed.
                    await calls(self.coordinator.hold.set_status, RunStatus.INTERRUPTED)
                    paused = True
                if not await calls(store.workers, run_id):
                    return
            if asyncio.get_running_loop().time() > told_at:
                told_at = asyncio.get_running_loop().time() + _PATIENCE_S
                await self._tell(calls, store, run_id)
            await self._sleep()

    async def _tell(self, calls: StoreCalls, store: Store, run_id: str) -> None:
        """Why trials wait, where that is not for their turn."""
        why = nobody_can(await calls(store.fleet.unmet, run_id))
        if why and why != self._told:
            self.say(why)
            await calls(store.service.queue.tell, run_id, "run.waiting", {"reason": why})
        self._told = why

    async def _sleep(self) -> None:
        try:
            async with asyncio.timeout(_LOOK_S):
                await self.stop.changed()
        except TimeoutError:
            return


async def by_workers(coordinator: Coordinator, stop: Stop, calls: StoreCalls, broker: Broker) -> None:
    """Tell workers of a run's trials, and return when they are done, or a person stopped it."""
    telling = asyncio.create_task(Dispatcher(coordinator.store, coordinator.run_id, broker).keep())
    try:
        await Waiting(coordinator, stop, _log.warning).wait(calls)
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
