"""A key that nothing honours is refused before anything starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proctor.cli.main import main
from proctor.spec.grammar import unhonoured
from proctor.spec.load import from_mapping

TASK = str(Path(__file__).parents[2] / "tasks" / "shell-quiz")


@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"tasks": [TASK], "sources": ["mine"]}, "'sources' and --experiments name experiments"),
        ({"experiment": "memory_db", "sandbox": "podman"}, "'sandbox' has no effect here"),
        ({"experiment": "memory_db", "budget_usd": 5}, "'budget_usd' is about the models of agents"),
        ({"experiment": "memory_db", "tape": "x"}, "'tape' is about the models of agents"),
    ],
)
def test_it_is_refused_with_its_place(tmp_path, monkeypatch, capsys, command, spec, said):
    monkeypatch.chdir(tmp_path)
    Path("s.json").write_text(json.dumps(spec))
    assert main([command, "s.json"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "s.json:1:" in error


@pytest.mark.parametrize("spec", [{"experiment": "a"}, {"tasks": ["a"]}])
def test_what_a_stored_spec_holds_is_not(spec):
    assert list(unhonoured(from_mapping(from_mapping(spec).to_mapping()))) == []
