"""`proctor models`: what is there, and never a key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proctor.cli.main import main

KEY = "sk-a-key-that-nobody-may-see"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "PROCTOR_MODEL_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    Path("prices.toml").write_text('version = "mine"\n[models."house/x"]\ninput = 1.5\noutput = 3\n')
    monkeypatch.setenv("PROCTOR_PRICES", "prices.toml")


def test_providers_say_whether_they_are_ready_and_models_what_they_cost(capsys):
    assert main(["models", "--json"]) == 0
    shown = capsys.readouterr().out
    found = json.loads(shown)
    providers = {each["name"]: each for each in found["providers"]}
    assert (providers["anthropic"]["has_key"], providers["anthropic"]["missing"]) == (True, "")
    assert "OPENAI_API_KEY" in providers["openai"]["missing"]
    assert providers["openai"]["apis"] == ["chat", "responses"]
    models = {each["name"]: each for each in found["models"]}
    assert (models["house/x"]["input"], models["house/x"]["cached"]) == (1.5, 1.5)
    assert models["openai/gpt-5"]["output"] == 10
    assert KEY not in shown


def test_the_table_has_no_key_and_says_what_is_unknown(capsys):
    assert main(["models"]) == 0
    shown = capsys.readouterr().out
    assert "anthropic" in shown
    assert "ready" in shown
    assert KEY not in shown
    assert not Path(".proctor").exists()
