from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from proctor.runs import room as rooms


@pytest.mark.parametrize(
    ("kind", "allowed", "room"),
    [("task", 1 << 20, 750), ("task", 1024, 74), ("task", 100, 1), ("experiment", 100, 750)],
)
def test_as_many_trials_run_at_a_time_as_files_may_be_open(monkeypatch, caplog, kind, allowed, room):
    monkeypatch.setattr(rooms, "allow_open_files", lambda: allowed)
    job = SimpleNamespace(info=SimpleNamespace(kind=kind))
    with caplog.at_level(logging.WARNING):
        assert rooms.room_for(job, 750) == room
    assert ("ulimit -n" in caplog.text) == (room < 750)
