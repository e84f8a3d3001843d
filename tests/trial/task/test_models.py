"""One attempt's way to its models, and what its record says about them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from msgspec import structs
from tests.gateway.conftest import KEY, PRICES, QUICK, RUN, until
from tests.gateway.test_budget_waits import Gate
from tests.store.conftest import Make

from proctor.agents.base import AgentResult, AgentUnavailable, ModelAccess
from proctor.agents.chat import Chat
from proctor.agents.command import Command
from proctor.agents.oracle import Nop
from proctor.agents.trajectory import Trajectory
from proctor.errors import LastingProviderError, ProviderError
from proctor.gateway.app import Gateway
from proctor.gateway.provider.script import Turn, commands
from proctor.gateway.provider.server import FakeProvider
from proctor.gateway.providers import Provider, Providers
from proctor.model.plan import PlannedTrial
from proctor.model.trial import Lease
from proctor.runs.models import speaks
from proctor.sandbox.base import SandboxInfo
from proctor.store.open import open_store
from proctor.store.spending import Budget, Scope
from proctor.store.store import Store
from proctor.trial.task.models import AttemptModels, ModelGateway
from proctor.trial.task.record import usage_of

pytestmark = pytest.mark.anyio
TRIAL = PlannedTrial(
    key="k", index=0, kind="task", subject="t", subject_digest="d", body=0, agent="a", model="fake/priced"
)
LEASE = Lease("run", "k", 0, "w", 1, 1, 0.0)
CHATTY = SimpleNamespace(name="chatty", version="1", apis=("chat",))


class Deaf:
    """A sandbox that offers no sockets."""

    def info(self) -> SandboxInfo:
        return SandboxInfo(backend="deaf", name="d")


def models(provider: FakeProvider, agent: object = CHATTY, **changes: object) -> AttemptModels:
    providers = Providers([Provider(name="fake", base_url=provider.base_url, key=KEY)])
    shared = ModelGateway(
        open=lambda: Gateway(providers, PRICES, retry=QUICK), speaks=lambda *who: speaks(*who, providers)
    )
    return AttemptModels(shared, TRIAL, LEASE, agent, "proctor-token", **changes)


async def asks(access: ModelAccess) -> AgentResult:
    await Chat(access.ask).ask("priced", [{"role": "user", "content": "x"}])
    return AgentResult(usage={"prompt_tokens": 7, "steps": 1})


def empty_trajectory() -> Trajectory:
    return Trajectory(session_id="", agent="", version="")


async def test_an_agent_gets_a_token_that_ends_with_its_work():
    async with FakeProvider(commands(), key=KEY) as provider:
        used = models(provider)
        seen: list[ModelAccess] = []

        async def work(access: ModelAccess) -> AgentResult:
            seen.append(access)
            return await asks(access)

        await used.run(work, Deaf(), hosted_tools=False)
        assert seen[0].token == "proctor-token"
        with pytest.raises(Exception, match="401"):
            await asks(seen[0])
        await used.shared.close()
    assert used.usage()["requests"] == 1
    assert [name for name, _ in used.tapes] == ["tape.jsonl.zst"]


async def test_what_the_agent_says_differently_is_kept_beside_what_was_counted():
    async with FakeProvider(commands(), key=KEY) as provider:
        used = models(provider)
        result = await used.run(asks, Deaf(), hosted_tools=False)
        await used.shared.close()
    found = usage_of(result.usage, empty_trajectory(), used)
    assert found["prompt_tokens"] == provider.total().prompt_tokens
    assert (found["reported"], found["steps"]) == ({"prompt_tokens": 7}, 1)


async def test_an_agent_that_wants_no_model_gets_none_and_used_none():
    async with FakeProvider(commands()) as provider:
        used = models(provider, Nop())
        seen: list[ModelAccess] = []

        async def work(access: ModelAccess) -> AgentResult:
            seen.append(access)
            return AgentResult()

        await used.run(work, Deaf(), hosted_tools=False)
    assert seen == [ModelAccess(model="fake/priced")]
    assert usage_of({}, empty_trajectory(), used)["cost_usd"] == 0


async def test_what_nobody_counted_is_not_zero():
    used = AttemptModels(
        ModelGateway(open=lambda: None, speaks=lambda *_: "no provider is ready"), TRIAL, LEASE, CHATTY, "t"
    )
    assert used.notes == ["the model is not reached by the gateway: no provider is ready"]
    assert usage_of({"steps": 1}, empty_trajectory(), used) == {"steps": 1}


async def test_an_agent_inside_a_sandbox_without_sockets_is_refused_before_it_begins():
    async with FakeProvider(commands(), key=KEY) as provider:
        used = models(provider, Command(command="true"))
        with pytest.raises(AgentUnavailable, match="nothing outside can be reached from a deaf sandbox"):
            await used.run(asks, Deaf(), hosted_tools=False)
        await used.shared.close()


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"errors": [402]}, ProviderError, "fake answered 402"),
        ({"models": ["other"]}, LastingProviderError, "fake has no model 'priced'"),
        ({"key": "another"}, ProviderError, "fake refuses the key that Proctor has for it"),
    ],
)
async def test_the_gateways_word_goes_before_the_agents(options, kind, said):
    async with FakeProvider(commands(), **{"key": KEY, **options}) as provider:
        used = models(provider)

        async def hides(access: ModelAccess) -> AgentResult:
            with pytest.raises(Exception, match="refused"):
                await asks(access)
            return AgentResult()

        with pytest.raises(kind, match=said):
            await used.run(hides, Deaf(), hosted_tools=False)
        await used.shared.close()


async def test_an_agents_time_stands_still_while_others_hold_the_budget(tmp_path):
    with open_store(str(tmp_path / "proctor.db")) as store:
        Make.run(store, RUN)
        first, second, steps = await stood_still(store)
    assert steps == ["waits", "goes on"]
    assert second.budget_wait_s > 1
    assert second.waited_s < second.budget_wait_s, "that of the provider is apart"
    assert second.usage()["budget_wait_s"] > 1
    assert "budget_wait_s" not in first.usage()
    assert any("waited" in note and "budget" in note for note in second.notes)


async def stood_still(store: Store) -> tuple[AttemptModels, AttemptModels, list[str]]:
    """Two attempts; the second had to wait for longer than its agent's time."""
    async with Gate(lambda _: Turn(text="hi"), key=KEY) as provider:
        first, second = held_by_one_call(provider, store, 2)
        steps: list[str] = []

        async def works(access: ModelAccess) -> AgentResult:
            async with second.clock.limit(0.3):
                return await asks(access)

        holding = asyncio.create_task(first.run(asks, Deaf(), hosted_tools=False))
        await until(lambda: provider.at_work == 1)
        second.clock.on_change = lambda still: steps.append("waits" if still else "goes on")
        waiting = asyncio.create_task(second.run(works, Deaf(), hosted_tools=False))
        await until(lambda: second.standstill_s() > 1)
        provider.opened.set()
        await asyncio.gather(holding, waiting)
        await first.shared.close()
    return first, second, steps


def held_by_one_call(provider: FakeProvider, store: Store, number: int) -> list[AttemptModels]:
    """Attempts that share a budget for one call at a time."""
    providers = Providers([Provider(name="fake", base_url=provider.base_url, key=KEY)])
    shared = ModelGateway(
        open=lambda: Gateway(providers, PRICES, retry=QUICK, spending=store.spending),
        speaks=lambda *who: speaks(*who, providers),
        budgets=lambda *_: (Budget(scope=Scope("run", RUN), tokens=150),),
    )
    lease = Lease(RUN, "k", 0, "w", 1, 1, 0.0)
    return [
        AttemptModels(shared, structs.replace(TRIAL, index=index), lease, CHATTY, f"proctor-{index}")
        for index in range(number)
    ]
