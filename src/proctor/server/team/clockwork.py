"""What the server does by the clock: scheduled runs, webhooks, and clearing what is old."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from proctor.errors import StoreError
from proctor.server.state import State
from proctor.server.team.clearing import clear_old
from proctor.server.team.delivery import Deliveries
from proctor.server.team.starting import start_due
from proctor.store.outage import Outage
from proctor.store.store import Store

_log = logging.getLogger("proctor.server")

SCHEDULES_S = 5.0
WEBHOOKS_S = 1.0
CLEARING_S = 3600.0


async def keep_time(state: State) -> None:
    """Do everything that is due, until the server stops."""
    deliveries, outage = Deliveries(state), Outage(_log)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_every(state, outage, WEBHOOKS_S, deliveries.begin))
            tasks.create_task(_every(state, outage, SCHEDULES_S, lambda: _start(state)))
            tasks.create_task(_every(state, outage, CLEARING_S, lambda: state.heavy(clear_old, state)))
    finally:
        await deliveries.close()


async def _start(state: State) -> None:
    if await state.store(start_due, state):
        state.wake()


async def _every(state: State, outage: Outage, pause_s: float, do: Callable[[], Awaitable[object]]) -> None:
    while not state.stopping.is_set():
        try:
            if not outage.resting:
                if outage.goes_on:
                    await state.store(Store.try_writing)
                    outage.worked()
                await do()
        except StoreError as error:
            outage.failed(error)
        except Exception:  # noqa: BLE001 - told in the log; it must not end the other duties
            _log.exception("a duty of the server failed")
        try:
            async with asyncio.timeout(pause_s):
                await state.stopping.wait()
        except TimeoutError:
            continue
