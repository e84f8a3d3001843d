"""One episode between two lines: who is asked what, and which answers are actions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proctor.agents.trajectory import Trajectory
from proctor.model.task import EpisodeSpec, Task
from proctor.trial.episode.line import Gone
from proctor.trial.episode.play import AgentRaised, EnvironmentBroken, Play, wrong_action

pytestmark = pytest.mark.anyio


class Script:
    """A line that answers as it was told to."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []

    async def ask(self, question: dict[str, Any]) -> Any:
        self.asked.append(question)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def playing(agent: Script, environment: Script, steps: int = 3) -> Play:
    task = Task(
        name="vault",
        path=Path("vault"),
        digest="",
        kind="episode",
        description="Open it.",
        episode=EpisodeSpec(id="vault", steps=steps, tool_calls=2),
    )
    trajectory = Trajectory(session_id="", agent="", version="")
    lines: Any = (agent, environment)
    return Play(task, *lines, {"say": ["code"]}, {"files_seen": []}, trajectory, {"MODEL": "m"})


SAY = {"action": {"type": "say", "args": {"code": 1}}}
GOES_ON = {"result": {"ok": True}, "visible_state": {"files_seen": ["/a"]}, "verdict": {"ok": False}}
FOUND = {**GOES_ON, "verdict": {"ok": True, "message": "open"}}


async def test_the_agent_is_told_the_task_once_and_what_happened_each_time():
    agent, environment = Script({}, SAY, SAY), Script(GOES_ON, FOUND)
    play = playing(agent, environment)
    ending = await play.run()
    assert (ending.failure, ending.reason, ending.message) == (None, "success", "open")
    reset, first, second = agent.asked
    assert reset["env"] == {"MODEL": "m"}
    assert reset["task"]["budgets"] == {"steps": 3, "tool_calls": 2}
    assert reset["task"]["actions"] == {"say": ["code"]}
    assert first["observation"]["last_action"] is None
    assert second["observation"] == {
        "step": 2,
        "task": {"id": "vault", "description": "Open it."},
        "last_action": SAY["action"],
        "last_action_result": {"ok": True},
        "visible_state": {"files_seen": ["/a"]},
        "budget_remaining": {"steps": 2, "tool_calls": 1},
    }
    assert environment.asked[0] == {"call": "act", "type": "say", "args": {"code": 1}}
    assert (play.steps, play.tool_calls, play.trajectory.tool_calls) == (2, 2, 2)


async def test_an_action_beyond_the_budget_is_not_executed():
    agent, environment = Script({}, SAY, SAY, SAY), Script(GOES_ON, GOES_ON)
    play = playing(agent, environment)
    ending = await play.run()
    assert (ending.failure, ending.reason) == ("budget_exhausted", "tool_calls_exhausted")
    assert (play.steps, play.tool_calls, play.trajectory.tool_calls) == (3, 2, 2)
    ending = await playing(Script({}, SAY), Script(GOES_ON), steps=1).run()
    assert ending.reason == "steps_exhausted"


@pytest.mark.parametrize(
    ("verdict", "failure", "message"),
    [
        ({"terminal": True}, "logic_failure", "logic_failure"),
        ({"terminal": True, "message": "gone"}, "logic_failure", "gone"),
        ({"terminal": True, "failure_reason": "why", "message": "gone"}, "logic_failure", "why"),
        ({"terminal": True, "failure_type": "sandbox_violation"}, "sandbox_violation", "logic_failure"),
        ({"terminal": True, "failure_type": "invented"}, "logic_failure", "logic_failure"),
    ],
)
async def test_a_validator_may_end_the_episode_and_say_why(
    verdict: dict[str, Any], failure: str, message: str
):
    ending = await playing(Script({}, SAY), Script({**GOES_ON, "verdict": verdict})).run()
    assert (ending.failure, ending.reason, ending.message) == (failure, "logic_failure", message)


@pytest.mark.parametrize(
    ("answer", "failure", "reason"),
    [
        ({"violation": "not there"}, "sandbox_violation", "sandbox_violation"),
        ({"raised": {"type": "KeyError", "message": "x"}}, "invalid_action", "action_exception"),
    ],
)
async def test_an_action_that_breaks_a_rule_or_raises_ends_it(
    answer: dict[str, Any], failure: str, reason: str
):
    play = playing(Script({}, SAY), Script(answer))
    ending = await play.run()
    assert (ending.failure, ending.reason, play.tool_calls) == (failure, reason, 0)


async def test_who_gives_no_answer_is_told_apart():
    with pytest.raises(AgentRaised, match="no answer: it died"):
        await playing(Script(Gone("it died")), Script()).run()
    with pytest.raises(AgentRaised, match="Traceback of the agent"):
        await playing(Script({"error": {"traceback": "Traceback of the agent"}}), Script()).run()
    with pytest.raises(AgentRaised, match="only text"):
        await playing(Script({"error": "only text"}), Script()).run()
    with pytest.raises(EnvironmentBroken, match="broke at the action"):
        await playing(Script({}, SAY), Script(Gone("it died"))).run()
    broken = {"result": 1, "broken": {"type": "KeyError", "message": "x"}}
    with pytest.raises(EnvironmentBroken, match="the validator broke: KeyError: x"):
        await playing(Script({}, SAY), Script(broken)).run()


@pytest.mark.parametrize(
    ("action", "problem"),
    [
        ({"type": "say", "args": {"code": [1]}}, ""),
        (None, "action_must_be_dict"),
        ([], "action_must_be_dict"),
        ({}, "invalid_action_type"),
        ({"type": ["say"]}, "invalid_action_type"),
        ({"type": "__class__"}, "unknown_action"),
        ({"type": "say", "args": "code"}, "args_must_be_dict"),
        ({"type": "say"}, "missing_arg"),
    ],
)
def test_only_an_action_of_the_task_with_all_arguments_is_one(action: Any, problem: str):
    assert wrong_action(action, {"say": ["code"]}) == problem
