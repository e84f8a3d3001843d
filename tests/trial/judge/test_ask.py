"""Judges ask through a real gateway, by either API; what goes wrong is counted and never raised."""

from __future__ import annotations

import json

import pytest
from tests.gateway.conftest import KEY, PRICES, QUICK

from proctor.gateway.app import Gateway
from proctor.gateway.provider.script import Asking, Fault, Tool, Turn
from proctor.gateway.provider.server import FakeProvider
from proctor.gateway.providers import Provider, Providers
from proctor.model.spec import Criterion, JudgeSpec
from proctor.store.spending import Scope
from proctor.trial.judge.ask import Ballot, Seat, ask
from proctor.trial.judge.prompt import Material, prompt

pytestmark = pytest.mark.anyio
CRITERIA = (Criterion(id="a", criterion="A."),)
SCORES = {"rubrics": [{"id": "a", "score": 1, "reason": "seen"}]}
SEAT = Seat(run_id="r", trial=0, attempt=1, token="proctor-judge", purse=Scope("judge", "r/0"))


async def balloted(script, api: str = "chat", **judge: object) -> Ballot:
    async with FakeProvider(script, key=KEY) as fake:
        provider = Provider(name="fake", base_url=fake.base_url, apis=frozenset({api}), key=KEY)
        async with Gateway(Providers([provider]), PRICES, retry=QUICK) as gateway:
            question = prompt(Material(instruction="i", diff="d", tests="t", trajectory="s"), CRITERIA, 5000)
            spec = JudgeSpec(model="fake/priced", **judge)
            return await ask(gateway, spec, SEAT, question, CRITERIA)


async def test_votes_come_by_the_api_that_the_provider_speaks():
    for api in ("chat", "messages"):
        found = await balloted(lambda _: Turn(text=json.dumps(SCORES)), api)
        assert [vote.scores for vote in found.votes] == [{"a": 1.0}] * 3
        assert [call.api for call in found.calls] == [api] * 3
        assert found.tape


async def test_a_call_of_the_tool_is_an_answer_too():
    found = await balloted(
        lambda _: Turn(tools=(Tool(name="scores", arguments=SCORES),)), "messages", votes=1
    )
    assert len(found.votes) == 1


async def test_a_service_without_schemas_is_asked_without_one():
    def script(asking: Asking) -> Turn:
        if "response_format" in asking.body:
            return Turn(fault=Fault(status=400, message="no response_format here", times=99))
        return Turn(text=json.dumps(SCORES))

    assert len((await balloted(script, votes=1)).votes) == 1


async def test_a_service_that_fails_loses_votes_and_says_so():
    found = await balloted(lambda _: Turn(fault=Fault(status=401, message="who?", times=99)), votes=2)
    assert (len(found.votes), len(found.lost)) == (0, 2)
    assert "401" in found.lost[0]


async def test_a_vote_has_a_time_limit():
    slow = Fault(first_byte_s=30, times=99)
    found = await balloted(lambda _: Turn(text="x", fault=slow), votes=1, timeout_s=0.2)
    assert found.lost == ["no answer of the judge within 0.2 s"]
