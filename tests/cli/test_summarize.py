from __future__ import annotations

import json

import pytest

from proctor.cli.main import main
from proctor.settings import load_settings

TWO = {("a", "oracle"): [1.0, 1.0], ("a", "nop"): [0.0, 0.0], ("b", "oracle"): [1.0, "sandbox_error"]}


def test_the_matrix_and_the_scores_are_printed(store_rollouts, capsys):
    store_rollouts(TWO)
    assert main(["summarize", "study"]) == 0
    out = capsys.readouterr().out
    assert "study  20260101T000000-aaaaaa  done" in out
    assert "Left out, because the agent did not cause it: 1 sandbox error." in out
    assert "b  ✓S" in out
    assert "a  ✓✓      ✗✗" in out
    assert "S sandbox error (not scored)" in out
    assert "75–100 %" in out


def test_a_stamp_chooses_among_runs_of_one_name(store_rollouts, capsys):
    store_rollouts({("a", "oracle"): [1.0]}, run_id="20260101T000000-aaaaaa")
    store_rollouts({("a", "oracle"): [0.0]}, run_id="20260102T000000-bbbbbb")
    assert main(["summarize", "study", "--latest"]) == 0
    assert "20260102T000000-bbbbbb" in capsys.readouterr().out
    assert main(["summarize", "study", "--rollout", "20260101T000000"]) == 0
    assert "oracle passes 100 %" in capsys.readouterr().out
    assert main(["summarize", "study", "--rollout", "1999"]) == 2
    assert "it has 20260102T000000-bbbbbb, 20260101T000000-aaaaaa" in capsys.readouterr().err
    assert main(["summarize", "nobody", "--rollout", "1999"]) == 2
    assert "no run named 'nobody'" in capsys.readouterr().err


def test_json_has_every_number(store_rollouts, capsys):
    store_rollouts(TWO)
    assert main(["summarize", "study", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    oracle = document["arms"][0]
    assert (oracle["agent"], oracle["scored"], oracle["errors"]) == ("oracle", 3, 1)
    assert oracle["pass_rate"]["errors_as_zero"]["value"] == 0.75


def test_a_folder_that_the_store_does_not_know_is_read(store_rollouts, capsys, monkeypatch, tmp_path):
    info = store_rollouts(TWO, folder=True)
    monkeypatch.setenv("PROCTOR_HOME", str(tmp_path / "another"))
    for arguments in (["study"], ["study", "--rollout", info.id[:8]], [info.folder]):
        assert main(["summarize", *arguments]) == 0
        assert "b  ✓S" in capsys.readouterr().out
    assert not load_settings().home.exists()
    assert main(["summarize", "other"]) == 2


def test_contradictions_and_experiments_are_refused(store_rollouts, capsys):
    store_rollouts({("a", "oracle"): [1.0]}, kind="experiment")
    assert main(["summarize", "study"]) == 2
    assert "measured experiments" in capsys.readouterr().err
    assert main(["summarize", "study", "--latest", "--rollout", "x"]) == 2


def test_partial_rewards_missing_rollouts_and_nothing_scored(store_rollouts, capsys):
    store_rollouts({("a", "x"): [0.5, None], ("a", "y"): ["sandbox_error", "cancelled"]})
    assert main(["summarize"]) == 0
    out = capsys.readouterr().out
    assert "mean reward" in out
    assert "x: 1 rollout without a result" in out
    assert "Pass rates over 1 task (95 % intervals for these tasks): x 0 %" in out
    assert "! lost to the infrastructure and not in the score: 1 of 4 rollouts (1 sandbox error)" in out
    assert "a  ◐·  S–" in out


def test_many_agents_are_named_by_letters_and_many_tasks_are_cut(store_rollouts, capsys, monkeypatch):
    monkeypatch.setattr("proctor.render.results.matrix.BRIEF", 1)
    monkeypatch.setenv("COLUMNS", "160")
    names = [f"an-agent-with-a-long-name-{number:02d}" for number in range(28)]
    store_rollouts({(task, name): [1.0] for name in names for task in ("a", "b")})
    assert main(["summarize"]) == 0
    out = capsys.readouterr().out
    assert "A = an-agent-with-a-long-name-00" in out
    assert "A27 = an-agent-with-a-long-name-27" in out
    assert "… and 1 more; task_results/ lists all of them" in out


def test_colours_only_where_they_are_wanted(store_rollouts, capsys, monkeypatch):
    store_rollouts({("a", "x"): [1.0, 0.0, "sandbox_error", None]})
    monkeypatch.setattr("proctor.cli.table.colour", lambda: True)
    assert main(["summarize"]) == 0
    out = capsys.readouterr().out
    assert "\x1b[32m✓\x1b[0m\x1b[31m✗\x1b[0m\x1b[33;1mS\x1b[0m\x1b[2m·\x1b[0m" in out


def test_show_has_the_scores_of_a_task_run(store_rollouts, capsys):
    store_rollouts(TWO)
    assert main(["show", "study"]) == 0
    out = capsys.readouterr().out
    assert "a  ✓✓      ✗✗" in out
    assert "     took  what" in out


@pytest.mark.parametrize("name", ["\x1b[31mred", "<b>"])
def test_a_hostile_name_cannot_steer_the_terminal(store_rollouts, capsys, name):
    store_rollouts({(name, name): [1.0, "sandbox_error"]})
    assert main(["summarize"]) == 0
    assert "\x1b" not in capsys.readouterr().out
