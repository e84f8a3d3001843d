"""What a monitor asks of a store, again and again, while attempts grow in number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.taking import take

from proctor.model.outcome import Outcome
from proctor.model.trial import RunStatus
from proctor.store.open import open_store
from proctor.store.store import Store

RUN = "20260101-aaaa"
_ATTEMPTS = "SELECT outcome, count(*), sum(ended_at - started_at) FROM attempts GROUP BY outcome"


def counted(store: Store) -> tuple[dict[str, int], float]:
    """Attempts by outcome and their seconds, from the attempts themselves."""
    rows = store._db.read(_ATTEMPTS)
    return {str(row[0]): int(row[1]) for row in rows}, sum(float(row[2]) for row in rows)


def check(store: Store) -> None:
    figures = store.service.monitor.figures(None)
    attempts, seconds = counted(store)
    assert figures.attempts == attempts
    assert figures.attempt_s == pytest.approx(seconds)


def lived(store: Store, make: Any, clock: Any) -> None:
    """A run in which everything happens that makes an attempt."""
    make.run(store, size=6, resolved={"retries": {"infrastructure": 1}}, status=RunStatus.RUNNING)
    first, second, *_ = take(store, RUN, worker="w1", lease_s=30, limit=3)
    store.finish(first, make.record(first), counts=True)
    store.finish(second, make.record(second, Outcome.SANDBOX_ERROR, ended_at=11.0), counts=False)
    clock.now += 60.0
    assert store.reap(RUN)  # the third is tried again
    take(store, RUN, worker="w2", lease_s=30, limit=6)
    clock.now += 60.0
    assert store.reap(RUN)  # and is lost for good
    check(store)
    assert store.reopen_lost(RUN)
    take(store, RUN, worker="w3", lease_s=30, limit=2)
    clock.now += 7.0
    assert store.cancel(RUN)


def test_attempts_are_counted_as_they_end_however_they_end(store: Store, make, clock):
    lived(store, make, clock)
    check(store)
    assert {"passed", "sandbox_error", "worker_lost", "cancelled"} == set(counted(store)[0])
    assert "sandbox_error" not in store.run(RUN).counts
    assert store.service.monitor.figures("red").attempts == {}


def test_attempts_of_an_imported_run_are_counted(store: Store, make):
    plan = make.answered(store)
    records = [(row.record, row.counts) for row in store.attempts(RUN)]
    store.import_run(make.info("20260101-bbbb", total=3), plan.trials, records)
    check(store)
    store.delete_run(RUN)
    check(store)


def test_an_earlier_store_counts_the_attempts_that_it_has(tmp_path: Path, make, clock):
    path = str(tmp_path / "n.db")
    with open_store(path, clock=clock) as store:
        lived(store, make, clock)
        attempts = counted(store)
        with store._db.write() as tx:
            for statement in (
                "DELETE FROM run_counts WHERE trials = 0",
                "ALTER TABLE run_counts DROP COLUMN attempts",
                "ALTER TABLE run_counts DROP COLUMN seconds",
                "UPDATE proctor_schema SET version_num = '0012'",
            ):
                tx.change(statement)
    with open_store(path) as store:
        assert counted(store) == attempts
        check(store)
        assert store.check() == []


def test_no_question_of_a_monitor_looks_at_every_attempt_or_trial(sqlite_store: Store, make, monkeypatch):
    """What it costs must not grow with them: it is asked every few seconds for years."""
    make.answered(sqlite_store)
    database, asked = sqlite_store._db, []
    read = database.read
    monkeypatch.setattr(
        database, "read", lambda sql, *params: asked.append((sql, *params)) or read(sql, *params)
    )
    sqlite_store.service.monitor.figures(None)
    sqlite_store.service.monitor.figures("default")
    monkeypatch.undo()
    assert asked
    for sql, *params in asked:
        steps = [str(row[3]) for row in read(f"EXPLAIN QUERY PLAN {sql}", *params)]
        assert not [step for step in steps if step == "SCAN t"], sql
        assert "attempts a" not in sql, sql
        assert "FROM attempts" not in sql, sql
