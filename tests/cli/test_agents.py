"""`proctor agents`: what a spec can name, and what is missing to run it."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint

import pytest

from proctor.agents import registry
from proctor.agents.registry import BUILT_IN, describe_all, make_agent
from proctor.cli.main import main


@pytest.fixture
def outside(monkeypatch, tmp_path):
    """Two agents of an installed package, of which one cannot be imported."""
    (tmp_path / "their_agents.py").write_text(
        'class Careful:\n    """Looks twice.\n\n    And more."""\n'
        "    name = 'careful'\n    version = '7'\n    needs_model = True\n"
        "    def __init__(self, *, patience, colour='red'): ...\n"
        "    async def run(self, task, sandbox, model, context): ...\n"
    )
    (tmp_path / "broken_agents.py").write_text("import a_module_that_is_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    entries = [
        EntryPoint("careful", "their_agents:Careful", "proctor.agents"),
        EntryPoint("broken", "broken_agents:Broken", "proctor.agents"),
        EntryPoint("nop", "their_agents:Careful", "proctor.agents"),
    ]

    def entry_points(*, group, name=None):
        return [each for each in entries if name in {None, each.name}]

    monkeypatch.setattr(registry, "entry_points", entry_points)


def test_every_built_in_agent_has_a_line_and_says_what_it_needs(capsys, monkeypatch):
    monkeypatch.delenv("PROCTOR_MODEL_BASE_URL", raising=False)
    assert main(["agents", "--json"]) == 0
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert list(found)[: len(BUILT_IN)] == list(BUILT_IN)
    assert all(each["line"] for each in found.values())
    assert found["replay"]["needs"] == ["agent_options.trajectory"]
    assert "agent_options.command" in found["command"]["needs"]
    assert "no provider of chat is ready: set PROCTOR_MODEL_BASE_URL" in found["terminal"]["missing"][0]
    assert "no provider of messages is ready: set a provider's key" in found["claude-code"]["missing"]
    assert (found["terminal"]["apis"], found["nop"]["apis"]) == (["chat"], [])
    assert found["terminal"]["ready"] is False


def test_a_model_endpoint_makes_the_terminal_agent_ready(monkeypatch):
    monkeypatch.setattr(registry, "_a_sandbox", lambda: True)
    found = {each.name: each for each in describe_all({"chat"})}
    assert found["terminal"].ready
    assert found["nop"].needs == ()


def test_without_a_sandbox_no_agent_can_run(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("proctor.sandbox.userns.missing_program", lambda: "no keeper")
    found = describe_all({"chat"})
    assert {each.ready for each in found} == {False}
    assert "proctor doctor" in found[0].missing[0]


def test_agents_of_other_packages_are_listed_and_a_broken_one_says_why(outside, capsys):
    assert main(["agents"]) == 0
    shown = capsys.readouterr().out
    assert "Looks twice (their_agents:Careful)" in shown
    assert "needs agent_options.patience" in shown
    assert "cannot be imported: ModuleNotFoundError" in shown
    found = {each.name: each for each in describe_all(())}
    assert found["careful"].version == "7"
    assert found["nop"].source == "built in"
    assert make_agent("careful", {"patience": 3}).name == "careful"


def test_an_agent_is_installed_listed_and_removed(capsys, monkeypatch, tmp_path):
    class Recipe:
        def build(self, folder, version, say):
            (folder / "agent").write_text("#!/bin/sh\n")

        def argv(self, folder):
            return [f"{folder}/agent"]

    monkeypatch.setenv("PROCTOR_HOME", str(tmp_path))
    monkeypatch.setattr("proctor.agents.installed.codex.Codex.recipe", Recipe())
    assert main(["agents", "install", "codex"]) == 0
    assert main(["agents", "install", "codex", "--version", "0.1.0"]) == 0
    assert "codex 0.1.0 is installed" in capsys.readouterr().out
    assert main(["agents", "--json"]) == 0
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert sorted(each["version"] for each in found["codex"]["installed"]) == [
        "0.1.0",
        found["codex"]["version"],
    ]
    assert (found["codex"]["apis"], found["nop"]["installed"]) == (["responses"], [])
    assert any("proctor agents install qwen-code" in each for each in found["qwen-code"]["missing"])
    assert main(["agents", "remove", "codex", "--version", "0.1.0"]) == 0
    assert main(["agents", "remove", "codex", "--version", "0.1.0"]) == 2
    assert "codex 0.1.0 is not installed" in capsys.readouterr().err


def test_only_agents_that_need_it_are_installed(capsys):
    assert main(["agents", "install", "nop"]) == 2
    assert "needs no installation; those that do are claude-code, codex" in capsys.readouterr().err
    assert main(["agents", "install", "codex", "--version", "latest"]) == 2
    assert "'latest' is not a version" in capsys.readouterr().err
