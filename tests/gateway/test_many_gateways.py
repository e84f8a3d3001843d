"""Gateways of several processes on one store keep one budget: exactly, also when one of them is killed."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import chain

import pytest
from tests.gateway.conftest import RUN, says, until
from tests.gateway.test_budget import started, statuses
from tests.store.conftest import Make

from proctor.gateway.provider.server import FakeProvider
from proctor.gateway.usage import Usage
from proctor.store.open import open_store
from proctor.store.spending import Scope

pytestmark = pytest.mark.anyio
USED = Usage(prompt_tokens=20, completion_tokens=10)
ASKED = 151
"""What a call of these tests is taken for at most: 50 tokens of answer, and its bytes."""


@asynccontextmanager
async def gateways(store_url: str, number: int, **budget: float):
    with open_store(store_url) as store:
        Make.run(store, RUN)
        async with AsyncExitStack() as stack:
            provider = await stack.enter_async_context(FakeProvider(says("hi", usage=USED)))
            found = []
            for _ in range(number):
                each = await started(store_url, provider.base_url, **budget)
                stack.push_async_callback(each.process.wait)
                stack.callback(lambda each=each: each.process.returncode is None and each.process.kill())
                found.append(each)
            yield store, provider, found


@pytest.mark.parametrize("day", [False, True])
async def test_a_budget_of_n_requests_lets_through_n_over_all_gateways(store_url, day):
    async with gateways(store_url, 3, requests=150, day=day) as (store, provider, found):
        answers = await asyncio.gather(*(statuses(*each.place, 70) for each in found))
        assert Counter(chain.from_iterable(answers)) == {200: 150, 400: 60}
        assert len(provider.sales) == 150
        scope = store.spending.today() if day else Scope("run", RUN)
        await until(lambda: store.spending.total(scope).tokens == 150 * 30)
        assert store.spending.total(scope).requests == 150


async def test_tokens_and_dollars_are_spent_to_the_end_and_not_beyond(store_url):
    tokens, dollars = 6000, 0.02
    async with gateways(store_url, 2, tokens=tokens, usd=dollars) as (store, provider, found):
        await asyncio.gather(*(statuses(*each.place, 120) for each in found))
        total = store.spending.total(Scope("run", RUN))
        await until(lambda: store.spending.total(Scope("run", RUN)).held_tokens == 0)
        total = store.spending.total(Scope("run", RUN))
        assert total.requests == len(provider.sales)
        assert total.tokens == 30 * total.requests <= tokens
        assert total.nano_usd == 120_000 * total.requests <= dollars * 1e9
        left = min(tokens - total.tokens, (dollars * 1e9 - total.nano_usd) / 10_000)
        assert left < 2 * ASKED, "nothing is held by anybody, and no further call would fit"


async def test_what_a_killed_gateway_held_comes_back_after_its_lease_and_is_spent_once(store_url):
    async with gateways(store_url, 2, requests=400) as (store, provider, (dead, other)):
        assert await statuses(*dead.place, 20) == [200] * 20
        held = store._db.read("SELECT sum(requests) FROM portions")[0][0]
        assert held, "it has a portion for more"
        dead.process.kill()
        await dead.process.wait()
        with store._db.write() as tx:  # a lease that ended long ago, without the wait
            tx.change("UPDATE gateways SET expires_at = 1.0 WHERE id IN (SELECT holder FROM portions)")
        answers = await statuses(*other.place, 390)
        assert Counter(answers) == {200: 380, 400: 10}
        assert len(provider.sales) == 400
        await until(lambda: store.spending.total(Scope("run", RUN)).requests == 400)
