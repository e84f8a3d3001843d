"""Three arms that hold the same log and really differ in where they keep it."""

from __future__ import annotations

import sqlite3

import pytest

from proctor.experiments.base import ExperimentContext
from proctor.experiments.memory_db import ARMS, MemoryDb
from proctor.experiments.simulation_log import main_file, stored_digest

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
        digests[arm] = (stored_digest(experiment.connection), experiment.expected_digest)
        if arm == "memory_persisted":
            with sqlite3.connect(experiment.file) as other:
                digests["file"] = (stored_digest(other), experiment.expected_digest)
            other.close()
        experiment.teardown(context)
    assert len({each for pair in digests.values() for each in pair}) == 1


def test_only_the_disk_arm_has_a_file_behind_its_connection(tmp_path):
    for arm in ARMS:
        experiment, context = start(tmp_path, arm=arm)
        experiment.execute_once(context)
        assert (main_file(experiment.connection) != "") == (arm == "disk")
        experiment.teardown(context)


def test_an_arm_that_is_not_what_it_says_is_noticed(tmp_path, monkeypatch):
    experiment, context = start(tmp_path, arm="disk")
    monkeypatch.setattr(experiment, "_open", lambda: sqlite3.connect(":memory:", isolation_level=None))
    with pytest.raises(AssertionError, match="arm 'disk' has its database at ''"):
        experiment.execute_once(context)
    experiment.teardown(context)


def test_a_changed_log_is_noticed(tmp_path):
    experiment, context = start(tmp_path, arm="memory")
    experiment.execute_once(context)
    experiment.connection.execute("UPDATE state SET energy = energy + 1 WHERE rowid = 3")
    with pytest.raises(AssertionError, match="the log differs"):
        experiment.teardown(context)


def test_a_persisted_file_that_lost_rows_is_noticed(tmp_path):
    experiment, context = start(tmp_path, arm="memory_persisted")
    experiment.execute_once(context)
    with sqlite3.connect(experiment.file) as other:
        other.execute("DELETE FROM action WHERE rowid = 1")
    other.close()
    with pytest.raises(AssertionError, match="the log in the file differs"):
        experiment.teardown(context)
    assert list(tmp_path.iterdir()) == []
