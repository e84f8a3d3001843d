"""What was recorded is done again, in order, with the pauses that were asked for."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from proctor.agents.base import AgentContext
from proctor.agents.replay import Replay, read_recorded
from proctor.agents.trajectory import Trajectory
from proctor.errors import UsageError
from proctor.model.task import Task
from proctor.sandbox.base import Root, SandboxRequest
from proctor.sandbox.fake import Fake, FakeResult

pytestmark = pytest.mark.anyio
TASK = Task(name="org/t", path=Path(), digest="d")


@pytest.fixture
def recorded(tmp_path):
    steps = [
        {"tool_calls": [{"arguments": {"command": command}} for command in commands]}
        for commands in (["echo a"], [], ["echo b", "false"])
    ]
    (tmp_path / "org__t.json").write_text(json.dumps({"steps": steps}))
    return tmp_path


async def replayed(agent):
    sandbox = Fake(lambda command: FakeResult(exit_code=1 if "false" in command.argv[-1] else 0)).sandbox(
        SandboxRequest(name="f", root=Root(host=True))
    )
    await sandbox.start()
    trajectory = Trajectory(session_id="s", agent="replay", version="1", clock=lambda: 0.0)
    context = AgentContext(instruction="", workdir="/app", trajectory=trajectory, log=lambda name, data: None)
    result = await agent.run(TASK, sandbox, None, context)
    return [command.argv[-1] for command in sandbox.commands], result, trajectory


@pytest.mark.parametrize("pause_s", [0, 0.25])
async def test_commands_come_in_order_with_a_pause_before_each(recorded, monkeypatch, pause_s):
    waits = []
    real = asyncio.sleep

    async def sleep(seconds):
        waits.append(seconds)
        await real(0)

    monkeypatch.setattr("asyncio.sleep", sleep)
    commands, result, trajectory = await replayed(Replay(trajectory=str(recorded), pause_s=pause_s))
    assert commands == ["echo a", "echo b", "false"]
    assert waits.count(0.25) == (3 if pause_s else 0)
    assert result.usage == {"steps": 3, "tool_calls": 3}
    assert trajectory.tool_calls == 3
    assert "[exit code 1]" in trajectory.steps[-1]["observation"]["results"][0]["content"]


async def test_a_recording_is_read_once(recorded):
    agent = Replay(trajectory=str(recorded))
    await replayed(agent)
    (recorded / "org__t.json").write_text("nonsense")
    assert (await replayed(agent))[0] == ["echo a", "echo b", "false"]


@pytest.mark.parametrize("pause_s", [-1, "1", True, float("nan"), 1e9])
def test_a_pause_is_a_bearable_number_of_seconds(recorded, pause_s):
    with pytest.raises(UsageError, match="pause_s"):
        Replay(trajectory=str(recorded), pause_s=pause_s)


async def test_a_recording_that_is_none_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        Replay(trajectory=str(tmp_path / "missing"))
    (tmp_path / "org__t.json").write_text('{"steps": 3}')
    with pytest.raises(UsageError, match="not an ATIF trajectory"):
        await replayed(Replay(trajectory=str(tmp_path)))
    (tmp_path / "org__t.json").rename(tmp_path / "other.json")
    with pytest.raises(UsageError, match="is missing"):
        await replayed(Replay(trajectory=str(tmp_path)))


def test_what_sub_agents_did_is_repeated_and_what_is_only_remembered_is_not(tmp_path):
    def step(command, **more):
        return {"source": "agent", "tool_calls": [{"arguments": {"command": command}}], **more}

    called = {"observation": {"results": [{"subagent_trajectory_ref": [{"trajectory_id": "s"}]}]}}
    steps = [step("old", is_copied_context=True), step("one", **called), step("three")]
    inside = {"trajectory_id": "s", "steps": [step("two")]}
    (tmp_path / "t.json").write_text(json.dumps({"steps": steps, "subagent_trajectories": [inside]}))
    assert read_recorded(tmp_path / "t.json").commands == ["one", "two", "three"]
