"""An agent's limit is on a clock that stands still while its calls wait for a budget."""

from __future__ import annotations

import asyncio

import pytest

from proctor.trial.task.clock import AgentClock

pytestmark = pytest.mark.anyio


async def test_the_limit_moves_by_the_time_that_stood_still():
    clock, told = AgentClock(), []
    clock.on_change = told.append
    async with clock.limit(60) as limit:
        before = limit.when()
        clock.stand_still(True)
        assert limit.when() is None, "nothing ends it meanwhile"
        clock.stand_still(False)
        assert limit.when() > before
    assert told == [True, False]


async def test_what_was_left_before_is_left_afterwards():
    clock = AgentClock()

    async def work() -> None:
        async with clock.limit(0.05):
            clock.stand_still(True)
            clock.stand_still(False)
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await work()


async def test_a_clock_without_a_limit_only_tells():
    clock = AgentClock()
    clock.stand_still(True)
    clock.stand_still(False)
    async with clock.limit(60) as limit:
        assert limit.when() is not None
