"""`proctor leaderboard`: every agent of some runs, ranked."""

from __future__ import annotations

import json

import pytest

from proctor.cli.main import main
from proctor.settings import load_settings
from proctor.store.open import open_store
from proctor.verdicts.leaderboard.collect import collect


@pytest.fixture
def runs(tmp_path, monkeypatch, store_rollouts):
    monkeypatch.chdir(tmp_path)
    tasks = [f"org/task-{at}" for at in range(8)]
    store_rollouts(
        {(task, agent): [good] * 3 for task in tasks for agent, good in (("oracle", 1.0), ("nop", 0.0))}
    )
    store_rollouts(
        {(task, "oracle"): [1.0, 0.0, "sandbox_error"] for task in tasks},
        name="later",
        run_id="20260102T000000-bbbbbb",
    )


def test_agents_of_several_runs_are_ranked_with_ties(runs, capsys):
    assert main(["leaderboard", "study", "later"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("oracle (study) is ahead of all 2 others: it passes 100 %")
    assert "ahead of oracle (later) and nop" in " ".join(said.split())
    assert "8 pairs" not in said
    assert "left out: oracle (later) 8" in said


def test_the_numbers_are_there_as_json_and_as_a_page(runs, capsys, tmp_path):
    page = tmp_path / "board.html"
    assert main(["leaderboard", "study", "--json", "--html", str(page)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each["label"], each["place"]) for each in found["standings"]] == [("oracle", "1"), ("nop", "2")]
    assert "Leaderboard" in page.read_text()


def test_what_cannot_be_ranked_is_said(runs, store_rollouts, capsys):
    assert main(["leaderboard", "nothing"]) == 2
    store_rollouts(
        {("sorting", None): [1.0]}, name="points", run_id="20260103T000000-cccccc", kind="experiment"
    )
    assert main(["leaderboard", "points"]) == 2
    assert "measured experiments; a leaderboard is of agents" in capsys.readouterr().err
    assert main(["leaderboard", *["study"] * 51]) == 2


def test_a_task_that_a_run_lists_twice_counts_twice(tmp_path, monkeypatch, store_rollouts):
    monkeypatch.chdir(tmp_path)
    variants = {("org/task", "oracle", "Be brief."): [1.0] * 3, ("org/task", "oracle", "Be slow."): [0.0] * 3}
    run = store_rollouts(variants)
    with open_store(load_settings().store_url) as store:
        (entrant,), _ = collect(store, [run.id])
    assert sorted(entrant.rewards.values()) == [(0.0,) * 3, (1.0,) * 3]
