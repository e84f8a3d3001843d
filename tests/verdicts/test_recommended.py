"""A recommendation comes from a measurement, says from which, and never goes beyond it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import proctor
from proctor.errors import UsageError
from proctor.verdicts.recommended import Measurement, Way, as_json, of_run, packaged, recommend

ROOT = Path(__file__).parents[2]
SMALL = {
    "name": "recommended_config",
    "experiments": [
        {
            "experiment": "memory_db",
            "params": {"arm": arm, "num_agents": 5, "num_steps": [3, 6]},
            "iterations": {"measured": 6},
        }
        for arm in ("disk", "memory_persisted")
    ],
}


def way(kind, middle, *, spread=0.01, agents=10):
    arm, _, journal = kind.partition(" ")
    return Way(
        num_agents=agents,
        num_steps=10,
        arm=arm,
        journal_mode=journal or "delete",
        commit_every=1,
        median_s=middle,
        low_s=middle - spread,
        high_s=middle + spread,
    )


def measured(*ways):
    return Measurement(run_id="r1", measured_at="2026-01-02", machine="a CPU", ways=ways)


def test_the_fastest_way_is_recommended_with_its_source():
    found = recommend(measured(way("disk delete", 2.0), way("memory_persisted", 1.0)), 10, 10)
    assert found.config.use_in_memory_db
    assert found.config.persist_db_on_completion
    assert "run r1 of 2026-01-02, on a CPU" in found.text
    assert "A crash before the end loses the whole log." in found.text
    assert "comes with Proctor" not in found.text


def test_of_ways_that_cannot_be_told_apart_the_safest_is_taken():
    ways = (
        way("disk delete", 1.05, spread=0.1),
        way("disk wal", 1.02, spread=0.1),
        way("memory_persisted", 1.0),
    )
    found = recommend(measured(*ways), 10, 10)
    assert (found.config.use_in_memory_db, found.config.journal_mode) == (False, "delete")
    assert "3 ways could not be told apart" in found.text


def test_the_next_larger_measured_size_decides():
    ways = (way("disk wal", 1.0), way("memory_persisted", 2.0), way("memory_persisted", 1.0, agents=100))
    assert not recommend(measured(*ways), 10, 10).config.use_in_memory_db
    found = recommend(measured(*ways), 11, 10).config
    assert found.use_in_memory_db
    assert found.num_agents == 11


@pytest.mark.parametrize(("agents", "steps", "what"), [(9, 10, "9 agents"), (10, 11, "11 steps")])
def test_nothing_is_extrapolated(agents, steps, what):
    with pytest.raises(UsageError, match=f"{what} is outside what was measured .10 to 10."):
        recommend(measured(way("disk wal", 1.0)), agents, steps)


def test_the_measurement_that_comes_with_proctor_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = []
    config = proctor.get_recommended_config(10, 10, explain=told.append)
    assert config.num_agents == 10
    assert "(it comes with Proctor)" in told[0]
    assert list(tmp_path.iterdir()) == [], "asking makes no store"
    assert '"ways"' in as_json(packaged())


def test_a_run_of_ones_own_takes_its_place_and_an_incomplete_one_does_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = proctor.run(SMALL)
    told = []
    config = proctor.get_recommended_config(5, 6, explain=told.append)
    assert done.id in told[0]
    assert (config.num_agents, config.num_steps) == (5, 6)
    with pytest.raises(UsageError, match="no complete measurement"):
        of_run(replace(done.data, trials=(*done.data.trials[:1], replace_counted(done.data.trials[1]))))


def replace_counted(trial):
    return type(trial)(trial.planned)


def test_the_example_simulates_and_refuses_what_was_not_measured(tmp_path):
    script = [sys.executable, str(ROOT / "examples/run_with_recommended_config.py")]
    good = [*script, "--steps", "10", "--agents", "10", "--output", "out"]
    for arguments, code, words in (
        (good, 0, "out/simulation.db"),
        (good, 2, "exists already"),
        ([*script, "--steps", "999999"], 2, "outside what was measured"),
    ):
        done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert words in done.stdout + done.stderr
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == ["config.json", "simulation.db"]
