"""Budgets are exact: under concurrency, after kill -9, on both databases."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import aiohttp
import pytest
from tests.gateway.conftest import RUN, running, says, until

from proctor.gateway.provider.script import Fault
from proctor.gateway.provider.server import FakeProvider
from proctor.gateway.usage import Usage
from proctor.store.spending import DAY, Budget, Scope

pytestmark = pytest.mark.anyio
CHAT = "/v1/chat/completions"
ASK = {"model": "priced", "max_tokens": 50, "messages": [{"role": "user", "content": "hello"}]}


async def statuses(url: str, token: str, calls: int, **more: object) -> list[int]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:

        async def one(_: int) -> int:
            headers = {"x-api-key": token}
            async with http.post(url + CHAT, json={**ASK, **more}, headers=headers) as answer:
                await answer.read()
                return answer.status

        return list(await asyncio.gather(*map(one, range(calls))))


def of_run(**limits: float) -> tuple[Budget, ...]:
    return (Budget(scope=Scope("run", RUN), **limits),)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_budget_of_n_calls_lets_through_n_of_fifty_clients_at_once(store, streamed):
    said: list[str] = []
    async with running(says("hi"), gateway={"spending": store.spending}) as setup:
        accesses = [
            setup.access(trial=trial, budgets=of_run(requests=23), on_exhausted=said.append)
            for trial in (0, 1)
        ]
        answers = await asyncio.gather(
            *(statuses(setup.gateway.base_url, each.token, 25, stream=streamed) for each in accesses)
        )
        assert sorted(answers[0] + answers[1]) == [200] * 23 + [400] * 27
        assert len(setup.provider.sales) == 23
        for access in accesses:
            await setup.gateway.end(access)
        assert sum(access.sums().requests for access in accesses) == 23
        assert said == ["the run's budget of 23 requests is spent"] * len(said)
        assert 1 <= len(said) <= 2, "each owner hears it once"
        total = store.spending.total(Scope("run", RUN))
        assert (total.requests, total.held_tokens) == (23, 0)
        assert store.spending.total(store.spending.today()).requests == 23


async def test_a_budget_holds_after_kill_9_and_a_new_start(store, tmp_path: Path):
    async with FakeProvider(
        says("hi"), faults=[Fault(), Fault(), Fault(first_byte_s=60, times=3)]
    ) as provider:
        first = await started(store.where, provider.base_url, requests=10)
        assert await statuses(*first.place, 2) == [200, 200]
        stuck = asyncio.create_task(statuses(*first.place, 3))
        await until(lambda: len(provider.requests) == 5)
        first.process.kill()
        await first.process.wait()
        with pytest.raises(aiohttp.ClientError):
            await stuck
        total = store.spending.total(Scope("run", RUN))
        assert total.requests == 5
        assert total.held_tokens >= 3 * 50, "what the dead process held counts on"
        second = await started(store.where, provider.base_url, requests=10)
        answers = await statuses(*second.place, 9)
        assert sorted(answers) == [200] * 5 + [400] * 4
        assert len(provider.requests) == 10
        second.process.kill()
        await second.process.wait()


class Started:
    def __init__(self, process: asyncio.subprocess.Process, place: list[str]) -> None:
        self.process = process
        self.place = place


async def started(store_url: str, provider: str, **budget: float) -> Started:
    script = Path(__file__).with_name("gateway_process.py")
    process = await asyncio.create_subprocess_exec(
        sys.executable, script, store_url, provider, RUN, json.dumps(budget), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout
    line = await process.stdout.readline()
    return Started(process, line.decode().split())


async def test_the_day_is_a_budget_across_runs_and_attempts(store):
    async with running(says("hi"), gateway={"spending": store.spending}) as setup:
        budgets = (Budget(scope=DAY, requests=3),)
        for attempt, passed in ((1, 2), (2, 1), (3, 0)):
            access = setup.access(attempt=attempt, budgets=budgets)
            answers = await statuses(setup.gateway.base_url, access.token, 2)
            assert answers.count(200) == passed
        assert access.exhausted == "the day's budget of 3 requests is spent"


async def test_tokens_are_reserved_at_their_most_and_settled_at_what_they_were(store):
    script = says("hi", usage=Usage(prompt_tokens=20, completion_tokens=10))
    async with running(script, gateway={"spending": store.spending}) as setup:
        access = setup.access(budgets=of_run(tokens=165))
        for expected in (200, 200, 200, 400):
            assert await statuses(setup.gateway.base_url, access.token, 1) == [expected]
        assert "75 are left" in access.exhausted
        await setup.gateway.end(access)
        assert store.spending.total(Scope("run", RUN)).tokens == 90
        refused = access.calls[-1]
        assert (refused.failure, refused.status, refused.usage) == ("budget", 400, None)


async def test_calls_wait_for_what_others_hold_rather_than_end_the_attempt(store):
    script = says("hi", usage=Usage(prompt_tokens=1, completion_tokens=1))
    async with running(script, gateway={"spending": store.spending}) as setup:
        access = setup.access(budgets=of_run(tokens=150))
        assert await statuses(setup.gateway.base_url, access.token, 10) == [200] * 10
        assert not access.exhausted


async def test_money_is_counted_and_an_unknown_price_cannot_be_kept(store):
    script = says("hi", usage=Usage(prompt_tokens=1000, completion_tokens=100))
    async with running(script, gateway={"spending": store.spending}) as setup:
        access = setup.access(budgets=of_run(usd=0.005))
        answers = [await statuses(setup.gateway.base_url, access.token, 1) for _ in range(4)]
        assert answers == [[200], [200], [200], [400]], "the estimate of the third still fits"
        await setup.gateway.end(access)
        assert store.spending.total(Scope("run", RUN)).cost_usd == pytest.approx(0.006)
        assert access.sums().cost_usd == pytest.approx(0.006)
        unknown = setup.access(attempt=2, models=("fake/other",), budgets=of_run(usd=10))
        assert await statuses(setup.gateway.base_url, unknown.token, 1, model="other") == [400]
        assert "the price of 'fake/other' is unknown" in unknown.exhausted


async def test_a_budget_may_have_a_scope_of_its_own(store):
    async with running(says("hi"), gateway={"spending": store.spending}) as setup:
        judge = (Budget(scope=Scope("judge", RUN), requests=1),)
        access = setup.access(budgets=judge)
        other = setup.access(attempt=2)
        assert await statuses(setup.gateway.base_url, other.token, 2) == [200, 200]
        assert sorted(await statuses(setup.gateway.base_url, access.token, 2)) == [200, 400]


async def test_books_that_cannot_be_written_let_nothing_through(store):
    async with running(says("hi"), gateway={"spending": store.spending}) as setup:
        access = setup.access()
        store.close()
        assert await statuses(setup.gateway.base_url, access.token, 1) == [503]
        assert setup.provider.sales == []


async def test_nothing_in_the_store_is_a_key_or_a_token(store, tmp_path: Path):
    async with running(says("hi"), gateway={"spending": store.spending}) as setup:
        access = setup.access()
        await statuses(setup.gateway.base_url, access.token, 2)
        await setup.gateway.end(access)
    store.close()
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("proctor.db*"))
    assert b"fake/priced" in kept
    assert access.token.encode() not in kept
    assert b"sk-provider" not in kept
