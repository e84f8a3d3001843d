"""What installed agents tell becomes a trajectory; what they need is looked for before they begin."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from proctor.agents.base import AgentContext, AgentTimeout, Allowance, BudgetExhausted, ModelAccess
from proctor.agents.installed.aider import Aider
from proctor.agents.installed.base import INSTRUCTION, Lines, Steps
from proctor.agents.installed.claude_code import ClaudeCode
from proctor.agents.installed.codex import Codex
from proctor.agents.installed.folders import Installed, place_of
from proctor.agents.installed.gemini_cli import GeminiCli
from proctor.agents.installed.mini_swe_agent import MiniSweAgent
from proctor.agents.installed.opencode import OpenCode
from proctor.agents.installed.openhands import OpenHands
from proctor.agents.installed.qwen_code import QwenCode
from proctor.agents.trajectory import Trajectory
from proctor.errors import UsageError
from proctor.model.task import Task
from proctor.sandbox.base import ExecResult

pytestmark = pytest.mark.anyio
TASK = Task(name="t", path=Path(), digest="d")
ALL = [Aider, ClaudeCode, Codex, GeminiCli, MiniSweAgent, OpenCode, OpenHands, QwenCode]
CLAUDE = [
    {"type": "system", "subtype": "init"},
    {"type": "assistant", "message": {
        "id": "m1", "content": [{"type": "text", "text": "I look."}],
        "usage": {"input_tokens": 5, "output_tokens": 1}}},
    {"type": "assistant", "message": {
        "id": "m1",
        "content": [{"type": "tool_use", "id": "c1", "name": "shell", "input": {"command": "ls"}}],
        "usage": {"input_tokens": 5, "output_tokens": 1}}},
    {"type": "user", "message": {
        "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "a.txt"}]}},
    {"type": "assistant", "message": {"id": "m2", "content": [{"type": "text", "text": "Done."}],
        "usage": {"input_tokens": 7, "cache_read_input_tokens": 3, "output_tokens": 1}}},
    {"type": "result", "usage": {"input_tokens": 12, "cache_read_input_tokens": 3, "output_tokens": 20}},
]  # fmt: skip
CODEX = [
    {"type": "item.completed", "item": {"id": "1", "type": "agent_message", "text": "I look."}},
    {"type": "item.completed", "item": {
        "id": "c1", "type": "command_execution", "command": "ls",
        "aggregated_output": "a.txt", "exit_code": 0}},
    {"type": "item.completed", "item": {"id": "3", "type": "agent_message", "text": "Done."}},
    {"type": "turn.completed", "usage": {"input_tokens": 15, "cached_input_tokens": 3, "output_tokens": 20}},
]  # fmt: skip
GEMINI = [
    {"type": "message", "role": "user", "content": "Do it."},
    {"type": "message", "role": "assistant", "content": "I ", "delta": True},
    {"type": "message", "role": "assistant", "content": "look.", "delta": True},
    {"type": "tool_use", "tool_id": "c1", "tool_name": "shell", "parameters": {"command": "ls"}},
    {"type": "tool_result", "tool_id": "c1", "output": "a.txt"},
    {"type": "message", "role": "assistant", "content": "Done.", "delta": True},
    {"type": "result", "stats": {"input_tokens": 15, "output_tokens": 20, "cached": 3}},
]
OPENCODE = [
    {"type": "step_start", "part": {}},
    {"type": "text", "part": {"text": "I look."}},
    {"type": "tool_use", "part": {
        "callID": "c1", "tool": "shell", "state": {"input": {"command": "ls"}, "output": "a.txt"}}},
    {"type": "step_finish", "part": {"tokens": {"input": 5, "output": 10, "cache": {"read": 0}}}},
    {"type": "step_start", "part": {}},
    {"type": "text", "part": {"text": "Done."}},
    {"type": "step_finish", "part": {"tokens": {"input": 7, "output": 10, "cache": {"read": 3}}}},
]  # fmt: skip


class Machine:
    """A sandbox that ends every command with the same words."""

    def __init__(
        self, output: bytes = b"", exit_code: int = 0, *, ends: bool = True, left: bytes = b""
    ) -> None:
        self.output, self.exit_code, self.ends, self.left = output, exit_code, ends, left
        self.commands: list[list[str]] = []
        self.inputs: list[bytes | None] = []
        self.env: dict[str, str] = {}

    async def exec(self, argv, *, env=None, on_output=None, stdin=None, **options):
        self.commands.append(argv)
        self.inputs.append(stdin)
        self.env = env or self.env
        if on_output:
            for at in range(0, len(self.output), 7):
                on_output("stdout", self.output[at : at + 7])
        return ExecResult(exit_code=self.exit_code, stdout=self.output, timed_out=not self.ends)

    async def download(self, source, target, *, max_bytes):
        if not self.left:
            raise FileNotFoundError(source)
        target.write_bytes(self.left)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("PROCTOR_HOME", str(tmp_path))


def context_for(**options) -> AgentContext:
    url = "http://127.0.0.1:9"
    access = ModelAccess(model="m", base_urls={"openai": f"{url}/v1"}, token="t", env={"OPENAI_API_KEY": "t"})
    trajectory = Trajectory(session_id="s", agent="a", version="1", model="m", clock=lambda: 0.0)
    return AgentContext(
        instruction="-x: do it.",
        workdir="/app",
        access=access,
        trajectory=trajectory,
        log=lambda name, data: None,
        **options,
    )


def put(tmp_path: Path, agent, loader: str = "") -> None:
    """As if it were installed."""
    about = Installed(name=agent.name, version=agent.version, size_bytes=1, loader=loader)
    place = place_of(tmp_path / "cache", agent.name, agent.version)
    place.mkdir(parents=True)
    (place / "agent.json").write_text(
        json.dumps({name: getattr(about, name) for name in ("name", "version", "size_bytes", "loader")})
    )


@pytest.mark.parametrize(
    ("agent", "events", "said"),
    [
        (ClaudeCode, CLAUDE, ["I look.", "Done."]),
        (QwenCode, CLAUDE, ["I look.", "Done."]),
        (Codex, CODEX, ["I look.", "", "Done."]),
        (GeminiCli, GEMINI, ["I look.", "Done."]),
        (OpenCode, OPENCODE, ["I look.", "Done."]),
    ],
)
async def test_what_an_agent_tells_becomes_steps_with_calls_results_and_usage(agent, events, said):
    lines = "".join(f"{json.dumps(each)}\n" for each in events)
    machine, context = Machine(f"Warning: old\n{lines}[1, 2]\nnull\n".encode()), context_for()
    result = await agent().run(TASK, machine, "fake/m", context)
    document = context.trajectory.to_mapping()
    assert [step["message"] for step in document["steps"]] == said
    (called,) = (step for step in document["steps"] if "tool_calls" in step)
    assert called["tool_calls"][0]["arguments"] == {"command": "ls"}
    assert called["observation"]["results"][0]["source_call_id"] == "c1"
    assert "a.txt" in called["observation"]["results"][0]["content"]
    final = document["final_metrics"]
    assert (final["total_prompt_tokens"], final["total_completion_tokens"]) == (15, 20)
    assert final["total_cached_tokens"] == 3
    assert result.usage == {"steps": len(said), "tool_calls": 1}


def test_the_file_of_mini_swe_agent_becomes_steps():
    context = context_for()
    steps = Steps(context.trajectory)
    call = {"id": "c1", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
    usage = {"prompt_tokens": 15, "completion_tokens": 20}
    messages = [
        {"role": "user", "content": "Do it."},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [call],
            "extra": {"response": {"usage": usage}},
        },
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "a.txt"}]},
    ]
    MiniSweAgent().read({"messages": messages}, steps)
    steps.end()
    (step,) = context.trajectory.steps
    assert (step["message"], step["metrics"]) == ("I look.", usage)
    assert step["tool_calls"][0]["arguments"] == {"command": "ls"}
    assert step["observation"]["results"] == [{"source_call_id": "c1", "content": "a.txt"}]


async def test_the_events_of_openhands_become_steps():
    def event(kind, **more):
        return {"kind": kind, "source": "agent" if kind != "ObservationEvent" else "environment", **more}

    def call(number, answer, thought=()):
        tool_call = {"arguments": '{"command": "ls"}'}
        named = {"tool_call_id": f"c{number}", "tool_name": "terminal", "tool_call": tool_call}
        return event("ActionEvent", llm_response_id=answer, thought=list(thought), **named)

    text = [{"type": "text", "text": "I look."}]
    seen = {"content": [{"type": "text", "text": "a.txt"}]}
    events = [
        {**event("MessageEvent", llm_message={"content": [{"text": "Do it."}]}), "source": "user"},
        call(1, "r1", text),
        call(2, "r1"),
        event("ObservationEvent", tool_call_id="c1", observation=seen),
        event("AgentErrorEvent", tool_call_id="c2", error="no such tool"),
        event("MessageEvent", llm_message={"content": [{"text": "Done."}]}),
    ]
    lines = "".join(f"{json.dumps(each)}\n" for each in events)
    context = context_for()
    await OpenHands().run(TASK, Machine(f"Agent is working\n{lines}".encode()), "fake/m", context)
    first, last = context.trajectory.steps
    assert (first["message"], last["message"]) == ("I look.", "Done.")
    assert [each["tool_call_id"] for each in first["tool_calls"]] == ["c1", "c2"]
    assert [each["content"] for each in first["observation"]["results"]] == ["a.txt", "no such tool"]


@pytest.mark.parametrize("agent", ALL)
async def test_every_agent_is_given_the_instruction_the_model_and_no_key_on_its_command_line(agent):
    machine, context = Machine(), context_for()
    made = agent(args=["--more"], env={"OWN": "1"})
    await made.run(TASK, machine, "fake/some/model", context)
    argv = machine.commands[0]
    assert any(word.endswith("-x: do it.") and word != "-x: do it." for word in argv) or "--" in argv
    assert any("some/model" in word for word in (*argv, *machine.env.values()))
    assert "t" not in argv
    assert (argv[-1], machine.env["OWN"], machine.env["OPENAI_API_KEY"]) == ("--more", "1", "t")
    assert made.folder in " ".join(argv)
    assert machine.commands[-1][:2] == ["rm", "-rf"]


async def test_output_beyond_the_limit_ends_the_attempt():
    context = context_for(limits=Allowance(output_bytes=10))
    with pytest.raises(BudgetExhausted, match="more than 10 bytes"):
        await Codex().run(TASK, Machine(b"x" * 100), "m", context)


async def test_an_exit_code_is_noted():
    result = await Codex().run(TASK, Machine(exit_code=3), "m", context_for())
    assert (result.exit_code, result.notes) == (3, ("codex ended with exit code 3",))
    result = await Codex().run(TASK, Machine(b"first\nno room\n", exit_code=3), "m", context_for())
    assert result.notes == ("codex ended with exit code 3: no room",)


async def test_an_event_of_another_version_is_only_logged():
    context = context_for()
    lines = Lines(Codex(), Steps(context.trajectory))
    heard = lines.output(context)
    heard(
        "stdout", b'{"type": "item.completed", "item": {"kind": "new"}}\n{"type": "turn.completed"}\n{"half'
    )
    lines.end()
    assert context.trajectory.steps == []


async def test_an_agent_that_is_not_installed_says_how_to_install_it():
    machine = Machine()
    assert await Codex().missing(TASK, machine, "m", context_for()) == (
        f"agent codex {Codex.version} is not installed on this machine: run 'proctor agents install codex'"
    )
    other = await Codex(version="0.1.0").missing(TASK, machine, "m", context_for())
    assert other.endswith("run 'proctor agents install codex --version 0.1.0'")
    assert (machine.commands, Codex().binds()) == ([], {})


async def test_an_image_without_the_c_library_is_told_before_the_agent_begins(tmp_path):
    put(tmp_path, ClaudeCode, "/lib64/ld-linux-x86-64.so.2")
    agent = ClaudeCode()
    problem = await agent.missing(TASK, Machine(exit_code=125), "m", context_for())
    assert "needs the C library of '/lib64/ld-linux-x86-64.so.2', which the image does not have" in problem
    problem = await agent.missing(TASK, Machine(b"libfoo.so: not found", 127), "m", context_for())
    assert problem == "agent claude-code cannot start in the sandbox (exit code 127): libfoo.so: not found"
    machine = Machine()
    for _ in range(2):
        assert await agent.missing(TASK, machine, "m", context_for()) == ""
    assert len(machine.commands) == 1
    assert agent.binds() == {
        "/opt/proctor/agents/claude-code": place_of(tmp_path / "cache", "claude-code", agent.version)
    }


def test_the_version_is_part_of_the_agent_and_must_be_one():
    assert (Codex().version, Codex(version="0.1.0").version) == (Codex.version, "0.1.0")
    with pytest.raises(UsageError, match="'latest' is not a version"):
        Codex(version="latest")


async def test_a_line_without_an_end_is_passed_over_and_the_next_is_read():
    context = context_for()
    steps = Steps(context.trajectory)
    heard = Lines(Codex(), steps).output(context)
    for _ in range(10):
        heard("stdout", b"x" * (1 << 20))
    heard("stdout", b"the end of it\n" + json.dumps(CODEX[0]).encode() + b"\n")
    steps.end()
    assert steps.count == 1


@pytest.mark.parametrize(
    ("agent", "machine", "said"),
    [
        (Codex, {"output": "".join(f"{json.dumps(each)}\n" for each in CODEX[:2]).encode()}, ["I look.", ""]),
        (Aider, {"output": b"I edit."}, ["I edit."]),
        (
            MiniSweAgent,
            {"left": json.dumps({"messages": [{"role": "assistant", "content": "I look."}]}).encode()},
            ["I look."],
        ),
    ],
)
async def test_an_agent_that_ran_out_of_time_has_told_what_it_did(agent, machine, said):
    context = context_for()
    with pytest.raises(AgentTimeout):
        await agent().run(TASK, Machine(**machine, ends=False), "fake/m", context)
    assert [step["message"] for step in context.trajectory.steps] == said


@pytest.mark.parametrize("agent", ALL)
async def test_an_instruction_of_any_length_is_given_on_the_standard_input(agent):
    machine = Machine()
    context = replace(context_for(), instruction="word " * 40_000)
    await agent().run(TASK, machine, "fake/m", context)
    assert machine.inputs[0] == context.instruction.encode()
    assert max(map(len, machine.commands[0])) < 10_000
    reads = any(INSTRUCTION in word for word in machine.commands[0][4:])
    assert reads == (agent in {Aider, MiniSweAgent, OpenHands})
