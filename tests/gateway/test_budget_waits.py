"""Calls wait for what others hold of a budget, in order; what agents can overdraw it by is bounded."""

from __future__ import annotations

import asyncio
import random
import threading
from contextlib import asynccontextmanager
from itertools import count

import aiohttp
import pytest
from tests.gateway.conftest import KEY, RUN, until

from proctor.gateway.apis import Api
from proctor.gateway.app import Gateway
from proctor.gateway.limiter import Retry
from proctor.gateway.prices import Price, Prices
from proctor.gateway.provider.script import Turn
from proctor.gateway.provider.server import FakeProvider
from proctor.gateway.providers import Provider, Providers
from proctor.gateway.tokens import Access
from proctor.gateway.usage import Usage
from proctor.store.spending import DAY, Budget, Scope

pytestmark = pytest.mark.anyio
GPT_5 = Price(input=1.25, output=10.0, cached=0.125, max_output=128_000, context=400_000)
LONGEST_USD = 128_000 * 10 / 1e6 + 400_000 * 1.25 / 1e6
"""What one call without a limit costs at most."""
ONE_CALL = 0.03
"""Dollars for one call at a time, by its estimate."""
IMPATIENT = Retry(first_s=0.01, longest_s=0.02, within_s=0.2, silent_within_s=0.2)
CHAT = "/v1/chat/completions"
USED = Usage(prompt_tokens=20, completion_tokens=30)


class Gate(FakeProvider):
    """A provider that answers when it is let, and counts the calls that it has at a time."""

    def __init__(self, *what: object, **more: object) -> None:
        super().__init__(*what, **more)
        self.opened = asyncio.Event()
        self.at_work = 0
        self.most_at_work = 0

    async def _reply(self, request, route, asked, key):
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        try:
            await self.opened.wait()
            return await super()._reply(request, route, asked, key)
        finally:
            self.at_work -= 1


class Setup:
    def __init__(self, gateway: Gateway, provider: Gate, http: aiohttp.ClientSession) -> None:
        self.gateway, self.provider, self.http = gateway, provider, http
        self._trials = count()

    def access(self, *, scope: Scope | None = None, **limits: float) -> Access:
        budget = Budget(scope=scope or Scope("run", RUN), **limits)
        return self.gateway.issue(
            run_id=RUN, trial=next(self._trials), attempt=1, models=("fake/gpt-5",), budgets=(budget,)
        )

    async def ask(self, access: Access, text: str = "x", **more: object) -> int:
        document = {"model": "gpt-5", "messages": [{"role": "user", "content": text}], **more}
        headers = {"x-api-key": access.token}
        async with self.http.post(self.gateway.base_url + CHAT, json=document, headers=headers) as answer:
            await answer.read()
            return answer.status

    def asking(self, access: Access, text: str = "x", **more: object) -> asyncio.Task[int]:
        return asyncio.create_task(self.ask(access, text, **more))


@asynccontextmanager
async def gated(store, script=lambda _: Turn(text="hi", usage=USED), **gateway: object):
    async with (
        Gate(script, key=KEY) as provider,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
    ):
        known = Provider(name="fake", base_url=provider.base_url, key=KEY, apis=frozenset(Api))
        prices = Prices({"fake/gpt-5": GPT_5}, "test")
        options = {"retry": IMPATIENT, "spending": store.spending, **gateway}
        async with Gateway(Providers([known]), prices, **options) as made:
            yield Setup(made, provider, http)


def spent_usd(store) -> float:
    return store.spending.total(Scope("run", RUN)).cost_usd


@pytest.mark.parametrize("streamed", [False, True])
async def test_eight_attempts_call_at_once_under_two_dollars(store, streamed):
    async with gated(store) as setup:
        accesses = [setup.access(usd=2) for _ in range(8)]
        calls = [setup.asking(each, stream=streamed) for each in accesses]
        await until(lambda: setup.provider.at_work == 8)
        setup.provider.opened.set()
        assert await asyncio.gather(*calls) == [200] * 8
        assert not any(each.exhausted for each in accesses)


@pytest.mark.parametrize("scope", [Scope("run", RUN), DAY])
async def test_a_call_waits_longer_than_for_a_provider_and_is_no_spent_budget(store, scope):
    async with gated(store) as setup:
        first, second = (setup.access(scope=scope, usd=ONE_CALL) for _ in range(2))
        calls = [setup.asking(first)]
        await until(lambda: setup.provider.at_work == 1)
        calls.append(setup.asking(second))
        await until(lambda: second.standstill.seconds > 2 * IMPATIENT.silent_within_s)
        setup.provider.opened.set()
        assert await asyncio.gather(*calls) == [200, 200]
        assert (first.exhausted, second.exhausted, setup.provider.most_at_work) == ("", "", 1)
        await setup.gateway.end(second)
        (call,) = second.calls
        assert call.waited_s >= call.budget_wait_s > 2 * IMPATIENT.silent_within_s
        assert second.sums().budget_wait_s == call.budget_wait_s
        assert first.standstill.seconds == 0


async def test_a_judge_waits_for_what_agents_hold_of_the_day(store):
    async with gated(store) as setup:
        agent = setup.access(scope=DAY, usd=ONE_CALL)
        judge = setup.access(scope=DAY, usd=ONE_CALL)
        judge.purse = Scope("judge", RUN)
        calls = [setup.asking(agent)]
        await until(lambda: setup.provider.at_work == 1)
        calls.append(setup.asking(judge))
        await until(lambda: judge.standstill.seconds)
        setup.provider.opened.set()
        assert await asyncio.gather(*calls) == [200, 200]


async def test_money_that_is_spent_ends_the_attempt(store):
    script = lambda _: Turn(text="hi", usage=Usage(completion_tokens=2000))  # noqa: E731
    async with gated(store, script) as setup:
        setup.provider.opened.set()
        access = setup.access(usd=0.05)
        assert [await setup.ask(access) for _ in range(3)] == [200, 200, 400]
        assert "the run's budget of $0.05 does not allow another call: $0.0100 is left" in access.exhausted
        assert access.exhausted_scope == "run"


async def test_answers_are_expected_to_be_as_long_as_the_last_ones(store):
    lengths = iter([20_000, 10, 10, 10])
    script = lambda _: Turn(text="hi", usage=Usage(completion_tokens=next(lengths)))  # noqa: E731
    held = []
    async with gated(store, script) as setup:
        setup.provider.opened.set()
        access = setup.access(usd=100)
        for _ in range(4):
            setup.provider.opened.clear()
            call = setup.asking(access)
            await until(lambda: setup.provider.at_work == 1)
            held.append(store.spending.total(Scope("run", RUN)).held_tokens // 1000)
            setup.provider.opened.set()
            await call
            await setup.gateway._books.flush()
    assert held == [2, 20, 15, 11]


HOSTILE = (
    {},
    {"stream": True},
    {"n": 4},
    {"max_tokens": 1, "max_completion_tokens": 128_000},
    {"max_tokens": 1, "reasoning": {"max_tokens": 128_000}},
)


async def test_a_budget_is_overdrawn_by_one_call_of_each_attempt_and_no_more(store):
    def script(asking):
        return Turn(text="hi", usage=Usage(completion_tokens=128_000 * asking.body.get("n", 1)))

    async with gated(store, script) as setup:
        accesses = [setup.access(usd=2) for _ in range(3)]
        calls = [setup.asking(access, **more) for access in accesses for more in HOSTILE for _ in range(4)]
        await until(lambda: setup.provider.at_work >= 3)
        setup.provider.opened.set()
        statuses = await asyncio.gather(*calls)
        assert {200, 400} == set(statuses)
        for access in accesses:
            assert access.exhausted
            await setup.gateway.end(access)
        assert 2 < spent_usd(store) <= 2 + len(accesses) * LONGEST_USD


@pytest.mark.parametrize("tokens", [True, False])
async def test_an_attempt_has_one_call_that_may_use_more_than_is_held_back(store, tokens):
    limits = {"tokens": 140_000} if tokens else {"usd": 1.35}
    async with gated(store) as setup:
        access = setup.access(**limits)
        calls = [setup.asking(access) for _ in range(5)]
        await until(lambda: setup.provider.at_work == 2)
        await until(access.short.locked)
        assert setup.provider.at_work == 2, "one at its estimate, one in full, no third"
        assert access.standstill.seconds == 0, "it has its model meanwhile"
        setup.provider.opened.set()
        assert await asyncio.gather(*calls) == [200] * 5
        assert setup.provider.most_at_work == 2


async def test_a_call_of_which_nobody_knows_what_it_used_counts_as_the_most(store):
    async with gated(store) as setup:
        access = setup.access(usd=2)
        call = setup.asking(access)
        await until(lambda: setup.provider.at_work == 1)
        await setup.gateway.end(access)
        await asyncio.wait([call])
        assert store.spending.total(Scope("run", RUN)).held_nano_usd / 1e9 > 1.28
        setup.provider.opened.set()
        later = setup.access(usd=2)
        assert await setup.ask(later, max_tokens=100_000) == 200, "its estimate fits"


async def test_those_who_wait_are_served_in_the_order_in_which_they_came(store):
    order = []

    def script(asking):
        order.append(asking.last)
        return Turn(text="hi", usage=USED)

    async with gated(store, script) as setup:
        calls = []
        for name in "abcdef":
            access = setup.access(usd=ONE_CALL)
            calls.append(setup.asking(access, name))
            await until(lambda access=access: setup.provider.at_work and (access.calls or access.working))
            if name != "a":
                await until(lambda access=access: access.standstill.seconds)
        setup.provider.opened.set()
        assert await asyncio.gather(*calls) == [200] * 6
    assert order == list("abcdef")


@pytest.mark.parametrize("how", ["the agent leaves", "the attempt ends"])
async def test_a_call_that_waits_goes_away_with_its_attempt(store, how):
    async with gated(store) as setup:
        first, gone, last = (setup.access(usd=ONE_CALL) for _ in range(3))
        calls = [setup.asking(first)]
        await until(lambda: setup.provider.at_work == 1)
        waiting = setup.asking(gone)
        await until(lambda: gone.standstill.seconds)
        calls.append(setup.asking(last))
        await until(lambda: last.standstill.seconds)
        if how == "the agent leaves":
            waiting.cancel()
        else:
            await setup.gateway.end(gone)
        await asyncio.wait([waiting])
        await until(lambda: not gone.working)
        assert not gone.short.locked()
        setup.provider.opened.set()
        assert await asyncio.gather(*calls) == [200, 200]
        assert len(setup.provider.sales) == 2
        assert not any(line.locked() for line in setup.gateway._books._lines.values())


async def test_an_agent_that_gives_up_after_a_long_wait_is_not_to_blame(store, monkeypatch):
    monkeypatch.setattr("proctor.gateway.exchange._LONG_WAIT_S", 0.0)
    async with gated(store) as setup:
        first, second = (setup.access(usd=ONE_CALL) for _ in range(2))
        call = setup.asking(first)
        await until(lambda: setup.provider.at_work == 1)
        waiting = setup.asking(second)
        await until(lambda: second.standstill.seconds)
        waiting.cancel()
        await until(lambda: second.calls)
        assert second.failure
        assert "for a budget" in second.failure.message
        setup.provider.opened.set()
        assert await call == 200


async def test_a_call_that_was_given_up_while_it_was_decided_about_exhausts_nobody(store, monkeypatch):
    spending = store.spending
    apply, deciding, decide = spending.apply, threading.Event(), threading.Event()

    def slowly(operations, held):
        answers = apply(operations, held)
        deciding.set()
        assert decide.wait(30)
        return answers

    monkeypatch.setattr(spending, "apply", slowly)
    async with gated(store, spending=spending) as setup:
        setup.provider.opened.set()
        gone, second = (setup.access(usd=ONE_CALL) for _ in range(2))
        leaving = setup.asking(gone)
        await until(deciding.is_set)
        staying = setup.asking(second)
        await until(lambda: len(setup.gateway._books._ledger._queue) == 1)
        leaving.cancel()
        await until(lambda: not gone.working)
        decide.set()
        assert await staying == 200
        assert not second.exhausted


async def test_whatever_waits_for_whatever_all_calls_come_to_an_end(store):
    chance = random.Random(28)
    async with gated(store) as setup:
        setup.provider.opened.set()
        run, day = Scope("run", RUN), DAY
        accesses = []
        for number in range(12):
            access = setup.access(scope=run, usd=0.05)
            own = Budget(scope=Scope("attempt", f"{RUN}/{number}/1"), usd=0.04)
            access.budgets = (own, *access.budgets, Budget(scope=day, tokens=9_000))
            accesses.append(access)
        sizes = ({}, {"max_tokens": 50}, {"max_tokens": 3000}, {"stream": True})
        calls = [setup.asking(each, **chance.choice(sizes)) for each in accesses for _ in range(6)]
        leaving = chance.sample(calls, 10)
        await until(lambda: setup.provider.sales)
        for call in leaving:
            call.cancel()
        async with asyncio.timeout(60):
            done, _ = await asyncio.wait(calls)
        assert {call.result() for call in done if not call.cancelled()} == {200}
        await until(lambda: not any(access.working for access in accesses))
        await setup.gateway._books.flush()
        assert not setup.gateway._books._open


async def test_a_call_waits_for_what_another_gateway_of_the_store_holds(store):
    patient = Retry(first_s=0.01, longest_s=0.02)
    async with gated(store, retry=patient) as one, gated(store, retry=patient) as other:
        first, second = one.access(usd=ONE_CALL), other.access(usd=ONE_CALL)
        calls = [one.asking(first)]
        await until(lambda: one.provider.at_work == 1)
        calls.append(other.asking(second))
        await until(lambda: second.standstill.seconds > 1)
        other.provider.opened.set()
        assert not other.provider.sales
        one.provider.opened.set()
        assert await asyncio.gather(*calls) == [200, 200]
        assert not second.exhausted
