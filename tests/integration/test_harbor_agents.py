"""Harbor's own agents work in our sandboxes, and its environments are sandboxes of ours.

Harbor is installed once per machine (240 MB, ten seconds), for a Python 3.12 or later that is found here.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.leaks import leaking_files, looking, shapes, told, watched_processes
from tests.providers import serving

from proctor.agents.harbor.recipe import CHOSEN, PYTHONS
from proctor.agents.installed.folders import install
from proctor.agents.installed.recipes import find_python
from proctor.agents.registry import find_installable, package_of
from proctor.cli.main import main
from proctor.gateway.provider.script import Asking, Turn
from proctor.gateway.provider.server import FakeProvider
from proctor.model.record import AttemptRecord
from proctor.settings import load_settings
from proctor.store.open import open_store

PYTHON = find_python(*PYTHONS, also=[os.environ.get(CHOSEN, "")])
"""Tests have a home of their own, so it is looked for before they run."""
pytestmark = [
    pytest.mark.needs("bubblewrap", "registries"),
    pytest.mark.timeout(300),
    pytest.mark.skipif(PYTHON is None, reason="Harbor needs a Python from 3.12 to 3.14, and none is here"),
]
KEY = "sk-fake-key-that-nobody-may-see-0123456789"
TASK = Path(__file__).parents[2] / "tasks/config-edit"
SOLUTION = (TASK / "solution/solve.sh").read_text()
LOOK = looking(KEY)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> Path:
    """A project with the Harbor that all tests of this machine share."""
    assert PYTHON
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROCTOR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(CHOSEN, PYTHON.program)
    monkeypatch.setenv("FAKE_KEY", KEY)
    shared = pytestconfig.cache.mkdir("agents")
    agent = find_installable("harbor")
    with monkeypatch.context() as quick:  # by uv, which is faster
        quick.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
        install(shared, package_of(agent), agent.version, agent.recipe, print)
    (tmp_path / "home/cache").mkdir(parents=True)
    (tmp_path / "home/cache/agents").symlink_to(shared / "agents")
    return tmp_path


def terminus(*commands: str, done: bool = False) -> Turn:
    """A reply as Terminus 2 wants it."""
    keys = [{"keystrokes": f"{each}\n", "duration": 0.3} for each in commands]
    text = {"analysis": "I look.", "plan": "I solve it.", "commands": keys, "task_complete": done}
    return Turn(text=json.dumps(text))


def solve(asking: Asking) -> Turn:
    """Look around for the key, run the author's solution, wait for its end, and say twice: done."""
    if not asking.turn:
        script = f"{LOOK}\n{SOLUTION}\nenv\necho so ends it\n"
        return terminus(f"echo {base64.b64encode(script.encode()).decode()} | base64 -d | bash")
    return terminus(done=True) if "so ends it" in json.dumps(asking.body) else terminus("")


@contextlib.contextmanager
def provided() -> Iterator[FakeProvider]:
    """A provider, and a spec that lets an agent use it."""
    with serving(FakeProvider(solve, key=KEY)) as provider:
        table = f'base_url = "{provider.base_url}"\nkey_env = "FAKE_KEY"\napis = ["chat"]\n'
        Path("proctor.toml").write_text(f"[providers.fake]\n{table}")
        spec = {
            "name": "m",
            "sandbox": {"host_root": True, "network": "none"},
            "timeout_s": 120,
            "retries": {"provider": 0, "infrastructure": 0},
            "agent_options": {"env": {"GREETING": "hello"}},
            "tasks": [{"path": str(TASK), "agent": "terminus-2", "model": "fake/some-model"}],
        }
        Path("spec.json").write_text(json.dumps(spec))
        yield provider


def result() -> tuple[AttemptRecord, Path]:
    """The one attempt, and the folder of its run."""
    with open_store(load_settings().store_url) as store:
        run = store.run("latest")
        (row,) = store.attempts(run.id)
        return row.record, Path(run.folder)


def test_terminus_2_solves_a_task_without_a_network_and_without_a_key(project):
    with provided() as provider, watched_processes(KEY) as seen:
        assert main(["run", "spec.json"]) == 0
    found, folder = result()
    assert (found.outcome, found.reward) == ("passed", 1.0)
    total = provider.total()
    assert found.usage["prompt_tokens"] == total.prompt_tokens > 0
    (trajectory,) = folder.rglob("trajectory.json")
    document = json.loads(trajectory.read_text())
    assert document["agent"] == {"name": "terminus-2", "version": "0.24.0", "model_name": "fake/some-model"}
    assert document["final_metrics"]["total_prompt_tokens"] == total.prompt_tokens
    assert [step for step in document["steps"] if step.get("tool_calls")]
    asked = json.dumps(provider.requests)
    assert "GREETING=hello" in asked
    assert "OPENAI" not in asked
    looked, leaked = told(asked)
    assert (looked > 0, leaked) == (True, [])
    assert [shape for shape in shapes(KEY) if shape in asked.encode()] == []
    (project / "home/cache/agents").unlink()  # shared by all tests, and large
    assert leaking_files(KEY, (project, folder)) == []
    assert seen == []


@pytest.fixture
def small_task(tmp_path: Path) -> Path:
    """One whose image needs nothing built."""
    folder = tmp_path / "tasks/hello"
    files = {
        "task.toml": 'schema_version = "1.1"\n[task]\nname = "made/hello"\n',
        "instruction.md": "Write hello to /app/hello.txt.\n",
        "environment/Dockerfile": "FROM debian\nWORKDIR /app\n",
        "solution/solve.sh": "#!/bin/sh\necho hello > /app/hello.txt\n(sleep 1000 &)\n",
        "tests/test.sh": (
            "#!/bin/sh\n[ -f /app/hello.txt ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n"
        ),
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


LOCAL = "harbor:local_environment:LocalEnvironment"


def test_an_environment_of_harbors_is_a_sandbox(project, small_task, monkeypatch):
    monkeypatch.setenv("SANDBOX_BACKEND", LOCAL)
    shutil.copy(Path(__file__).with_name("local_environment.py"), project)
    run = ["run", "-t", str(small_task), "-a", "oracle", "-a", "nop", "--network", "none"]
    assert main(run) == 0
    with open_store(load_settings().store_url) as store:
        rows = list(store.attempts(store.run("latest").id))
    found = {row.trial.agent: row.record for row in rows}
    assert {name: (each.outcome, each.reward) for name, each in found.items()} == {
        "oracle": ("passed", 1.0),
        "nop": ("failed", 0.0),
    }
    enforced = found["oracle"].ledger["enforced"]
    assert enforced["network"] == f"{LOCAL}: none, by Harbor's word"
    assert enforced["pids"].startswith("not enforced")
    assert enforced["verifier"].startswith("not enforced")
