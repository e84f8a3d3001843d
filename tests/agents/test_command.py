"""Each option of the `command` agent has its effect."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proctor.agents.base import AgentContext, AgentFailed, AgentUnavailable
from proctor.agents.command import Command
from proctor.agents.trajectory import Trajectory
from proctor.model.task import AgentLimits, Step, Task, VerifierSpec
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


async def test_an_install_step_that_takes_too_long_is_its_authors_mistake(tmp_path):
    slow = Fake(handler=lambda command: FakeResult(takes_s=5.0 if "fetch" in str(command.argv) else 0.0))
    sandbox = slow.sandbox(SandboxRequest(name="s", root=Root()))
    await sandbox.start()
    patient = Command(command="work", install="fetch", install_timeout_s=10)
    await patient.run(task(tmp_path), sandbox, None, context())
    with pytest.raises(AgentUnavailable, match="the install step did not end within 1 s"):
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


async def test_an_install_step_that_an_agent_has_broken_before_is_the_agents_failure(tmp_path):
    broken = Fake(handler=lambda command: FakeResult(exit_code=int("fetch" in str(command.argv))))
    sandbox = broken.sandbox(SandboxRequest(name="s", root=Root()))
    await sandbox.start()
    common = {"instruction": "x", "agent": AgentLimits(), "verifier": VerifierSpec()}
    steps = tuple(Step(name=name, **common) for name in ("one", "two"))
    agent = Command(command="work", install="fetch")
    for step, kind in (("one", AgentUnavailable), ("two", AgentFailed)):
        with pytest.raises(kind, match="the install step ended with exit code 1"):
            await agent.run(
                replace(task(tmp_path), steps=steps), sandbox, None, replace(context(), step=step)
            )


async def test_a_program_that_the_install_step_did_not_bring_is_its_authors_mistake(tmp_path):
    empty = Fake(
        handler=lambda command: FakeResult(exit_code=127 if "command -v" in str(command.argv) else 0)
    )
    sandbox = empty.sandbox(SandboxRequest(name="s", root=Root()))
    await sandbox.start()
    with pytest.raises(AgentUnavailable, match=r"no program 'work' .* its install step has run"):
        await Command(command="work", install="fetch").run(task(tmp_path), sandbox, None, context())


async def test_a_long_instruction_is_no_argument_and_no_variable(tmp_path):
    fake = Fake()
    sandbox = fake.sandbox(SandboxRequest(name="s", root=Root()))
    await sandbox.start()
    long = replace(context(), instruction="x" * 200_000)
    agent = Command(command="work $instruction_file")
    assert await agent.missing(task(tmp_path), sandbox, None, long) == ""
    await agent.run(task(tmp_path), sandbox, None, long)
    given = sandbox.commands[-1]
    assert given.stdin == b"x" * 200_000
    assert max(map(len, (*given.argv, *given.env.values()))) < 1000
    refused = await Command(command="work $instruction").missing(task(tmp_path), sandbox, None, long)
    assert "the instruction has 200,000 bytes" in refused
