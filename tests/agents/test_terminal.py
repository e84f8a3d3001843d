from __future__ import annotations

import json
from pathlib import Path

import pytest

from proctor.agents.base import AgentContext, AgentFailed, Allowance, BudgetExhausted, ModelAccess
from proctor.agents.chat import Chat, Reply
from proctor.agents.command import variables
from proctor.agents.terminal import Terminal, observations, offered, remembered, wanted
from proctor.agents.trajectory import Trajectory, cut
from proctor.errors import TaskError, UsageError
from proctor.gateway.provider.script import commands, following
from proctor.gateway.provider.server import FakeProvider
from proctor.model.task import McpServer, Task
from proctor.sandbox.base import ExecResult

pytestmark = pytest.mark.anyio
TASK = Task(name="t", path=Path(), digest="d")


class EchoSandbox:
    """Answers every command with what it was."""

    def __init__(self) -> None:
        self.scripts: list[str] = []

    async def exec(self, argv, *, on_output=None, **options):
        self.scripts.append(argv[-1])
        output = f"ran {argv[-1]}\n".encode()
        on_output("stdout", output)
        return ExecResult(exit_code=0, stdout=output)


def context_for(provider: FakeProvider, **options) -> AgentContext:
    trajectory = Trajectory(session_id="s", agent="terminal", version="1", model="m", clock=lambda: 0.0)
    return AgentContext(
        instruction="Do it.",
        workdir="/app",
        access=ModelAccess(model="m", base_urls={"openai": provider.base_url}, token="secret-token"),
        trajectory=trajectory,
        log=lambda name, data: None,
        **options,
    )


async def test_it_runs_the_models_commands_and_ends_when_the_model_does():
    sandbox = EchoSandbox()
    async with FakeProvider(commands("echo a", "echo b")) as provider:
        context = context_for(provider)
        result = await Terminal().run(TASK, sandbox, "m", context)
    assert sandbox.scripts == ["echo a", "echo b"]
    assert result.usage["steps"] == 3
    document = context.trajectory.to_mapping()
    assert [step["source"] for step in document["steps"]] == ["agent"] * 3
    assert document["steps"][0]["tool_calls"][0]["arguments"] == {"command": "echo a"}
    assert "ran echo a" in document["steps"][0]["observation"]["results"][0]["content"]
    assert document["final_metrics"]["total_prompt_tokens"] > 0
    assert "ran echo a" in json.dumps(provider.requests[1]["messages"])


async def test_steps_and_output_are_limited():
    async with FakeProvider(following(lambda request, turn: "true")) as provider:
        with pytest.raises(BudgetExhausted, match="all of its 3 steps"):
            await Terminal().run(TASK, EchoSandbox(), "m", context_for(provider, limits=Allowance(steps=3)))
        with pytest.raises(BudgetExhausted, match="bytes of output"):
            await Terminal().run(
                TASK, EchoSandbox(), "m", context_for(provider, limits=Allowance(output_bytes=3))
            )


async def test_without_a_model_or_an_endpoint_it_says_what_to_set():
    async with FakeProvider(commands()) as provider:
        with pytest.raises(UsageError, match="needs a model"):
            await Terminal().run(TASK, EchoSandbox(), None, context_for(provider))
    provider.base_url = ""
    with pytest.raises(UsageError, match="needs a provider of models"):
        await Terminal().run(TASK, EchoSandbox(), "m", context_for(provider))


def test_a_fenced_block_is_a_command_and_two_are_a_failure():
    reply = Reply(text="Look:\n```sh\nls\n```", message={})
    assert json.loads(wanted(reply)[0].arguments)["command"] == "ls\n"
    assert observations(reply, [("fenced", "out")]) == [{"role": "user", "content": "out"}]
    with pytest.raises(AgentFailed, match="several"):
        wanted(Reply(text="```sh\na\n```\n```sh\nb\n```", message={}))


def test_a_long_output_keeps_its_beginning_and_its_end():
    text = cut("a" * 20_000 + "end", 16_000)
    assert text.startswith("aaa")
    assert text.endswith("end")
    assert "left out" in text


async def test_the_system_text_and_the_time_limit_of_a_request_are_options(monkeypatch):
    waits = []

    class Heard(Chat):
        def __init__(self, *args, timeout_s, **named):
            waits.append(timeout_s)
            super().__init__(*args, timeout_s=timeout_s, **named)

    monkeypatch.setattr("proctor.agents.terminal.Chat", Heard)
    async with FakeProvider(commands("true")) as provider:
        agent = Terminal(system="Work in {workdir}, at most {steps} times.", request_timeout_s=7)
        await agent.run(TASK, EchoSandbox(), "m", context_for(provider))
    assert waits == [7]
    assert provider.requests[0]["messages"][0]["content"].startswith("Work in ")


SERVERS = (
    McpServer(name="web", url="http://web:8000/sse"),
    McpServer(name="files", transport="stdio", command="serve", args=("-v", "/data")),
)


def context(**options) -> AgentContext:
    trajectory = Trajectory(session_id="s", agent="a", version="1", model=None)
    return AgentContext(
        instruction="Do it.", workdir="/app", trajectory=trajectory, log=lambda name, data: None, **options
    )


def test_nothing_is_said_of_what_a_task_does_not_offer():
    assert offered(context()) == ""
    assert variables(context()) == {}


def test_servers_and_skills_are_told_as_a_text_and_as_variables():
    full = context(mcp_servers=SERVERS, skills_dir="/skills")
    text = offered(full)
    assert "- web: sse, url: http://web:8000/sse" in text
    assert "- files: stdio, command: serve -v /data" in text
    assert "/skills" in text
    known = variables(full)
    assert known["PROCTOR_SKILLS_DIR"] == "/skills"
    assert json.loads(known["PROCTOR_MCP_SERVERS"]) == [
        {"name": "web", "transport": "sse", "url": "http://web:8000/sse"},
        {"name": "files", "transport": "stdio", "command": "serve", "args": ["-v", "/data"]},
    ]


def test_earlier_work_becomes_messages(tmp_path):
    assert remembered(None) == []
    file = tmp_path / "trajectory.json"
    steps = [
        {"source": "user", "message": "Start."},
        {
            "source": "agent",
            "message": [{"type": "text", "text": "I look."}],
            "tool_calls": [{"tool_call_id": "1", "function_name": "shell", "arguments": {"command": "ls"}}],
            "observation": {"results": [{"content": "a.txt"}]},
        },
        {"source": "agent", "message": "Done."},
    ]
    file.write_text(json.dumps({"schema_version": "ATIF-v1.4", "steps": steps}))
    assert remembered(file) == [
        {"role": "user", "content": "Start."},
        {"role": "assistant", "content": 'I look.\n[shell {"command": "ls"}]'},
        {"role": "user", "content": "a.txt"},
        {"role": "assistant", "content": "Done."},
    ]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"steps": 3}', '{"steps": [{"source": "moon"}]}', '{"steps": [1]}']
)
def test_what_is_no_trajectory_is_the_tasks_fault(tmp_path, text):
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(TaskError, match="not an ATIF trajectory"):
        remembered(tmp_path / "t.json")
