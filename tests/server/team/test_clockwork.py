"""What the server does by the clock, while the store fails."""

from __future__ import annotations

import asyncio
import logging

import pytest

from proctor.errors import StoreError
from proctor.server.state import State
from proctor.server.team import clockwork
from proctor.store import outage
from proctor.store.store import Store


@pytest.mark.anyio
async def test_a_store_that_fails_is_said_once_for_all_duties(
    state: State, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    tries = []

    def broken(*_: object) -> int:
        tries.append(1)
        raise StoreError("disk I/O error")

    for name in ("WEBHOOKS_S", "SCHEDULES_S"):
        monkeypatch.setattr(clockwork, name, 0.001)
    monkeypatch.setattr(outage, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(outage, "LONGEST_PAUSE_S", 0.002)
    monkeypatch.setattr(clockwork, "start_due", broken)
    monkeypatch.setattr(Store, "try_writing", broken)
    caplog.set_level(logging.WARNING)
    keeping = asyncio.create_task(clockwork.keep_time(state))
    async with asyncio.timeout(30):
        while len(tries) < 20:  # noqa: ASYNC110 - what is awaited happens in threads
            await asyncio.sleep(0.01)
        monkeypatch.undo()
        while "the store works again" not in caplog.messages:  # noqa: ASYNC110 - same
            await asyncio.sleep(0.01)
    state.stopping.set()
    await keeping
    assert sum("disk I/O error" in each for each in caplog.messages) == 1
