"""Rows of the list of runs: which are made once, and what they tell of a run that nobody can execute."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.taking import take

from proctor.model.outcome import Outcome
from proctor.model.plan import Plan, PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.server.reading.run_rows import Row, RunRows
from proctor.server.reading.summaries import Summaries, Summary
from proctor.store.open import open_store
from proctor.store.store import Store

RUN = "20260101T000000-aaaaaa"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "one.db")) as opened:
        trials = tuple(
            PlannedTrial(
                key=f"k{index}",
                index=index,
                kind="task",
                subject="t",
                subject_digest="d",
                body=0,
                agent="oracle",
                rollout=index,
            )
            for index in range(2)
        )
        info = RunInfo(
            id=RUN,
            name="n",
            kind="task",
            status=RunStatus.PENDING,
            created_at=1.0,
            seed=1,
            total=2,
            resolved={"engine": "celery"},
        )
        opened.create_run(info, Plan(trials=trials))
        yield opened


def row(store: Store, rows: RunRows) -> Row:
    (found,) = rows.of(store, store.views.runs.listed(limit=1))
    return found


def test_the_row_of_a_run_that_waits_is_made_once_and_again_when_it_changes(store: Store):
    rows = RunRows()
    first = row(store, rows)
    assert row(store, rows) is first
    assert (first.data["status"], first.data["pending"], first.data["agents"]) == ("pending", 2, ("oracle",))
    assert first.data["headline"] == "Nothing of n has been measured yet: no trial of 2 has a result."
    store.service.queue.set_priority(RUN, 5)
    assert row(store, rows) is not first
    store.set_status(RUN, RunStatus.RUNNING)
    (lease,) = take(store, RUN, worker="w", lease_s=30)
    assert row(store, rows).data["running"] == 1
    record = AttemptRecord(
        key=lease.key, number=1, outcome=Outcome.PASSED, started_at=1.0, ended_at=2.0, reward=1.0
    )
    store.finish(lease, record, counts=True)
    store.set_status(RUN, RunStatus.INTERRUPTED)
    assert row(store, rows).data["score"]["passed"] == 1


def test_a_run_that_no_worker_can_execute_says_so_where_workers_execute(store: Store):
    store.set_status(RUN, RunStatus.RUNNING)
    said = row(store, RunRows(by_workers=True)).data["waiting"]
    assert said.startswith("2 trials wait for a worker that is not there")
    assert row(store, RunRows()).data["waiting"] == ""


def test_what_a_run_came_to_is_worked_out_once_for_its_row_and_for_spark_lines(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    made: list[str] = []
    make = Summaries.make
    monkeypatch.setattr(
        Summaries, "make", lambda self, store, info: made.append(info.id) or make(self, store, info)
    )
    rows = RunRows()
    listed = store.views.runs.listed(limit=1)
    rows.of(store, listed)
    rows.of(store, listed, spark=False)
    assert made == [RUN]


def test_two_who_ask_for_a_large_run_at_once_have_it_made_once(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("proctor.server.reading.run_rows.LARGE", 2)
    rows, made, both = RunRows(), [], threading.Barrier(2)
    make = Summaries.make

    def slowly(self: Summaries, *args: Any) -> Summary:
        made.append(self)
        with suppress(threading.BrokenBarrierError):
            both.wait(1)
        return make(self, *args)

    monkeypatch.setattr(Summaries, "make", slowly)
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _: row(store, rows), range(2))
    assert first is second
    assert len(made) == 1
