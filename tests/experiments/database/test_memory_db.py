"""Three arms that hold the same log and really differ in where they keep it."""

from __future__ import annotations

import sqlite3

import pytest

from proctor.experiments.base import ExperimentContext
from proctor.experiments.database.memory_db import ARMS, MemoryDb, chosen_arms
from proctor.experiments.simulation.log import main_file, stored_digest

SMALL = {"num_agents": 12, "num_steps": 7, "commit_every": 3}


def start(tmp_path, **params):
    experiment = MemoryDb({**SMALL, **params})
    context = ExperimentContext(run_dir=tmp_path, seed=5)
    experiment.setup(context)
    return experiment, context


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("journal_mode", ["delete", "wal"])
def test_every_arm_runs_checks_itself_and_leaves_nothing(tmp_path, arm, journal_mode):
    tmp_path = tmp_path / "a %41 odd? folder#"
    tmp_path.mkdir()
    experiment, context = start(tmp_path, arm=arm, journal_mode=journal_mode)
    results = [experiment.execute_once(context) for _ in range(2)]
    experiment.teardown(context)
    assert all(each["rows"] == experiment.expected_rows > 0 for each in results)
    assert all((each["file_bytes"] > 0) == (arm != "memory") for each in results)
    assert list(tmp_path.iterdir()) == []


def test_all_arms_hold_the_same_content(tmp_path):
    digests = {}
    for arm in ARMS:
        experiment, context = start(tmp_path, arm=arm)
        experiment.execute_once(context)
        digests[arm] = (stored_digest(experiment.kept[arm].connection), experiment.expected_digest)
        if arm == "memory_persisted":
            with sqlite3.connect(experiment.kept[arm].file) as other:
                digests["file"] = (stored_digest(other), experiment.expected_digest)
            other.close()
        experiment.teardown(context)
    assert len({each for pair in digests.values() for each in pair}) == 1


def test_only_the_disk_arm_has_a_file_behind_its_connection(tmp_path):
    for arm in ARMS:
        experiment, context = start(tmp_path, arm=arm)
        experiment.execute_once(context)
        assert (main_file(experiment.kept[arm].connection) != "") == (arm == "disk")
        experiment.teardown(context)


def test_an_arm_that_is_not_what_it_says_is_noticed(tmp_path, monkeypatch):
    experiment, context = start(tmp_path, arm="disk")
    monkeypatch.setattr(experiment, "_open", lambda *_: sqlite3.connect(":memory:", isolation_level=None))
    with pytest.raises(AssertionError, match="arm 'disk' has its database at ''"):
        experiment.execute_once(context)
    experiment.teardown(context)


def test_a_changed_log_is_noticed(tmp_path):
    experiment, context = start(tmp_path, arm="memory")
    experiment.execute_once(context)
    experiment.kept["memory"].connection.execute("UPDATE state SET energy = energy + 1 WHERE rowid = 3")
    with pytest.raises(AssertionError, match="the log differs"):
        experiment.teardown(context)


def test_a_persisted_file_that_lost_rows_is_noticed(tmp_path):
    experiment, context = start(tmp_path, arm="memory_persisted")
    experiment.execute_once(context)
    with sqlite3.connect(experiment.kept["memory_persisted"].file) as other:
        other.execute("DELETE FROM action WHERE rowid = 1")
    other.close()
    with pytest.raises(AssertionError, match="the log in the file differs"):
        experiment.teardown(context)
    assert list(tmp_path.iterdir()) == []


def test_all_arms_in_turn_give_times_and_speed_ups_with_intervals(tmp_path):
    experiment, context = start(tmp_path, arm="all", rounds=3)
    found = experiment.execute_once(context)
    experiment.teardown(context)
    assert {"disk_time", "memory_time", "memory_persist_time"} < found.keys()
    for name in ("disk_to_memory_speedup", "disk_to_memory_persist_speedup"):
        assert found[f"{name}_low"] <= found[name] <= found[f"{name}_high"]
    assert list(tmp_path.iterdir()) == []


def test_older_switches_leave_arms_out(tmp_path):
    experiment, context = start(tmp_path, parameters={"test_in_memory": False, "test_persistence": True})
    found = experiment.execute_once(context)
    experiment.teardown(context)
    assert found.keys() >= {"disk_time", "memory_persist_time"}
    assert "memory_time" not in found


@pytest.mark.parametrize(
    ("arm", "switches", "message"),
    [
        ("all", {"test_tape": True}, "it has test_disk_based"),
        ("all", {"test_in_memory": "no"}, "each true or false"),
        ("disk", {"test_in_memory": False}, "needs arm 'all'"),
        (
            "all",
            {"test_in_memory": False, "test_disk_based": False, "test_persistence": False},
            "switches off every arm",
        ),
    ],
)
def test_switches_that_mean_nothing_are_refused(arm, switches, message):
    with pytest.raises(ValueError, match=message):
        chosen_arms(arm, switches)
