"""Whatever a provider answers in place of an answer: an attempt whose model never answered is not scored.

The agents of other makers are tried with PROCTOR_SOAK=1, each with each answer; the first run installs them.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.integration import test_harbor_agents, test_installed_agents
from tests.integration.test_models import INSIDE, KEY, make_task, records
from tests.providers import serving

from proctor.cli.main import main
from proctor.gateway.provider.script import Fault, Turn, commands
from proctor.gateway.provider.server import FakeProvider
from proctor.model.record import AttemptRecord

pytestmark = [pytest.mark.needs("bubblewrap"), pytest.mark.timeout(600)]
MANY = 10_000
ANSWERS: Mapping[str, Fault] = {
    **{str(status): Fault(status=status, times=MANY) for status in (400, 401, 402, 403, 429, 500)},
    "hangs": Fault(first_byte_s=3600, times=MANY),
    "closes": Fault(cut_after=0, times=MANY),
}
OWN = """
from proctor.agents.base import AgentResult
from proctor.agents.chat import Chat


class Own:
    name, version, apis = "own", "1", ("chat",)

    async def run(self, task, sandbox, model, context):
        await Chat(context.access.ask).ask(model, [{"role": "user", "content": context.instruction}])
        return AgentResult()
"""
LIMIT_S = 2
SOAK = pytest.mark.skipif(not os.environ.get("PROCTOR_SOAK"), reason="a soak: set PROCTOR_SOAK=1")
CLI_AGENTS = ("terminus-2", *test_installed_agents.AGENTS, *test_installed_agents.MORE)
SOAK_LIMIT_S = 25
SILENT = ("aider", "openhands")
"""They tell nothing while they work."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PROCTOR_MODEL_API_KEY", KEY)
    make_task(tmp_path / "task")
    (tmp_path / "own_agent.py").write_text(OWN)
    return tmp_path


def inside() -> dict[str, object]:
    code = base64.b64encode(INSIDE.encode()).decode()
    line = f"echo {code} | base64 -d > /tmp/a.py; python3 /tmp/a.py $instruction $model once"
    return {"agent": "command", "agent_options": {"command": line}}


def spec(*entries: dict[str, object], **more: object) -> str:
    tasks = [{"path": "task", "model": "some", **entry} for entry in entries]
    data = {
        "name": "m",
        "sandbox": {"host_root": True},
        "retries": {"provider": 0, "infrastructure": 0},
        "parallel": 3,
        "tasks": tasks,
        **more,
    }
    Path("spec.json").write_text(json.dumps(data))
    return "spec.json"


def run_with(
    monkeypatch: pytest.MonkeyPatch, faults: Sequence[Fault], *entries: dict[str, object], **more: object
) -> tuple[int, FakeProvider, list[AttemptRecord]]:
    provider = FakeProvider(commands("echo hello > answer.txt"), key=KEY, faults=faults)
    with serving(provider):
        monkeypatch.setenv("PROCTOR_MODEL_BASE_URL", provider.base_url)
        code = main(["run", spec(*entries, **more)])
    return code, provider, records()


@pytest.mark.parametrize("answer", ANSWERS)
def test_no_agent_is_scored_whose_model_never_answered(project, monkeypatch, answer):
    agents = ({"agent": "terminal"}, inside(), {"agent": "own_agent:Own"})
    code, _, attempts = run_with(monkeypatch, [ANSWERS[answer]], *agents, timeout_s=LIMIT_S)
    assert (code, len(attempts)) == (4, 3)
    for record in attempts:
        assert (record.outcome, record.reward) == ("provider_error", None)
        what = {"hangs": "had not answered", "closes": "local"}.get(answer, answer)
        assert what in record.failure.message


def test_a_request_that_the_service_refuses_is_quoted_and_not_sent_again_and_again(project, monkeypatch):
    refuses = Fault(status=400, message="'tools' is not supported by this model", times=MANY)
    _, provider, (record,) = run_with(
        monkeypatch, [refuses], {"agent": "terminal"}, retries={"provider": 2, "backoff_s": 0}
    )
    assert record.failure.message.endswith("answered 400: 'tools' is not supported by this model")
    assert len(provider.sales) == 1


def test_one_answer_is_enough_to_be_scored(project, monkeypatch):
    faults = [Fault(), Fault(status=400, message="a request that the agent spoiled", times=MANY)]
    code, _, (record,) = run_with(monkeypatch, faults, {"agent": "terminal"})
    assert (code, record.outcome, record.reward) == (0, "agent_error", 1.0)


@pytest.mark.parametrize("after", [0, 1])
def test_a_conversation_that_is_too_long_has_a_name(project, monkeypatch, after):
    long = Fault(status=400, message="This model's maximum context length is 8192 tokens", times=MANY)
    _, _, (record,) = run_with(monkeypatch, [*[Fault()] * after, long], {"agent": "terminal"})
    assert record.failure.type == "context_length"
    assert "maximum context length is 8192" in record.failure.message
    expected = [("invalid", None), ("agent_error", 1.0)]
    assert (record.outcome, record.reward) == expected[after]


@pytest.mark.parametrize("status", [401, 402, 403])
def test_a_refusal_that_lasts_ends_the_calls_of_a_run_and_a_resumed_run_asks_again(
    project, monkeypatch, capsys, status
):
    refuses = [Fault(status=status, message="no", times=1)]
    provider = FakeProvider(commands("echo hello > answer.txt"), key=KEY, faults=refuses)
    with serving(provider):
        monkeypatch.setenv("PROCTOR_MODEL_BASE_URL", provider.base_url)
        assert main(["run", spec({"agent": "terminal", "rollouts": 12}, parallel=1, retries={})]) == 4
        attempts = records()
        assert [each.outcome for each in attempts] == ["provider_error"] * 12
        assert len(provider.sales) == 1
        assert "proctor resume" in attempts[-1].failure.message
        assert main(["resume", "latest", "--errors"]) == 0
    assert sum(each.outcome == "passed" for each in records()) == 12


def test_an_agent_that_asks_by_an_api_that_its_provider_has_not_is_its_authors_mistake(project, monkeypatch):
    ask = "import os, urllib.request as u; u.urlopen(u.Request(os.environ['OPENAI_BASE_URL'] + '/responses', "
    ask += 'b\'{"model": "some", "input": "x"}\', {\'x-api-key\': os.environ[\'OPENAI_API_KEY\']}))'
    code, provider, (record,) = run_with(
        monkeypatch, [], {"agent": "command", "agent_options": {"command": f"python3 -c {shlex.quote(ask)}"}}
    )
    assert (code, record.outcome, record.reward) == (1, "invalid", None)
    assert "is reached by chat, and this is responses" in record.failure.message
    assert provider.sales == []


@pytest.mark.parametrize(("end", "why"), [("exit 126", "could not be started"), ("kill -5 $$$$", "memory")])
def test_a_program_that_dies_before_it_asks_its_model_is_its_authors_mistake(project, monkeypatch, end, why):
    dies = {"agent": "command", "agent_options": {"command": f"sh -c '{end}'"}}
    code, _, (record,) = run_with(monkeypatch, [], dies)
    assert (code, record.outcome, record.reward) == (1, "invalid", None)
    assert why in record.failure.message


def test_a_failing_install_step_is_its_authors_mistake(project, monkeypatch):
    options = {"install": "echo no such mirror >&2; exit 7", "command": "true"}
    code, _, (record,) = run_with(monkeypatch, [], {"agent": "command", "agent_options": options})
    assert (code, record.outcome, record.reward) == (1, "invalid", None)
    assert "the install step ended with exit code 7: no such mirror" in record.failure.message


def test_an_instruction_of_any_length_reaches_a_command_by_its_file(project, monkeypatch):
    (project / "task/instruction.md").write_text("x" * 300_000 + " hello")
    command = "tail -c 5 $instruction_file > answer.txt"
    code, _, (record,) = run_with(
        monkeypatch, [], {"agent": "command", "model": None, "agent_options": {"command": command}}
    )
    assert (code, record.outcome) == (0, "passed")


def test_an_instruction_that_is_too_long_for_an_argument_starts_nothing(project, monkeypatch, capsys):
    (project / "task/instruction.md").write_text("x" * 300_000)
    provider = FakeProvider(commands(), key=KEY)
    with serving(provider):
        monkeypatch.setenv("PROCTOR_MODEL_BASE_URL", provider.base_url)
        assert main(["run", spec(inside())]) == 2
    assert "use $instruction_file in place of $instruction" in capsys.readouterr().err


# Agents of other makers


@pytest.fixture
def soak(request: pytest.FixtureRequest) -> Path:
    """A project with an agent, installed for all tests of this machine."""
    agent = request.node.callspec.params["agent"]
    module = test_harbor_agents if agent == "terminus-2" else test_installed_agents
    made: Path = module.project.__wrapped__(
        *(request.getfixturevalue(name) for name in ("tmp_path", "monkeypatch", "pytestconfig"))
    )
    if agent != "terminus-2":
        test_installed_agents.installed(agent, made)
    return made


def soak_spec(agent: str, provider: FakeProvider, timeout_s: float) -> str:
    api = {**test_installed_agents.AGENTS, **test_installed_agents.MORE}.get(agent, "chat")
    table = f'base_url = "{provider.base_url}"\nkey_env = "FAKE_KEY"\napis = ["{api}"]\n'
    Path("proctor.toml").write_text(f"[providers.fake]\n{table}")
    data = {
        "name": "m",
        "sandbox": {"host_root": True, "network": "none", "memory_bytes": 3 << 30},
        "timeout_s": timeout_s,
        "retries": {"provider": 0, "infrastructure": 0},
        "tasks": [{"path": "task", "agent": agent, "model": "fake/some-model"}],
    }
    Path("spec.json").write_text(json.dumps(data))
    return "spec.json"


@SOAK
@pytest.mark.needs("registries")
@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("agent", CLI_AGENTS)
def test_no_agent_of_another_maker_is_scored_whose_model_never_answered(soak, agent, answer):
    make_task(soak / "a/task")
    os.chdir(soak / "a")
    provider = FakeProvider(lambda _: Turn(text="Done."), faults=[ANSWERS[answer]])
    with serving(provider):
        assert main(["run", soak_spec(agent, provider, SOAK_LIMIT_S)]) in {1, 4}
    (record,) = records()
    assert (record.outcome.scored, record.reward) == (False, None)
    assert record.outcome in {"provider_error", "invalid"}
    if answer in {"401", "402", "403"}:
        assert len(provider.sales) == 1


@SOAK
@pytest.mark.needs("registries")
@pytest.mark.parametrize("agent", CLI_AGENTS[1:])
def test_an_instruction_of_any_length_reaches_an_agent_of_another_maker(soak, agent):
    make_task(soak / "a/task")
    os.chdir(soak / "a")
    end = "so-ends-the-instruction"
    Path("task/instruction.md").write_text("Answer. " + "word " * 40_000 + end)
    shells = test_installed_agents.SHELLS

    def reply(asking) -> Turn:
        tools = test_installed_agents.tools_of(asking.body)
        shell = next((name for name in shells if name in tools), None)
        if shell and end not in json.dumps(asking.body):
            return test_installed_agents.call(
                shell, tools[shell], "tail -c 60 /var/tmp/proctor-agent/instruction.md"
            )
        submit = test_installed_agents.SUBMIT
        if shell and submit in json.dumps(asking.body):
            return test_installed_agents.call(shell, tools[shell], submit)
        return Turn(text="Done.")

    provider = FakeProvider(reply)
    with serving(provider):
        main(["run", soak_spec(agent, provider, 120)])
    (record,) = records()
    assert record.outcome.scored
    assert end in json.dumps(provider.requests)


@SOAK
@pytest.mark.needs("registries")
@pytest.mark.parametrize("agent", [name for name in CLI_AGENTS if name not in SILENT])
def test_an_agent_of_another_maker_that_ran_out_of_time_keeps_its_trajectory(soak, agent):
    make_task(soak / "a/task")
    os.chdir(soak / "a")

    def reply(asking) -> Turn:
        line = "tail -f /dev/null" if asking.turn else "echo a"
        if agent == "terminus-2":
            return test_harbor_agents.terminus(line)
        tools = test_installed_agents.tools_of(asking.body)
        shell = next((name for name in test_installed_agents.SHELLS if name in tools), None)
        return test_installed_agents.call(shell, tools[shell], line) if shell else Turn(text="Done.")

    provider = FakeProvider(reply)
    with serving(provider):
        main(["run", soak_spec(agent, provider, SOAK_LIMIT_S)])
    (record,) = records()
    assert record.outcome == "agent_timeout"
    (trajectory,) = Path(os.environ["PROCTOR_ROLLOUTS_DIR"]).rglob("trajectory.json")
    document = json.loads(trajectory.read_text())
    assert [step for step in document["steps"] if step.get("tool_calls")]
