"""Harbor's agents beside our sandbox: what they are given, what they may reach, and how they end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.harbor_stand_in import install_stand_in

from proctor.agents.base import (
    AgentContext,
    AgentFailed,
    AgentUnavailable,
    Allowance,
    BudgetExhausted,
    ModelAccess,
)
from proctor.agents.harbor.agent import Terminus2, named
from proctor.agents.registry import describe, find_class, find_installable, make_agent, package_of
from proctor.agents.trajectory import Trajectory
from proctor.errors import HostError, SandboxError, UsageError
from proctor.model.task import McpServer, Task
from proctor.sandbox.base import Root, SandboxRequest
from proctor.sandbox.fake import Fake, FakeCommand, FakeResult, FakeSandbox

pytestmark = pytest.mark.anyio
TASK = Task(name="t", path=Path(), digest="d")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PROCTOR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-person")
    return tmp_path / "home/cache"


@pytest.fixture
def harbor(cache: Path) -> Path:
    install_stand_in(cache)
    return cache


def handle(command: FakeCommand) -> FakeResult:
    """A machine with bash and tmux on which every command says how it was called."""
    if "tmux -V" in " ".join(command.argv):
        return FakeResult(stdout=b"tmux 3.3a\n")
    if command.argv[0] == "bash" and "echo" in command.argv[-1]:
        return FakeResult(
            stdout=json.dumps([command.argv, command.cwd, command.user, dict(command.env)]).encode()
        )
    if "sleep" in command.argv[-1]:
        return FakeResult(takes_s=30)
    if "loud" in command.argv[-1]:
        return FakeResult(stdout=b"x" * 5000)
    if "long" in command.argv[-1] or command.stdin:
        return FakeResult(stdout=f"{len(command.stdin or b'')}".encode())
    return FakeResult()


class Attempt:
    """A sandbox and a context, and what was logged."""

    def __init__(self, handler=handle, **options) -> None:
        self.sandbox: FakeSandbox = Fake(handler).sandbox(SandboxRequest(name="s", root=Root()))
        self.sandbox.running = True
        self.logs: dict[str, bytes] = {}
        self.trajectory = Trajectory(session_id="s", agent="a", version="1")
        self.context = AgentContext(
            instruction="Do it.",
            workdir="/app",
            env={"TASK": "yes"},
            user="worker",
            trajectory=self.trajectory,
            log=self.log,
            access=ModelAccess(
                model="fake/m",
                base_urls={"openai": "http://127.0.0.1:1/v1"},
                token="the-token",
                env={"OPENAI_API_KEY": "the-token"},
            ),
            mcp_servers=(McpServer(name="tools", transport="sse", url="http://tools"),),
            **options,
        )

    def log(self, name: str, data: bytes) -> None:
        self.logs[name] = self.logs.get(name, b"") + data

    async def run(self, does: str = "solve", name: str = "terminus-2", **options):
        agent = make_agent(name, {"does": does, **options})
        agent._own_options = lambda _: {}
        return await agent.run(TASK, self.sandbox, "fake/m", self.context)


async def test_its_commands_run_in_our_sandbox_and_its_steps_are_ours(harbor):
    attempt = Attempt()
    result = await attempt.run()
    code, out, _ = json.loads(attempt.sandbox.files["/tmp/found.json"])
    argv, cwd, user, env = json.loads(out)
    assert code == 0
    assert argv[:2] == ["bash", "-c"]
    assert argv[2].endswith("\necho hello > /app/hello.txt")
    assert (cwd, user, env["TASK"], env["A"]) == ("/app", "worker", "yes", "1")
    assert result.usage == {"steps": 1, "tool_calls": 1}
    (step,) = attempt.trajectory.steps
    assert step["timestamp"] == "2020-01-01T00:00:00+00:00"
    assert step["observation"]["results"] == [{"source_call_id": "c", "content": "a"}]
    assert attempt.trajectory.total("prompt_tokens") == 5
    assert attempt.logs["agent.txt"] == out.encode()


async def test_its_process_has_the_attempts_token_and_no_variable_of_this_machine(harbor, monkeypatch):
    monkeypatch.setenv("SOME_SECRET", "x")
    attempt = Attempt()
    await attempt.run()
    seen = attempt.logs["harbor.txt"].decode()
    assert "'OPENAI_API_KEY'" in seen
    assert "SOME_SECRET" not in seen
    inside = Attempt()
    await inside.run(name="harbor:claude-code")
    assert "OPENAI_API_KEY" not in inside.logs["harbor.txt"].decode()


@pytest.mark.parametrize("name", ["terminus-2", "harbor:claude-code"])
async def test_variables_of_a_spec_reach_its_commands_and_not_its_process(harbor, name):
    attempt = Attempt()
    await attempt.run(name=name, env={"GREETING": "hello"})
    _, out, _ = json.loads(attempt.sandbox.files["/tmp/found.json"])
    env = json.loads(out)[3]
    assert (env["GREETING"], env["TASK"]) == ("hello", "yes")
    assert "GREETING" not in attempt.logs["harbor.txt"].decode()


@pytest.mark.parametrize(
    ("does", "error", "words"),
    [
        ("fail to set up", AgentUnavailable, "could not be set up: RuntimeError: no compiler"),
        ("raise", AgentFailed, "terminus-2: LookupError: lost its way"),
        ("die", HostError, "the process that runs Harbor was killed by signal 9"),
        ("die while setting up", HostError, "was killed by signal 9"),
        ("$ sleep", AgentFailed, "Command timed out after 5 seconds"),
        ("$ loud", BudgetExhausted, "more than 1000 bytes of output"),
        ("steal", AgentFailed, "/tmp/stolen is outside the folder of this attempt"),
    ],
)
async def test_how_it_ends_is_told_by_what_went_wrong(harbor, does, error, words):
    def quick(command: FakeCommand) -> FakeResult:
        found = handle(command)
        return FakeResult(stdout=found.stdout, takes_s=30 if found.takes_s else 0)

    attempt = Attempt(quick, limits=Allowance(output_bytes=1000))
    attempt.sandbox.files["/etc/passwd"] = b"root"
    real = attempt.sandbox.exec

    async def exec_soon(argv, *, timeout_s=None, **options):
        return await real(argv, timeout_s=timeout_s and timeout_s / 100, **options)

    attempt.sandbox.exec = exec_soon
    with pytest.raises(error, match=words):
        await attempt.run(does)
    assert not Path("/tmp/stolen").exists()


async def test_a_sandbox_that_fails_is_not_told_as_the_agents_failure(harbor):
    attempt = Attempt()

    def stop(command: FakeCommand) -> FakeResult:
        if command.argv[0] == "bash":
            attempt.sandbox.running = False
        return handle(command)

    attempt.sandbox._backend.handler = stop
    with pytest.raises(SandboxError, match="is not running"):
        await attempt.run()


async def test_setting_up_that_does_not_end_is_ended_before_the_agent_begins(harbor):
    attempt = Attempt()
    agent = Terminus2(setup_timeout_s=0.5, does="set up for ever")
    agent._own_options = lambda _: {}
    with pytest.raises(AgentUnavailable, match=r"was not set up within 0\.5 s"):
        await agent.run(TASK, attempt.sandbox, "fake/m", attempt.context)


async def test_a_long_command_goes_by_its_input(harbor):
    attempt = Attempt()
    await attempt.run("$ " + "long " * 30_000)
    (given,) = [each for each in attempt.sandbox.commands if each.argv == ("bash", "-s")]
    assert len(given.stdin or b"") > 150_000


async def test_wrong_options_are_found_before_the_agent_begins(harbor):
    attempt = Attempt()
    agent = make_agent("harbor:claude-code", {"nonsense": 1})
    with pytest.raises(AgentUnavailable, match="unknown options"):
        await agent.run(TASK, attempt.sandbox, "fake/m", attempt.context)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (FakeResult(exit_code=121), "needs bash in the sandbox"),
        (FakeResult(exit_code=122), "install tmux on this machine, or use an image that has it"),
        (FakeResult(stdout=b"tmux 3.1c\n"), "needs tmux 3.2 or later"),
        (FakeResult(stdout=b"tmux next-3.6\n"), ""),
    ],
)
async def test_what_the_sandbox_lacks_is_said_before_the_agent_begins(harbor, result, words):
    attempt = Attempt(lambda _: result)
    agent = Terminus2()
    found = await agent.missing(TASK, attempt.sandbox, "fake/m", attempt.context)
    assert words in found
    assert bool(found) == bool(words)
    again = await agent.missing(TASK, attempt.sandbox, "fake/m", attempt.context)
    assert again == found


async def test_a_harbor_that_is_not_installed_is_missing(cache):
    attempt = Attempt()
    agent = Terminus2()
    assert "run 'proctor agents install harbor'" in await agent.missing(
        TASK, attempt.sandbox, "fake/m", attempt.context
    )
    with pytest.raises(AgentUnavailable, match="proctor agents install harbor"):
        await attempt.run()
    other = await Terminus2(version="0.23.0").missing(TASK, attempt.sandbox, "fake/m", attempt.context)
    assert "--version 0.23.0" in other


async def test_a_python_that_is_gone_is_missing(harbor):
    (harbor / "agents/harbor/0.24.0/bin/python").unlink()
    attempt = Attempt()
    found = await Terminus2().missing(TASK, attempt.sandbox, "fake/m", attempt.context)
    assert "the Python that Harbor was installed with is gone" in found
    with pytest.raises(HostError, match="cannot be started"):
        await attempt.run()


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("harbor:terminus-3", {}, "Harbor 0.24.0 has no agent 'terminus-3'; did you mean 'terminus-2'?"),
        ("harbor:oracle", {}, "Proctor's own agent 'oracle' does the same"),
        ("terminus-2", {"api": "soap"}, "api is one of chat"),
        ("terminus-2", {"api_base": "http://x"}, "'api_base' is set by Proctor"),
        ("terminus-2", {"setup_timeout_s": "long"}, "must be a number"),
    ],
)
def test_a_wrong_name_or_option_is_refused(harbor, name, options, words):
    with pytest.raises(UsageError, match=words.replace("?", r"\?")):
        make_agent(name, options)


def test_what_an_agent_says_of_itself(cache):
    two = Terminus2()
    assert (two.name, two.inside, two.apis, two._model("fake/org/m")) == (
        "terminus-2",
        False,
        ("chat",),
        "openai/org/m",
    )
    code = named("harbor:claude-code")()
    assert (code.inside, code.apis, code._model("anthropic/c")) == (True, ("messages",), "anthropic/c")
    assert named("harbor:nop")().needs_model is False
    assert Terminus2(api="messages").apis == ("messages",)
    assert find_class("harbor:codex").apis == ("responses",)


def test_one_package_serves_all_of_them(harbor):
    assert {package_of(find_installable(name)) for name in ("harbor", "terminus-2", "harbor:codex")} == {
        "harbor"
    }
    about = describe("terminus-2", "built in", {"chat"})
    assert [each.version for each in about.installed] == ["0.24.0"]
    assert about.needs[0] == "a Python from 3.12 to 3.14 on this machine"
