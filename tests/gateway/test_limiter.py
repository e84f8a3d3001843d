from __future__ import annotations

import asyncio

import aiohttp
import pytest
from tests.gateway.conftest import running, says, until

from proctor.gateway import limiter as module
from proctor.gateway.limiter import Limiter, Retry, Turn, asked_pause_s

pytestmark = pytest.mark.anyio


def test_the_limit_doubles_per_round_until_the_first_refusal_and_then_creeps():
    limiter = Limiter(400)
    for expected in (64, 128, 256, 400):
        for _ in range(int(limiter.limit)):
            limiter.answered(Turn(0, 0.0))
        assert limiter.limit == expected
    limiter.refused(0, None)
    assert limiter.limit == 200
    for _ in range(200):
        limiter.answered(Turn(0, 0.0))
    assert 200.9 < limiter.limit < 201.1


def test_refusals_of_one_round_halve_the_limit_once():
    limiter = Limiter(8)
    for _ in range(8):
        limiter.refused(0, None)
    assert limiter.limit == 4
    limiter.refused(1, None)
    assert limiter.limit == 2
    for epoch in range(2, 9):
        limiter.refused(epoch, None)
    assert limiter.limit == 1


async def enter(limiter: Limiter, run: str, order: list[str], release: asyncio.Event) -> None:
    async with limiter.turn(run):
        order.append(run)
        await release.wait()


async def test_runs_take_turns_however_many_calls_each_has():
    limiter, order, release = Limiter(2), [], asyncio.Event()
    runs = ["a"] * 6 + ["b"] * 2 + ["c"]
    tasks = [asyncio.create_task(enter(limiter, run, order, release)) for run in runs]
    await asyncio.sleep(0)
    assert order == ["a", "a"]
    release.set()
    await asyncio.gather(*tasks)
    assert order[2:8] == ["a", "b", "c", "a", "b", "a"]
    assert limiter.busy == 0


async def test_attempts_of_a_run_take_turns_however_many_calls_one_has():
    limiter, order, release = Limiter(2), [], asyncio.Event()

    async def call(attempt: str) -> None:
        async with limiter.turn("run", attempt):
            order.append(attempt)
            await release.wait()

    tasks = [asyncio.create_task(call(attempt)) for attempt in ["hostile"] * 50 + ["neighbour"]]
    await asyncio.sleep(0)
    assert limiter.wanted() == {"run": 51}
    release.set()
    await asyncio.gather(*tasks)
    assert order.index("neighbour") == 3
    assert (limiter.busy, limiter.wanted()) == (0, {})


async def test_whoever_stops_waiting_leaves_no_trace():
    limiter, order, release = Limiter(1), [], asyncio.Event()
    tasks = [asyncio.create_task(enter(limiter, "a", order, release)) for _ in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.sleep(0)
    release.set()
    assert await asyncio.gather(*tasks, return_exceptions=True)
    assert (len(order), limiter.busy) == (2, 0)


async def test_calls_that_are_not_refused_let_others_in_before_their_answers(monkeypatch):
    monkeypatch.setattr(module, "ACCEPTED_S", 0.01)
    limiter, order, release = Limiter(128), [], asyncio.Event()
    tasks = [asyncio.create_task(enter(limiter, "a", order, release)) for _ in range(100)]
    await until(lambda: len(order) == 100)
    assert 100 <= limiter.limit <= 128
    release.set()
    await asyncio.gather(*tasks)


async def test_a_call_counts_once_whether_it_is_answered_soon_or_late(monkeypatch):
    monkeypatch.setattr(module, "ACCEPTED_S", 0.0)
    limiter = Limiter(128)
    async with limiter.turn("a") as soon, limiter.turn("a") as late:
        limiter.answered(soon)
        limiter._heard_nothing()
        assert limiter.seen.answered == 2
        limiter.answered(late)
        limiter._heard_nothing()
    assert (limiter.seen.answered, limiter.limit) == (2, 34)


async def test_after_a_refusal_only_answers_let_more_in(monkeypatch):
    monkeypatch.setattr(module, "ACCEPTED_S", 0.0)
    limiter, order, release = Limiter(128), [], asyncio.Event()
    tasks = [asyncio.create_task(enter(limiter, "a", order, release)) for _ in range(32)]
    await until(lambda: len(order) == 32)
    limiter.refused(0, None)
    limiter._heard_nothing()
    assert (limiter.limit, limiter.seen.answered) == (16, 0)
    release.set()
    await asyncio.gather(*tasks)


async def test_nobody_is_let_in_while_the_provider_asks_to_be_left_alone():
    now = 0.0
    limiter, order, release = Limiter(8, lambda: now), [], asyncio.Event()
    release.set()
    limiter.refused(0, 0.01)
    waiting = asyncio.create_task(enter(limiter, "a", order, release))
    await asyncio.sleep(0.03)
    assert order == []
    now = 1.0
    await waiting
    assert order == ["a"]


@pytest.mark.parametrize(
    ("headers", "pause_s"),
    [
        ({}, None),
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, 20.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
    ],
)
def test_a_provider_says_in_several_ways_how_long_to_wait(headers, pause_s):
    assert asked_pause_s(headers, lambda: 40.0) == pause_s


def test_pauses_grow_and_have_a_longest():
    retry = Retry(first_s=1, longest_s=5)
    for tries, most in ((0, 1), (1, 2), (2, 4), (3, 5), (50, 5)):
        assert most / 2 <= retry.pause_s(tries, None) <= most
    assert retry.pause_s(50, 7.0) == 7.0


async def test_a_provider_with_a_rate_limit_serves_everybody_in_the_end():
    async with running(says("hi"), rate_per_s=40) as setup, aiohttp.ClientSession() as http:
        access = setup.access()

        async def one(_: int) -> int:
            body = {"model": "priced", "messages": []}
            headers = {"x-api-key": access.token}
            async with http.post(
                f"{setup.openai_url}/chat/completions", json=body, headers=headers
            ) as answer:
                return answer.status

        assert set(await asyncio.gather(*map(one, range(60)))) == {200}
        assert 429 in setup.provider.statuses
        await setup.gateway.end(access)
        assert access.sums().retries == setup.provider.statuses.count(429)
