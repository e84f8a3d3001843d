"""A configured simulation leaves its log where the configuration says."""

from __future__ import annotations

import sqlite3
from types import SimpleNamespace

import pytest

from proctor import configure_for_performance_with_persistence
from proctor.errors import UsageError
from proctor.experiments.simulation.log import count_rows, stored_digest
from proctor.experiments.simulation.logged import LoggedSimulation, simulate

SMALL = {"num_agents": 8, "num_steps": 7, "commit_every": 3}


def test_every_way_leaves_the_same_log(tmp_path):
    digests = set()
    ways = ({"journal_mode": "wal"}, {"journal_mode": "delete"}, {"use_in_memory_db": True})
    for number, way in enumerate(ways):
        file = tmp_path / f"{number}.db"
        done = simulate(LoggedSimulation(**SMALL, **way), file)
        connection = sqlite3.connect(file)
        assert count_rows(connection) == done.rows > 0
        digests.add(stored_digest(connection))
        connection.close()
    assert len(digests) == 1


def test_a_log_in_memory_that_is_not_to_be_kept_leaves_no_file(tmp_path):
    simulate(
        LoggedSimulation(**SMALL, use_in_memory_db=True, persist_db_on_completion=False), tmp_path / "a.db"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_configuration_is_changed_in_a_copy_or_in_the_object_of_another_program():
    assert configure_for_performance_with_persistence() == LoggedSimulation(use_in_memory_db=True)
    mine = LoggedSimulation(num_agents=5)
    assert configure_for_performance_with_persistence(mine).use_in_memory_db
    assert not mine.use_in_memory_db
    theirs = SimpleNamespace(use_in_memory_db=False, persist_db_on_completion=False, width=7)
    assert configure_for_performance_with_persistence(theirs) is theirs
    assert theirs.use_in_memory_db
    assert theirs.persist_db_on_completion
    with pytest.raises(UsageError, match="a dict has no 'use_in_memory_db'"):
        configure_for_performance_with_persistence({})
