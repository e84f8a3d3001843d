"""Real command-line agents from the registries solve a task through the gateway, with network none.

Installed once per machine: gemini-cli (230 MB), qwen-code (270 MB) and codex (460 MB), about 20 seconds each;
with PROCTOR_SOAK=1 also the others.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.leaks import leaking_files, looking, shapes, told, watched_processes
from tests.providers import serving

from proctor.agents.installed.folders import install
from proctor.agents.registry import find_installable
from proctor.cli.main import main
from proctor.gateway.provider.script import Asking, Fault, Tool, Turn
from proctor.gateway.provider.server import FakeProvider
from proctor.model.record import AttemptRecord
from proctor.settings import load_settings
from proctor.store.open import open_store

pytestmark = [pytest.mark.needs("bubblewrap", "registries"), pytest.mark.timeout(600)]
AGENTS = {"gemini-cli": "gemini", "qwen-code": "chat", "codex": "responses"}
"""Which are tried, and by which API."""
MORE = {
    "claude-code": "messages",
    "opencode": "chat",
    "aider": "chat",
    "mini-swe-agent": "chat",
    "openhands": "chat",
}
SOAK = pytest.mark.skipif(not os.environ.get("PROCTOR_SOAK"), reason="a soak: set PROCTOR_SOAK=1")
KEY = "sk-fake-key-that-nobody-may-see-0123456789"
TASK = Path(__file__).parents[2] / "tasks/config-edit"
SHELLS = ("run_shell_command", "exec_command", "bash", "Bash", "terminal", "execute_bash")
LOOK = looking(KEY) + "\n"
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""What mini-swe-agent tells its model to end with."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> Path:
    """A project whose agents are those that all tests of this machine share."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROCTOR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FAKE_KEY", KEY)
    shared = pytestconfig.cache.mkdir("agents")
    (shared / "agents").mkdir(exist_ok=True)
    (tmp_path / "home/cache").mkdir(parents=True)
    (tmp_path / "home/cache/agents").symlink_to(shared / "agents")
    shutil.copytree(TASK, tmp_path / "task")
    test = tmp_path / "task/tests/test.sh"
    test.write_text(test.read_text().replace("\n", f"\n{LOOK}", 1))
    return tmp_path


def tools_of(body: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The tools that a request offers, whichever API it uses: name → its parameters."""
    given = [tool for each in body.get("tools") or () for tool in each.get("functionDeclarations", [each])]
    functions = [each.get("function", each) for each in given]
    schemas = ("parameters", "input_schema", "parametersJsonSchema")
    return {
        each["name"]: next((each[name] for name in schemas if name in each), {}).get("properties", {})
        for each in functions
        if "name" in each
    }


def solve(asking: Asking) -> Turn:
    """Look around for the key, then run the author's solution, with the shell that the agent has."""
    tools = tools_of(asking.body)
    shell = next((name for name in SHELLS if name in tools), None)
    if shell is None:
        return Turn(text="Done.")
    if not asking.turn:
        return call(shell, tools[shell], LOOK + (TASK / "solution/solve.sh").read_text())
    return call(shell, tools[shell], SUBMIT) if SUBMIT in json.dumps(asking.body) else Turn(text="Done.")


def call(shell: str, parameters: Mapping[str, Any], script: str) -> Turn:
    """A call of the agent's shell."""
    code = base64.b64encode(script.encode()).decode()  # agents differ in how they read quotes
    line = f"echo {code} | base64 -d | bash" if "\n" in script else script
    values = {
        "description": "solve it",
        "summary": "solve it",
        "is_background": False,
        "security_risk": "LOW",
    }
    values |= dict.fromkeys(("command", "cmd"), line)
    arguments = {name: values[name] for name in parameters if name in values}
    return Turn(text="I solve it.", tools=(Tool(name=shell, arguments=arguments),))


def edit(_: Asking) -> Turn:
    """Answer with the whole file, for an agent that has no tools."""
    return Turn(text=f"server.ini\n```\n{(TASK / 'tests/wanted.ini').read_text()}```\n")


@contextlib.contextmanager
def provided(agent: str, **options: Any) -> Iterator[FakeProvider]:
    """A provider, and a spec that lets an agent use it."""
    api = (AGENTS | MORE)[agent]
    with serving(FakeProvider(edit if agent == "aider" else solve, key=KEY, **options)) as provider:
        table = f'base_url = "{provider.base_url}"\nkey_env = "FAKE_KEY"\napis = ["{api}"]\n'
        Path("proctor.toml").write_text(f"[providers.fake]\n{table}")
        sandbox = {"host_root": True, "network": "none", "memory_bytes": 3 << 30}
        spec = {
            "name": "m",
            "sandbox": sandbox,
            "timeout_s": 300,
            "retries": {"provider": 0},
            "tasks": [{"path": "task", "agent": agent, "model": "fake/some-model"}],
        }
        Path("spec.json").write_text(json.dumps(spec))
        yield provider


def installed(name: str, project: Path) -> None:
    """Install an agent for all tests of this machine, unless it is."""
    agent = find_installable(name)
    install(project / "home/cache", name, agent.version, agent.recipe, print)


def result() -> tuple[AttemptRecord, Path]:
    """The one attempt, and the folder of its run."""
    with open_store(load_settings().store_url) as store:
        run = store.run("latest")
        (row,) = store.attempts(run.id)
        return row.record, Path(run.folder)


@pytest.mark.parametrize("agent", [*AGENTS, *(pytest.param(name, marks=SOAK) for name in MORE)])
def test_a_real_agent_solves_a_task_without_a_network_and_without_a_key(project, agent):
    installed(agent, project)
    with provided(agent) as provider, watched_processes(KEY) as seen:
        assert main(["run", "spec.json"]) == 0
    found, folder = result()
    assert (found.outcome, found.reward) == ("passed", 1.0)
    total = provider.total()
    assert found.usage["prompt_tokens"] == total.prompt_tokens > 0
    assert found.usage["completion_tokens"] == total.completion_tokens > 0
    check_trajectory(agent, folder, total.prompt_tokens)
    (project / "home/cache/agents").unlink()  # shared by all tests, and large
    assert leaking_files(KEY, (project, folder)) == []
    assert seen == []
    asked = json.dumps(provider.requests)
    assert [shape for shape in shapes(KEY) if shape in asked.encode()] == []
    judged = "".join(each.read_text() for each in folder.rglob("eval.log"))
    for text in (judged, *([] if agent == "aider" else [asked])):
        looked, leaked = told(text)
        assert (looked > 0, leaked) == (True, [])


def check_trajectory(agent: str, folder: Path, prompt_tokens: int) -> None:
    """What the agent did, as far as it tells it; aider tells nothing."""
    (trajectory,) = folder.rglob("trajectory.json")
    document = json.loads(trajectory.read_text())
    assert document["agent"]["version"] == find_installable(agent).version
    if agent == "aider":
        return
    assert [step for step in document["steps"] if step.get("tool_calls")]
    if agent != "openhands":
        assert document["final_metrics"]["total_prompt_tokens"] == prompt_tokens


def test_a_provider_that_fails_is_not_the_agents_zero(project):
    installed("qwen-code", project)
    with provided("qwen-code", faults=[Fault(status=500, times=10_000)]):
        assert main(["run", "spec.json"]) == 4
    assert result()[0].outcome == "provider_error"


def test_an_agent_that_is_not_installed_starts_nothing(project, capsys):
    (project / "home/cache/agents").unlink()
    with provided("codex"):
        assert main(["run", "spec.json"]) == 2
    assert "run 'proctor agents install codex'. Nothing was started" in capsys.readouterr().err
