"""Real command-line agents from the registries solve a task through the gateway, with network none.

Installed once per machine: gemini-cli (230 MB), qwen-code (270 MB) and codex (460 MB), about 20 seconds each.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
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
KEY = "sk-fake-key-that-nobody-may-see-0123456789"
TASK = Path(__file__).parents[2] / "tasks/config-edit"
SHELLS = ("run_shell_command", "exec_command", "bash", "Bash")
LOOK = f"""\
cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'
grep -rsl '{KEY[:6]}[{KEY[6]}]{KEY[7:]}' /app /etc /home /root /tmp /var/tmp | sed 's/^/leaked: /'
"""
"""Prints the key where a process or a file has it, and does not have it itself."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> Path:
    """A project whose agents are those that all tests of this machine share."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROCTOR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FAKE_KEY", KEY)
    shared = pytestconfig.cache.mkdir("agents")
    for name in AGENTS:
        agent = find_installable(name)
        install(shared, name, agent.version, agent.recipe, print)
    (tmp_path / "home/cache").mkdir(parents=True)
    (tmp_path / "home/cache/agents").symlink_to(shared / "agents")
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
    if shell is None or asking.turn:
        return Turn(text="Done.")
    values = {"description": "solve it", "is_background": False}
    line = LOOK + (TASK / "solution/solve.sh").read_text()
    values |= dict.fromkeys(("command", "cmd"), line)
    arguments = {name: values[name] for name in tools[shell] if name in values}
    return Turn(text="I solve it.", tools=(Tool(name=shell, arguments=arguments),))


@contextlib.contextmanager
def provided(agent: str, **options: Any) -> Iterator[FakeProvider]:
    """A provider, and a spec that lets an agent use it."""
    with serving(FakeProvider(solve, key=KEY, **options)) as provider:
        table = f'base_url = "{provider.base_url}"\nkey_env = "FAKE_KEY"\napis = ["{AGENTS[agent]}"]\n'
        Path("proctor.toml").write_text(f"[providers.fake]\n{table}")
        sandbox = {"host_root": True, "network": "none", "memory_bytes": 3 << 30}
        task = {"path": str(TASK), "agent": agent, "model": "fake/some-model"}
        spec = {
            "name": "m",
            "sandbox": sandbox,
            "timeout_s": 300,
            "retries": {"provider": 0},
            "tasks": [task],
        }
        Path("spec.json").write_text(json.dumps(spec))
        yield provider


def result() -> tuple[AttemptRecord, Path]:
    """The one attempt, and the folder of its run."""
    with open_store(load_settings().store_url) as store:
        run = store.run("latest")
        (row,) = store.attempts(run.id)
        return row.record, Path(run.folder)


@pytest.mark.parametrize("agent", AGENTS)
def test_a_real_agent_solves_a_task_without_a_network_and_without_a_key(project, agent):
    with provided(agent) as provider:
        assert main(["run", "spec.json"]) == 0
    found, folder = result()
    assert (found.outcome, found.reward) == ("passed", 1.0)
    total = provider.total()
    assert found.usage["prompt_tokens"] == total.prompt_tokens > 0
    assert found.usage["completion_tokens"] == total.completion_tokens > 0
    (trajectory,) = folder.rglob("trajectory.json")
    document = json.loads(trajectory.read_text())
    assert document["agent"]["version"] == find_installable(agent).version
    assert document["final_metrics"]["total_prompt_tokens"] == total.prompt_tokens
    assert [step for step in document["steps"] if step.get("tool_calls")]
    kept = (*project.rglob("*"), *folder.rglob("*"))
    files = [each for each in kept if each.is_file() and "agents" not in each.parts]
    assert files
    assert [each for each in files if KEY.encode() in each.read_bytes()] == []
    asked = json.dumps(provider.requests)
    assert re.findall(r"leaked: /\w+", asked) == []  # the script itself has a quote there
    assert KEY not in asked


def test_a_provider_that_fails_is_not_the_agents_zero(project):
    with provided("qwen-code", faults=[Fault(status=500, times=10_000)]):
        assert main(["run", "spec.json"]) == 4
    assert result()[0].outcome == "provider_error"


def test_an_agent_that_is_not_installed_starts_nothing(project, capsys):
    (project / "home/cache/agents").unlink()
    with provided("codex"):
        assert main(["run", "spec.json"]) == 2
    assert "run 'proctor agents install codex'. Nothing was started" in capsys.readouterr().err
