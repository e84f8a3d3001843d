"""Step-by-step tasks in runs like any other: an agent of several modules, and one that asks a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.providers import serving
from tests.trial.episode.stage import AGENT, SOLVE, write_task

from proctor.cli.main import main
from proctor.errors import Exit
from proctor.gateway.provider.script import commands
from proctor.gateway.provider.server import FakeProvider
from proctor.model.record import AttemptRecord
from proctor.settings import load_settings
from proctor.store.open import open_store

pytestmark = pytest.mark.needs("bubblewrap")
ASKS = """
import json, os, urllib.request
class Agent:
    def reset(self, task_spec):
        url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
        headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
        headers["Content-Type"] = "application/json"
        body = {"model": "m", "messages": [{"role": "user", "content": task_spec["description"]}]}
        asked = urllib.request.Request(url, json.dumps(body).encode(), headers)
        call = json.load(urllib.request.urlopen(asked))["choices"][0]["message"]["tool_calls"][0]
        self.code = int(json.loads(call["function"]["arguments"])["command"])
    def observe(self, observation):
        pass
    def act(self):
        return {"type": "say", "args": {"code": self.code}}
"""


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    setup = "def setup(seed, env):\n    env.set_hidden_state('code', 41)\n"
    setup += "    env.write_file('/vault/note.txt', 'is 41')\n"
    write_task(tmp_path / "vault", setup=setup)


def ran(agents: list[str], **entry: str) -> list[AttemptRecord]:
    rows = [
        {"path": "vault", "agent": "episode", "agent_options": {"file": agent}, **entry} for agent in agents
    ]
    Path("spec.json").write_text(json.dumps({"name": "v", "sandbox": {"host_root": True}, "tasks": rows}))
    assert main(["run", "spec.json"]) == Exit.OK
    with open_store(load_settings().store_url) as store:
        return [row.record for row in store.attempts(store.run("latest").id)]


def test_an_agent_may_be_a_folder_and_every_ending_is_a_result_of_the_run(tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "agent.py").write_text("from thinking import Agent")
    (tmp_path / "mine" / "thinking.py").write_text(AGENT.format(body=SOLVE))
    Path("dies.py").write_text(AGENT.format(body="        return {'type': 'die'}"))
    Path("raises.py").write_text(AGENT.format(body="        1 / 0"))
    Path("repeats.py").write_text(AGENT.format(body="        return {'type': 'odd'}"))
    folder, dies, raises, repeats = ran(["mine", "dies.py", "raises.py", "repeats.py"])
    assert (folder.outcome, folder.reward, folder.usage["steps"]) == ("passed", 1.0, 2)
    assert folder.image["host"] is True
    assert dies.failure is not None
    assert (dies.outcome, dies.failure.type) == ("failed", "environment_broken")
    assert raises.failure is not None
    assert raises.outcome == "agent_error"
    assert "ZeroDivisionError" in raises.failure.message
    assert repeats.failure is not None
    assert (repeats.outcome, repeats.failure.type) == ("budget_exhausted", "tool_calls_exhausted")


def test_an_agent_reaches_its_model_by_the_gateway_and_never_sees_the_key(monkeypatch: pytest.MonkeyPatch):
    key = "sk-fake-key-that-nobody-may-see"
    monkeypatch.setenv("PROCTOR_MODEL_API_KEY", key)
    Path("asks.py").write_text(ASKS)
    with serving(FakeProvider(commands("41"), key=key)) as provider:
        monkeypatch.setenv("PROCTOR_MODEL_BASE_URL", provider.base_url)
        (record,) = ran(["asks.py"], model="m")
    assert (record.outcome, record.usage["requests"]) == ("passed", 1)
    assert record.usage["prompt_tokens"] == provider.total().prompt_tokens
