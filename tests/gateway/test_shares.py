"""Gateways on one store share a provider's limit: together they are as one, and the dead keep nothing."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import asynccontextmanager

import pytest
from tests.gateway.conftest import until

from proctor.gateway import limiter as limiting
from proctor.gateway import shares as module
from proctor.gateway.limiter import Limiter
from proctor.gateway.shares import Shares
from proctor.store.open import open_store

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def gateways(store_url: str, number: int):
    with open_store(store_url) as store:
        made = [Shares(store.spending) for _ in range(number)]
        try:
            yield store, made
        finally:
            for each in made:
                await each.close()
        assert store._db.read("SELECT count(*) FROM gateways")[0][0] == 0, "who goes gives everything back"


class Watched:
    """Counts calls that are under way."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.done: Counter[str] = Counter()

    async def call(self, limiter: Limiter, run: str, until_s: float = 0.01) -> None:
        async with limiter.turn(run) as turn:
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(until_s)
            self.now -= 1
            self.done[run] += 1
            limiter.answered(turn)


async def test_all_gateways_together_stay_within_the_limit_of_one(store_url):
    async with gateways(store_url, 3) as (_, made):
        watched = Watched()
        limiters = [each.limiter("fake", "m", 5) for each in made]
        async with asyncio.timeout(60):
            await asyncio.gather(
                *(
                    watched.call(limiter, f"run-{at}")
                    for at, limiter in enumerate(limiters)
                    for _ in range(30)
                )
            )
        assert watched.most <= 5
        assert watched.done == {"run-0": 30, "run-1": 30, "run-2": 30}


async def test_a_limit_of_one_goes_round(store_url):
    async with gateways(store_url, 2) as (_, made):
        watched = Watched()
        limiters = [each.limiter("fake", "m", 1) for each in made]
        first = [asyncio.create_task(watched.call(limiters[0], "long")) for _ in range(2000)]
        await until(lambda: watched.done["long"])
        async with asyncio.timeout(60):
            await watched.call(limiters[1], "short")
        assert watched.done["long"] < 2000, "it did not have to wait for all of them"
        assert watched.most == 1
        for each in first:
            each.cancel()
        await asyncio.gather(*first, return_exceptions=True)


async def test_what_one_learns_from_a_refusal_the_others_honour(store_url):
    async with gateways(store_url, 2) as (_, made):
        watched, hold = Watched(), asyncio.Event()
        one, other = (each.limiter("fake", "m", 8) for each in made)

        async def held(limiter: Limiter, run: str) -> None:
            async with limiter.turn(run) as turn:
                epochs.append(turn.epoch)
                await hold.wait()

        epochs: list[int] = []
        tasks = [
            asyncio.create_task(held(each, str(at))) for at, each in enumerate((one, other)) for _ in range(4)
        ]
        await until(lambda: len(epochs) == 8)
        one.refused(epochs[0], 30.0)
        late = asyncio.create_task(watched.call(other, "1"))
        await until(lambda: other._epoch == 1 and other._closed_until > other._now() + 20)
        assert one.limit + other.limit <= 4, "half of the eight there were"
        hold.set()
        await asyncio.gather(*tasks)
        assert not late.done(), "nobody is let in while the provider asks to be left alone"
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)


async def test_gateways_that_are_not_refused_get_more_together_before_any_answer(store_url, monkeypatch):
    monkeypatch.setattr(limiting, "ACCEPTED_S", 0.01)
    async with gateways(store_url, 2) as (_, made):
        watched = Watched()
        limiters = [each.limiter("fake", "m", 128) for each in made]
        tasks = [
            asyncio.create_task(watched.call(each, str(at), 1e6))
            for at, each in enumerate(limiters)
            for _ in range(50)
        ]
        await until(lambda: watched.now == 100)
        assert watched.done == {}
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_share_of_a_dead_gateway_is_free_when_its_lease_ends(store_url):
    async with gateways(store_url, 2) as (store, (dead, other)):
        watched = Watched()
        limiter = dead.limiter("fake", "m", 4)
        stuck = asyncio.create_task(watched.call(limiter, "a", 1e6))
        await until(lambda: watched.now == 1)
        dead._task.cancel()
        late = asyncio.create_task(watched.call(other.limiter("fake", "m", 4), "b"))
        await until(lambda: store._db.read("SELECT count(*) FROM limit_shares")[0][0] == 2)
        assert not late.done(), "all four places are the other's"
        with store._db.write() as tx:  # as after the time of a lease
            tx.change("UPDATE gateways SET expires_at = 1.0 WHERE id = :id", {"id": dead._holder})
        async with asyncio.timeout(30):
            await late
        stuck.cancel()
        await asyncio.gather(stuck, return_exceptions=True)


async def test_without_the_store_calls_go_on_within_the_share_and_then_wait(tmp_path, caplog, monkeypatch):
    caplog.set_level(logging.WARNING, "proctor.gateway")
    monkeypatch.setattr(module, "_SURE_S", 2.0)
    store = open_store(str(tmp_path / "s.db"))
    shares, watched = Shares(store.spending), Watched()
    limiter = shares.limiter("fake", "m", 4)
    await watched.call(limiter, "a")
    store.close()
    await watched.call(limiter, "a")
    await until(lambda: limiter.limit == 0)
    waiting = asyncio.create_task(watched.call(limiter, "a"))
    await until(lambda: "does not answer" in caplog.text)
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await shares.close()
