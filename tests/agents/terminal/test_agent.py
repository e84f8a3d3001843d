"""The loop: a scripted model, a real shell in a real sandbox."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest
from tests.gateway.conftest import until

from proctor.agents.base import Allowance, BudgetExhausted, ModelAccess
from proctor.agents.chat import Chat
from proctor.agents.terminal.agent import Terminal
from proctor.agents.terminal.protocol import BUSY, CONFIRM, CUT_OFF, IDLE, NOTHING
from proctor.agents.trajectory import Trajectory
from proctor.errors import UsageError
from proctor.gateway.app import Gateway
from proctor.gateway.provider.script import Fault, Tool, Turn, commands, following
from proctor.gateway.provider.server import FakeProvider
from proctor.gateway.providers import Provider, Providers
from proctor.model.task import Task

pytestmark = [pytest.mark.anyio, pytest.mark.needs("bubblewrap")]
TASK = Task(name="t", path=Path(), digest="d")


def turns(*given):
    """A model that says these in order: a text, or a tool and its arguments; the last one again and again."""

    def reply(asking):
        said = given[min(asking.turn, len(given) - 1)]
        return (
            Turn(text=said) if isinstance(said, str) else Turn(tools=(Tool(name=said[0], arguments=said[1]),))
        )

    return reply


@pytest.fixture
def attempt(sandbox, context):
    """Run the agent against a script: its result, its trajectory, and what the model was asked."""

    async def run(script, agent=None, *, model="m", faults=(), **options):
        async with FakeProvider(script, faults=list(faults)) as provider:
            known = Provider(name="fake", base_url=provider.base_url)
            async with Gateway(Providers([known]), records=False) as gateway:
                access = gateway.issue(run_id="r", trial=0, attempt=1, models=("fake/m",))
                given = context(access=ModelAccess(model="m", ask=partial(gateway.ask, access)), **options)
                try:
                    result = await (agent or Terminal()).run(TASK, sandbox, model, given)
                except BudgetExhausted as error:
                    result = error
        return result, given.trajectory.to_mapping(), provider.requests

    return run


def seen(document) -> list[str]:
    return [each["content"] for step in document["steps"] for each in step["observation"]["results"]]


async def test_it_runs_the_models_commands_and_ends_when_the_model_confirms(attempt):
    result, document, requests = await attempt(commands("cd /tmp; echo a", "pwd"))
    assert (result.status, result.usage["steps"]) == ("finished", 4)
    assert [step["source"] for step in document["steps"]] == ["agent"] * 4
    assert document["steps"][0]["tool_calls"][0]["arguments"] == {"command": "cd /tmp; echo a"}
    assert seen(document) == ["a\n[exit code 0]", "/tmp\n[exit code 0]", CONFIRM, "finished"]
    assert all(step["metrics"]["prompt_tokens"] > 0 for step in document["steps"])
    assert document["final_metrics"]["total_prompt_tokens"] > 0
    assert requests[1]["messages"][-1] == {
        "role": "tool",
        "tool_call_id": requests[1]["messages"][-2]["tool_calls"][0]["id"],
        "content": "a\n[exit code 0]",
    }


async def test_a_model_without_tools_answers_in_fenced_blocks(attempt):
    script = turns("Look:\n```sh\necho a\n```", "```sh\na\n```\n```sh\nb\n```", "DONE", "Done.")
    result, document, requests = await attempt(script)
    assert result.status == "finished"
    assert seen(document)[0] == "a\n[exit code 0]"
    assert "several fenced blocks" in seen(document)[1]
    assert requests[1]["messages"][-1] == {"role": "user", "content": "a\n[exit code 0]"}


async def test_a_model_that_was_asked_to_confirm_may_go_on(attempt):
    result, document, _ = await attempt(
        turns(("finish", {}), ("shell", {"command": "echo more"}), ("finish", {}))
    )
    assert seen(document) == [CONFIRM, "more\n[exit code 0]", "finished"]
    assert result.usage["steps"] == 3


async def test_a_command_that_does_not_end_is_told_and_can_be_interrupted(attempt):
    script = turns(
        ("shell", {"command": "sleep 300", "timeout_s": 0.2}),
        ("shell", {"command": "echo too early"}),
        ("wait", {"seconds": 0.1}),
        ("keys", {"keys": "<C-c>", "seconds": 60}),
        ("wait", {}),
        ("finish", {}),
    )
    _, document, _ = await attempt(script)
    told = seen(document)
    assert "still at work after 0.2 s: wait, send keys, or interrupt" in told[0]
    assert told[1] == BUSY
    assert "still at work after 0.1 s" in told[2]
    assert told[3].endswith("[exit code 130]")
    assert told[4] == IDLE


async def test_a_model_that_sends_no_command_is_told_how_and_gives_up_after_three(attempt):
    result, document, requests = await attempt(turns("I think."))
    assert (result.status, result.usage["steps"]) == ("gave_up", 3)
    assert requests[1]["messages"][-1]["content"] == NOTHING
    assert seen(document) == [NOTHING] * 3


async def test_a_call_that_cannot_be_read_is_told(attempt):
    script = turns(
        ("dance", {}), ("shell", {"cmd": "ls"}), ("keys", {}), ("shell", {"command": "echo a"}), "DONE"
    )
    _, document, _ = await attempt(script)
    assert "no such tool" in seen(document)[0]
    assert "it needs a text 'command'" in seen(document)[1]
    assert seen(document)[2:3] != ["a\n[exit code 0]"]


async def test_steps_are_limited_and_a_last_step_that_says_done_is_done(attempt):
    script = following(lambda request, turn: "true")
    result, _, _ = await attempt(script, limits=Allowance(steps=3))
    assert "all of its 3 steps" in str(result)
    result, _, _ = await attempt(
        turns(("shell", {"command": "true"}), ("finish", {})), limits=Allowance(steps=2)
    )
    assert result.status == "finished"


async def test_a_conversation_that_grows_is_shortened_and_the_trajectory_says_so(attempt):
    script = commands(*["seq 1 3000"] * 8)
    result, document, requests = await attempt(script, Terminal(context_tokens=12_000))
    assert result.status == "finished"
    notes = [step["message"] for step in document["steps"] if step["source"] == "system"]
    assert "older outputs were shortened" in notes[0]
    assert max(len(json.dumps(each["messages"])) for each in requests) < 12_000 * 3 * 1.1
    assert "left out later" in json.dumps(requests[-1]["messages"], ensure_ascii=False)


async def test_a_service_that_finds_the_conversation_too_long_is_asked_again_with_less(attempt):
    faults = [Fault(status=0, times=4), Fault(status=400, message="maximum context length is 9000 tokens")]
    script = commands(*["seq 1 2500"] * 4)
    result, document, _ = await attempt(script, faults=faults)
    assert result.status == "finished"
    assert any("found the conversation too long" in step["message"] for step in document["steps"])


async def test_without_a_model_or_an_endpoint_it_says_what_to_set(attempt, sandbox, context):
    with pytest.raises(UsageError, match="needs a model"):
        await attempt(commands(), model=None)
    with pytest.raises(UsageError, match="needs a provider of models"):
        await Terminal().run(TASK, sandbox, "m", context())
    with pytest.raises(UsageError, match="at least 2000"):
        Terminal(context_tokens=10)


async def test_the_system_text_and_the_time_limit_of_a_request_are_options(attempt, monkeypatch):
    waits = []

    class Heard(Chat):
        def __init__(self, *args, timeout_s, **named):
            waits.append(timeout_s)
            super().__init__(*args, timeout_s=timeout_s, **named)

    monkeypatch.setattr("proctor.agents.terminal.agent.Chat", Heard)
    agent = Terminal(system="Work in {workdir}, at most {steps} times.", request_timeout_s=7)
    _, _, requests = await attempt(commands("true"), agent)
    assert waits == [7]
    assert requests[0]["messages"][0]["content"] == "Work in /, at most 100 times."


async def test_an_agent_that_is_ended_keeps_the_step_that_was_under_way(attempt, logged):
    trajectory = Trajectory(session_id="s", agent="terminal", version="1")
    working = asyncio.create_task(attempt(commands("echo a", "sleep 100"), trajectory=trajectory))
    await until(lambda: b"$ sleep 100" in logged)
    working.cancel()
    await asyncio.wait({working})
    document = trajectory.to_mapping()
    assert [step["tool_calls"][0]["arguments"]["command"] for step in document["steps"]] == [
        "echo a",
        "sleep 100",
    ]
    assert seen(document) == ["a\n[exit code 0]", CUT_OFF]
