"""Trajectories of every version are read, whoever wrote them."""

from __future__ import annotations

import json

import pytest

from proctor.agents import atif
from proctor.agents.terminal.beginning import remembered
from proctor.agents.trajectory import Trajectory

CALL = {"tool_call_id": "c1", "function_name": "bash", "arguments": {"command": "ls"}}


def read(*steps, **more):
    document = {"schema_version": "ATIF-v1.8", "agent": {"name": "a", "version": "1"}, "steps": [*steps]}
    return atif.read(json.dumps({**document, **more}).encode())


@pytest.mark.parametrize("minor", range(9))
def test_versions_1_0_to_1_8_are_read(minor):
    step = {"step_id": 1, "source": "agent", "message": "hi", "tool_calls": [CALL], "of_tomorrow": 1}
    found = read(step, schema_version=f"ATIF-v1.{minor}", session_id="s")
    assert found.version == f"ATIF-v1.{minor}"
    assert found.steps == (
        atif.Step(source="agent", message="hi", calls=(("c1", "bash", {"command": "ls"}),)),
    )
    assert found.document["steps"][0]["of_tomorrow"] == 1


def test_what_we_write_is_read():
    trajectory = Trajectory(session_id="s", agent="a", version="1", clock=lambda: 0.0)
    trajectory.add("user", "Do it.")
    trajectory.add("agent", "", tool_calls=[CALL], results=[("c1", "file")], metrics={"prompt_tokens": 5})
    found = atif.read(trajectory.to_json())
    assert [step.source for step in found.steps] == ["user", "agent"]
    assert found.steps[1].results == ("file",)
    assert found.total("prompt_tokens") == 5
    assert found.tool_calls == 1


def test_parts_of_a_message_become_text_and_media_are_named():
    parts = [
        {"type": "text", "text": "look"},
        {"type": "image", "source": {"media_type": "image/png", "path": "a.png"}},
        {"type": "audio", "source": {"media_type": "audio/wav", "path": "b.wav"}},
    ]
    found = read({"source": "user", "message": parts}, {"source": "agent", "message": None})
    assert [step.message for step in found.steps] == ["look\n[image: a.png]\n[audio: b.wav]", ""]


def test_copied_steps_are_remembered_but_not_counted(tmp_path):
    step = {"source": "agent", "message": "one", "tool_calls": [CALL], "metrics": {"prompt_tokens": 3}}
    found = read({**step, "is_copied_context": True}, step)
    assert len(found.steps) == 2
    assert found.tool_calls == 1
    assert found.total("prompt_tokens") == 3
    assert found.total("cost_usd") is None
    (tmp_path / "t.json").write_text(json.dumps(found.document))
    assert len(remembered(tmp_path / "t.json")) == 2


def test_sub_agents_follow_the_step_that_called_them(tmp_path):
    called = {
        "source_call_id": "c1",
        "content": "done",
        "subagent_trajectory_ref": [{"trajectory_id": "sub"}],
    }
    inner = {
        "trajectory_id": "sub",
        "steps": [{"source": "agent", "message": "inside", "tool_calls": [CALL]}],
    }
    outer = {"source": "agent", "message": "out", "tool_calls": [CALL], "observation": {"results": [called]}}
    found = read(outer, {"source": "agent", "message": "end"}, subagent_trajectories=[inner])
    assert [(step.message, step.depth) for step in found.steps] == [("out", 0), ("inside", 1), ("end", 0)]
    assert found.tool_calls == 2
    (tmp_path / "t.json").write_text(json.dumps(found.document))
    said = [message["content"] for message in remembered(tmp_path / "t.json")]
    assert "inside" not in said


def test_stated_totals_win_over_the_sum_of_the_steps():
    step = {"source": "agent", "message": "", "metrics": {"completion_tokens": 3, "cost_usd": 0.5}}
    found = read(step, step, final_metrics={"total_completion_tokens": 10, "total_cost_usd": None})
    assert found.total("completion_tokens") == 10
    assert found.total("cost_usd") == 1.0


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"{", "not valid JSON"),
        (b"[]", "no list 'steps'"),
        (b'{"steps": [{"source": "nobody"}]}', "source"),
        (b'{"steps": [1]}', "not an ATIF"),
        (b'{"steps": [], "schema_version": "ATIF-v2.0"}', "1.0 to 1.8"),
        (b"[" * 100_000, "not valid JSON"),
    ],
)
def test_what_is_no_trajectory_says_why(data, says):
    with pytest.raises(atif.NotATIF, match=says):
        atif.read(data)


def test_people_read_commands_and_what_came_of_them():
    other = {"tool_call_id": "2", "function_name": "edit", "arguments": {"path": "a", "text": "b"}}
    step = {"source": "agent", "message": "hm", "reasoning_content": "think", "tool_calls": [CALL, other]}
    text = "".join(atif.text_of(read({**step, "observation": {"results": [{"content": "a.txt\n"}]}})))
    assert text == '── 1 agent\n(think)\nhm\n$ ls\n$ edit {"path": "a", "text": "b"}\na.txt\n\n'
