"""Which trials a worker gets: by key, or of any run that has something for it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.taking import take_any

from proctor.model.plan import Plan
from proctor.model.trial import Offers, RunStatus
from proctor.store.store import Store

RUN = "r1"


def keys_of(taken) -> list[str]:
    return [trial.key for _, trial in taken.begun]


def a_run_of_tasks(store: Store, make, run_id: str, *, created_at: float = 1.0, memory=(), **sandbox) -> Plan:
    plan = make.plan(2, subject=run_id)
    trials = tuple(
        replace(trial, kind="task", subject_digest=f"task-{trial.index}", path="/t") for trial in plan.trials
    )
    plan = Plan(trials=trials, memory_bytes=dict(memory))
    info = make.info(
        run_id,
        kind="task",
        status=RunStatus.RUNNING,
        created_at=created_at,
        resolved={"sandbox": {"backend": "auto", "memory_bytes": None, **sandbox}},
    )
    store.create_run(info, plan)
    return plan


class TestByKey:
    def test_only_the_trials_asked_for_are_taken_in_plan_order(self, store: Store, make):
        keys = [trial.key for trial in make.run(store, RUN, size=5).trials]
        taken = store.take(RUN, worker="w", lease_s=30, limit=9, keys=[keys[3], keys[1], "unknown"])
        assert keys_of(taken) == [keys[1], keys[3]]
        assert keys_of(store.take(RUN, worker="v", lease_s=30, limit=9, keys=keys[:2])) == [keys[0]]
        assert keys_of(store.take(RUN, worker="v", lease_s=30, keys=[])) == []

    def test_a_trial_that_someone_holds_or_that_must_wait_is_not_taken(self, store: Store, make, clock):
        (trial,) = make.run(store, RUN, size=1).trials
        ((lease, _),), _ = store.take(RUN, worker="w", lease_s=30, keys=[trial.key])
        assert keys_of(store.take(RUN, worker="v", lease_s=30, keys=[trial.key])) == []
        store.finish(lease, make.record(lease), counts=False, delay_s=5.0)
        assert keys_of(store.take(RUN, worker="v", lease_s=30, keys=[trial.key])) == []
        clock.now += 5.0
        assert keys_of(store.take(RUN, worker="v", lease_s=30, keys=[trial.key])) == [trial.key]


class TestOfAnyRun:
    def test_the_run_with_the_fewest_trials_under_way_then_the_oldest_comes_first(self, store: Store, make):
        make.run(store, "new", size=1, created_at=9.0, status=RunStatus.RUNNING)
        make.run(store, "old", size=2, created_at=5.0, status=RunStatus.RUNNING)
        for number, status in enumerate(("pending", "interrupted", "cancelled", "done")):
            make.run(store, status, size=1, created_at=float(number), status=RunStatus(status))
        taken = [take_any(store, Offers()) for _ in range(4)]
        assert [[lease.run_id for lease, _ in each.begun] for each in taken] == [
            ["old"],
            ["new"],
            ["old"],
            [],
        ]

    def test_a_sandbox_that_a_run_names_must_be_offered(self, store: Store, make):
        a_run_of_tasks(store, make, "any", created_at=2.0)
        a_run_of_tasks(store, make, "podman", created_at=1.0, backend="podman")
        ((lease, _),), _ = take_any(store, Offers(backends=("bubblewrap",)))
        assert lease.run_id == "any"
        both = Offers(backends=("bubblewrap", "podman"))
        ((lease, _),), _ = take_any(store, both)
        assert lease.run_id == "podman"
        assert take_any(store, Offers(kinds=("experiment",))) == ([], None)

    @pytest.mark.parametrize(("own", "found"), [(None, [0]), (1 << 30, [0, 1]), (3 << 30, [])])
    def test_a_trial_that_needs_more_memory_than_offered_is_left(self, store: Store, make, own, found):
        memory = {"task-0": 1 << 30, "task-1": (2 << 30) + 1}
        a_run_of_tasks(store, make, RUN, memory=memory, memory_bytes=own)
        taken = take_any(store, Offers(memory_mb=2048), 9)
        assert [trial.index for _, trial in taken.begun] == found
        assert taken.upcoming is None

    def test_a_trial_whose_time_has_not_come_is_left(self, store: Store, make, clock):
        make.run(store, RUN, size=1, status=RunStatus.RUNNING)
        ((lease, _),), _ = take_any(store, Offers())
        store.finish(lease, make.record(lease), counts=False, delay_s=5.0)
        assert take_any(store, Offers()).begun == []
        clock.now += 5.0
        assert len(take_any(store, Offers()).begun) == 1
