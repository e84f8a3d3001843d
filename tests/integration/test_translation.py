"""An agent and a provider whose APIs do not fit, with a LiteLLM between them because the table names it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from tests.integration.test_models import KEY, make_task, records, spec
from tests.providers import serving

from proctor.agents.installed.folders import install
from proctor.agents.installed.litellm import LiteLLM
from proctor.cli.main import main
from proctor.gateway.provider.script import Turn
from proctor.gateway.provider.server import FakeProvider
from proctor.processes import all_processes

pytestmark = pytest.mark.needs("bubblewrap")
STAND_IN = [sys.executable, str(Path(__file__).parent / "litellm_stand_in.py")]
SAID = ("```sh\necho hello > answer.txt\n```", "DONE", "DONE")


@pytest.fixture
def provider(tmp_path, monkeypatch):
    """One that speaks messages alone, which `terminal` does not."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOUSE_KEY", KEY)
    make_task(tmp_path / "task")
    with serving(FakeProvider(lambda asking: Turn(text=SAID[asking.turn]), key=KEY)) as served:
        how = 'key_env = "HOUSE_KEY"\napis = ["messages"]\nauth = "x-api-key"'
        table = f'base_url = "{served.base_url}"\n{how}\n'
        Path("proctor.toml").write_text(f'[providers.house]\n{table}translate = "litellm"\n')
        yield served


def use(monkeypatch, command):
    monkeypatch.setattr("proctor.agents.installed.litellm.litellm_command", lambda _: command)


def test_calls_are_translated_counted_and_marked_and_the_translator_ends_with_the_run(provider, monkeypatch):
    use(monkeypatch, STAND_IN)
    assert main(["plan", spec(model="house/large")]) == 0
    assert main(["run", spec(model="house/large")]) == 0
    (record,) = records()
    assert (record.outcome, record.reward) == ("passed", 1.0)
    assert record.usage["translated"] == record.usage["requests"] == 3
    assert record.usage["prompt_tokens"] == provider.total().prompt_tokens
    assert "LiteLLM translated 3 calls between the agent's API and the provider's" in record.notes
    assert {each.api for each in provider.sales if each.status == 200 and each.api} == {"messages"}
    assert not [each for each in all_processes() if "litellm_stand_in" in _command_line(each.pid)]


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_without_litellm_nothing_is_started(provider, capsys):
    assert main(["run", spec(model="house/large")]) == 2
    assert "not installed on this machine: run 'proctor agents install litellm'" in capsys.readouterr().err


def test_an_agent_that_fits_is_not_translated(provider, monkeypatch, capsys):
    """One that speaks every API uses the provider's own; LiteLLM is not even looked for."""
    line = "echo hello > answer.txt"
    assert main(["run", spec("command", "house/large", {"agent_options": {"command": line}})]) == 0
    assert "translated" not in json.dumps([dict(each.usage) for each in records()])


@pytest.mark.skipif(not os.environ.get("PROCTOR_SOAK"), reason="LiteLLM is 750 MB and takes long to start")
@pytest.mark.needs("registries")
@pytest.mark.timeout(900)
def test_the_real_litellm_translates(provider, monkeypatch, pytestconfig):
    shared = pytestconfig.cache.mkdir("agents")
    install(shared, LiteLLM.name, LiteLLM.version, LiteLLM.recipe, print)
    from proctor.agents.installed import litellm

    command = litellm.litellm_command(shared)
    assert command
    use(monkeypatch, command)
    assert main(["run", spec(model="house/large")]) == 0
    (record,) = records()
    assert (record.outcome, record.usage["translated"]) == ("passed", 3)
    assert record.usage["prompt_tokens"] == provider.total().prompt_tokens
