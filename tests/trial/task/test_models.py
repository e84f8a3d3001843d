"""One attempt's way to its models, and what its record says about them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.gateway.conftest import KEY, PRICES, QUICK

from proctor.agents.base import AgentResult, AgentUnavailable, ModelAccess
from proctor.agents.chat import Chat
from proctor.agents.command import Command
from proctor.agents.oracle import Nop
from proctor.agents.trajectory import Trajectory
from proctor.errors import LastingProviderError, ProviderError
from proctor.gateway.app import Gateway
from proctor.gateway.provider.script import commands
from proctor.gateway.provider.server import FakeProvider
from proctor.gateway.providers import Provider, Providers
from proctor.model.plan import PlannedTrial
from proctor.model.trial import Lease
from proctor.runs.models import speaks
from proctor.sandbox.base import SandboxInfo
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
