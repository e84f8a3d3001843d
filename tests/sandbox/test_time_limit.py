"""A command's limit may move while it runs."""

from __future__ import annotations

import asyncio

import pytest

from proctor.sandbox.time_limit import ends_within

pytestmark = pytest.mark.anyio


async def test_a_limit_that_moves_is_asked_again_when_it_is_over():
    future = asyncio.get_running_loop().create_future()
    allowed_s = iter([0.01, 60.0])

    def limit() -> float:
        found = next(allowed_s)
        if found > 1:
            asyncio.get_running_loop().call_soon(future.set_result, None)
        return found

    assert await ends_within(future, limit)


@pytest.mark.parametrize("limit", [0.01, lambda: 0.01])
async def test_a_limit_that_stays_ends_the_wait(limit):
    assert not await ends_within(asyncio.get_running_loop().create_future(), limit)


async def test_what_is_done_is_done_without_a_limit():
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, None)
    assert await ends_within(future, None)
