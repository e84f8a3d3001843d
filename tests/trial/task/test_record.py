"""An agent's own usage stays; the trajectory fills gaps."""

from __future__ import annotations

import math

from proctor.agents.trajectory import Trajectory
from proctor.trial.task.record import added, usage_of


def trajectory() -> Trajectory:
    made = Trajectory(session_id="s", agent="a", version="1")
    made.add("agent", "x", tool_calls=[{}, {}], metrics={"prompt_tokens": 7, "cost_usd": 0.5})
    return made


def test_what_an_agent_reports_is_not_replaced_by_its_trajectory():
    reported = {
        "prompt_tokens": 900,
        "completion_tokens": 30,
        "cost_usd": 1.25,
        "tool_calls": 4,
        "requests": 2,
    }
    assert usage_of(reported, trajectory()) == reported
    assert usage_of({"prompt_tokens": 0}, trajectory())["prompt_tokens"] == 0


def test_the_trajectory_fills_what_the_agent_does_not_report():
    assert usage_of({"prompt_tokens": 900}, trajectory()) == {
        "prompt_tokens": 900,
        "completion_tokens": 0,
        "cost_usd": 0.5,
        "tool_calls": 2,
    }


def test_legs_add_up_and_nonsense_is_noted():
    notes: list[str] = []
    first = added({}, {"steps": 2, "cost_usd": 0.5, "prompt_tokens": None}, notes)
    both = added(first, {"steps": 3, "cost_usd": math.nan, "requests": "many", "flag": True}, notes)
    assert both == {"steps": 5, "cost_usd": 0.5}
    assert len(notes) == 3
    assert "usage['requests'] = 'many'" in notes[1]
