"""Each option of the `command` agent has its effect."""

from __future__ import annotations

import pytest

from proctor.agents.base import AgentContext, AgentFailed
from proctor.agents.command import Command
from proctor.agents.trajectory import Trajectory
from proctor.model.task import Task
from proctor.sandbox.base import Root, SandboxRequest
from proctor.sandbox.fake import Fake, FakeCommand, FakeResult

pytestmark = pytest.mark.anyio


def context() -> AgentContext:
    trajectory = Trajectory(session_id="s", agent="command", version="1")
    return AgentContext(instruction="x", workdir="/", trajectory=trajectory, log=lambda *_: None)


def task(tmp_path) -> Task:
    return Task(name="t", path=tmp_path, digest="d", instruction="x")


async def test_its_variables_reach_the_command(tmp_path):
    seen: list[FakeCommand] = []

    def handler(command: FakeCommand) -> FakeResult:
        seen.append(command)
        return FakeResult()

    sandbox = Fake(handler=handler).sandbox(SandboxRequest(name="s", root=Root()))
    await sandbox.start()
    await Command(command="work", env={"HOUSE": "blue"}).run(task(tmp_path), sandbox, None, context())
    assert seen[-1].env["HOUSE"] == "blue"


async def test_an_install_step_that_takes_too_long_ends_the_agent(tmp_path):
    slow = Fake(handler=lambda command: FakeResult(takes_s=5.0 if "fetch" in str(command.argv) else 0.0))
    sandbox = slow.sandbox(SandboxRequest(name="s", root=Root()))
    await sandbox.start()
    patient = Command(command="work", install="fetch", install_timeout_s=10)
    await patient.run(task(tmp_path), sandbox, None, context())
    with pytest.raises(AgentFailed, match="the install step"):
        await Command(command="work", install="fetch", install_timeout_s=1).run(
            task(tmp_path), sandbox, None, context()
        )


async def test_a_program_is_looked_for_once_for_sandboxes_that_start_alike(tmp_path):
    looks = 0

    def handler(command: FakeCommand) -> FakeResult:
        nonlocal looks
        looks += "command -v" in str(command.argv)
        return FakeResult()

    sandbox = Fake(handler=handler).sandbox(SandboxRequest(name="s", root=Root()))
    await sandbox.start()
    agent = Command(command="work")
    for _ in range(3):
        assert await agent.missing(task(tmp_path), sandbox, None, context()) == ""
    assert looks == 1
    assert await Command(command="work", install="x").missing(task(tmp_path), sandbox, None, context()) == ""
    assert looks == 1
