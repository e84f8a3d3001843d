"""Demand counts what could run now, on both databases, and nothing that no worker could take."""

from __future__ import annotations

import pytest
from tests.taking import take

from proctor.store.service.demand import Demand, Need, as_data

RUN, LATER, THIRD = "20260101-aaaa", "20260102-bbbb", "20260103-cccc"
NOW = 1_760_000_000.0


@pytest.fixture
def filled(store, clock, make):
    """Three runs of three trials; nobody has started one of them."""
    clock.now = NOW
    for run_id in (RUN, LATER, THIRD):
        make.run(store, run_id, created_at=NOW - 100, kind="task")
    return store


def want(store, run_id: str, project: str = "default", queued_at: float = NOW - 60) -> None:
    with store._db.write() as tx:
        tx.execute(
            "INSERT INTO run_service (run_id, project, owner, wanted, queued_at) "
            "VALUES (:run, :project, 'ada', 1, :at)",
            {"run": run_id, "project": project, "at": queued_at},
        )


def change(store, sql: str, **params: object) -> None:
    with store._db.write() as tx:
        tx.execute(sql, params)


def test_runs_that_nobody_has_started_are_no_demand(filled):
    assert filled.service.monitor.demand() == Demand()


def test_trials_that_could_run_and_that_run_are_counted_by_what_they_need(filled):
    want(filled, RUN)
    want(filled, LATER, queued_at=NOW - 10)
    change(filled, "UPDATE trials SET backend = 'podman', memory_mb = 512 WHERE run_id = :run", run=LATER)
    take(filled, RUN, worker="w", lease_s=30, limit=2)
    demand = filled.service.monitor.demand()
    assert demand.needs == (
        Need("experiment", "any", waiting=1, running=2, oldest_s=60.0),
        Need("experiment", "podman", waiting=3, oldest_s=10.0, memory_mb=512),
    )
    assert (demand.trials, demand.waiting, demand.running, demand.oldest_s) == (6, 4, 2, 60.0)
    assert [demand.workers(slots) for slots in (1, 4, 100)] == [6, 2, 1]
    assert as_data(demand, 4)["wanted_workers"] == 2


def test_a_trial_that_waits_for_its_next_try_is_no_demand_until_then(filled, clock):
    want(filled, RUN)
    change(filled, "UPDATE trials SET ready_at = :at WHERE run_id = :run AND idx = 0", run=RUN, at=NOW + 5)
    demand = filled.service.monitor.demand()
    assert (demand.waiting, demand.needs[0].delayed) == (2, 1)
    clock.now += 6
    assert filled.service.monitor.demand().waiting == 3


def test_a_run_that_its_projects_quota_holds_back_is_no_demand(filled):
    change(filled, "INSERT INTO projects (id, title, created_at, max_runs) VALUES ('few', 'Few', 0, 1)")
    want(filled, RUN, "few")
    want(filled, LATER, "few", queued_at=NOW - 5)
    want(filled, THIRD)
    demand = filled.service.monitor.demand()
    assert (demand.waiting, sum(each.delayed for each in demand.needs)) == (6, 3)
    assert filled.service.monitor.demand("few").waiting == 3
    assert filled.service.monitor.demand("default").waiting == 3
    assert filled.service.monitor.demand("nobody's") == Demand()


def test_a_run_that_a_command_coordinates_counts_without_a_server(filled):
    change(
        filled,
        "INSERT INTO coordinators (run_id, holder, fence, expires_at) VALUES (:run, 'h', 1, :at)",
        run=RUN,
        at=NOW + 30,
    )
    assert filled.service.monitor.demand().trials == 3


def test_nothing_waits_in_an_empty_store(store):
    assert as_data(store.service.monitor.demand(), 8) == {
        "trials": 0, "waiting": 0, "delayed": 0, "running": 0, "oldest_s": 0.0, "slots": 8,
        "wanted_workers": 0, "classes": [],
    }  # fmt: skip
