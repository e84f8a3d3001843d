"""Who works, and which of many runs is served next, on both databases."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec.structs import replace
from tests.taking import take_any

from proctor.model.plan import Plan
from proctor.model.trial import Offers, RunStatus
from proctor.store import choice
from proctor.store.choice import Wish
from proctor.store.fleet import SEEN_S, WorkerInfo, nobody_can
from proctor.store.open import open_store
from proctor.store.service.ownership import Owner
from proctor.store.store import Store

WORKER = WorkerInfo(name="w", host="h", version="1", parallel=4, memory_mb=1000, cpus=2.0)


def a_run(
    store: Store, make, run_id: str, *, size=3, memory_mb=0, cpus=0.0, owner="", created_at=1.0, **resolved
):
    plan = make.plan(size, subject=run_id)
    trials = tuple(replace(trial, kind="task", subject_digest="d", path="/t") for trial in plan.trials)
    info = make.info(
        run_id,
        kind="task",
        status=RunStatus.RUNNING,
        created_at=created_at,
        resolved={"sandbox": {"backend": "auto"}, **resolved},
    )
    owned = Owner(project="default", user=owner) if owner else None
    store.create_run(
        info, Plan(trials=trials, memory_bytes={"d": memory_mb << 20}, cpus={"d": cpus}), (), owned
    )


def promised(store: Store, offers: Offers, worker: str, limit: int) -> list[int]:
    """The memory of the trials that a worker gets, the least first."""
    taken = store.exchange_any([], Wish(offers, limit), worker=worker, lease_s=30)[2]
    return sorted(lease.memory_mb for lease, _ in taken.begun)


def served(store: Store, offers: Offers, times: int) -> list[str]:
    taken = [take_any(store, offers).begun for _ in range(times)]
    return [begun[0][0].run_id if begun else "" for begun in taken]


class TestTheOrder:
    def test_the_higher_priority_goes_first(self, store: Store, make):
        a_run(store, make, "usual", created_at=1.0)
        a_run(store, make, "urgent", created_at=9.0, size=2)
        store.service.queue.set_priority("urgent", 5)
        assert served(store, Offers(), 3) == ["urgent", "urgent", "usual"]

    def test_an_owner_with_many_runs_gets_no_more_than_one_with_few(self, store: Store, make):
        for number in range(3):
            a_run(store, make, f"ada{number}", owner="ada", created_at=float(number))
        a_run(store, make, "bob", owner="bob", created_at=9.0)
        found = served(store, Offers(), 6)
        assert found.count("bob") == 3, found
        assert {each for each in found if each != "bob"} == {"ada0", "ada1", "ada2"}

    def test_a_worker_for_one_run_gets_no_other(self, store: Store, make):
        a_run(store, make, "one")
        a_run(store, make, "two")
        assert served(store, Offers(runs=("two",)), 4) == ["two", "two", "two", ""]


class TestNeeds:
    def test_a_trial_goes_to_a_worker_that_has_all_of_its_labels(self, store: Store, make):
        a_run(store, make, "r", size=1, labels=["gpu", "arch=aarch64"])
        for labels in ((), ("gpu",), ("arch=aarch64", "gp", "u"), ("gpuarch=aarch64",)):
            assert served(store, Offers(labels=labels), 1) == [""], labels
        assert served(store, Offers(labels=("more", "arch=aarch64", "gpu")), 1) == ["r"]

    def test_memory_is_promised_once(self, store: Store, make):
        a_run(store, make, "r", size=5, memory_mb=400)
        taken = take_any(store, Offers(memory_mb=1000), 5)
        assert [lease.memory_mb for lease, _ in taken.begun] == [400, 400]

    def test_workers_of_one_host_promise_its_memory_once(self, store: Store, make):
        a_run(store, make, "r", size=5, memory_mb=400)
        a_run(store, make, "small", size=1, memory_mb=100, created_at=9.0)
        offers = Offers(memory_mb=1000, place="host")
        for name in ("a", "b"):
            store.fleet.seen(replace(WORKER, name=name, place="host"))
        store.fleet.seen(replace(WORKER, name="far", place="another"))
        assert promised(store, offers, "a", 1) == [400]
        assert promised(store, replace(offers, place="another"), "far", 5) == [100, 400, 400]
        assert promised(store, offers, "b", 5) == [400], "of 600 MB that are left"
        assert promised(store, replace(offers, memory_mb=600), "b", 5) == [], "its own it takes off itself"

    def test_what_is_too_large_for_what_is_left_of_a_host_does_not_stand_before_the_rest(self, store, make):
        a_run(store, make, "large", size=5, memory_mb=900)
        a_run(store, make, "small", size=1, memory_mb=100, created_at=9.0)
        a_run(store, make, "any", size=1, created_at=9.5)
        offers = Offers(memory_mb=1000, place="host")
        for name in ("a", "b"):
            store.fleet.seen(replace(WORKER, name=name, place="host"))
        assert promised(store, offers, "a", 1) == [900]
        assert promised(store, offers, "b", 5) == [0, 100]

    def test_a_dead_worker_s_memory_is_free_when_its_trials_are_taken_back(self, store: Store, make, clock):
        a_run(store, make, "r", size=2, memory_mb=600)
        offers = Offers(memory_mb=1000, place="host")
        for name in ("dead", "lives"):
            store.fleet.seen(replace(WORKER, name=name, place="host"))
        assert promised(store, offers, "dead", 1) == [600]
        clock.now += SEEN_S + 100
        assert promised(store, offers, "lives", 2) == [], "its sandbox may still be there"
        store.reap()
        assert promised(store, offers, "lives", 2) == [600]

    @pytest.mark.needs("postgres")
    def test_two_that_take_at_the_same_moment_promise_the_memory_of_their_host_once(self, postgres_url, make):
        waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        wish = Wish(Offers(memory_mb=1000, place="host"), 5)
        with open_store(postgres_url) as store, ThreadPoolExecutor(1) as other:
            a_run(store, make, "r", size=20, memory_mb=400)
            for name in ("a", "b"):
                store.fleet.seen(replace(WORKER, name=name, place="host"))
            with store._db.write() as tx:
                first = choice.take_next(tx, wish, worker="a", lease_s=30)[1]
                second = other.submit(store.exchange_any, [], wish, worker="b", lease_s=30)
                deadline = time.monotonic() + 30
                while not second.done() and not store._db.read(waits)[0][0]:
                    assert time.monotonic() < deadline
            assert [lease.memory_mb for lease, _ in first.begun] == [400, 400]
            assert second.result(30)[2].begun == []

    def test_processors_that_a_task_asks_for_are_a_need_unless_the_spec_says_otherwise(self, store, make):
        a_run(store, make, "r", size=1, cpus=4.0)
        assert served(store, Offers(cpus=2.0), 1) == [""]
        assert served(store, Offers(cpus=4.0), 1) == ["r"]
        a_run(store, make, "fewer", size=1, cpus=4.0, sandbox={"backend": "auto", "cpus": 1})
        assert served(store, Offers(cpus=2.0), 1) == ["fewer"]

    def test_processors_that_a_worker_does_not_have_are_left_to_others(self, store: Store, make):
        a_run(store, make, "r", size=1, sandbox={"backend": "auto", "cpus": 4})
        assert served(store, Offers(cpus=2.0), 1) == [""]
        assert served(store, Offers(cpus=4.0), 1) == ["r"]


class TestTheRegistry:
    def test_a_worker_is_there_until_it_ends_or_falls_silent(self, store: Store, clock):
        store.fleet.seen(replace(WORKER, labels=("gpu", "arch=x"), backends=("podman",)))
        store.fleet.seen(replace(WORKER, name="v", draining=True, running=3))
        (v, w) = store.fleet.live()
        assert (v.draining, v.running) == (True, 3)
        assert (w.labels, w.backends) == (("arch=x", "gpu"), ("podman",))
        store.fleet.gone("v")
        assert [each.name for each in store.fleet.live()] == ["w"]
        clock.now += SEEN_S + 1
        assert store.fleet.live() == []

    def test_what_nobody_can_execute_is_told(self, store: Store, make):
        a_run(store, make, "r", size=2, memory_mb=4096, labels=["gpu"])
        store.fleet.seen(replace(WORKER, labels=("gpu",)))
        said = nobody_can(store.fleet.unmet("r"))
        assert said.startswith("2 trials wait for a worker that is not there")
        assert "4096 MB of memory, the label gpu" in said
        store.fleet.seen(replace(WORKER, name="big", memory_mb=8192, labels=("gpu",)))
        assert nobody_can(store.fleet.unmet("r")) == ""
        store.fleet.seen(replace(WORKER, name="big", memory_mb=8192, labels=("gpu",), draining=True))
        assert store.fleet.unmet("r"), "who drains takes nothing more"

    def test_why_every_worker_that_could_take_a_run_does_not_is_told(self, store: Store, make):
        a_run(store, make, "r", size=2)
        store.fleet.seen(replace(WORKER, left={"r": "no key for the model"}))
        said = nobody_can(store.fleet.unmet("r"))
        assert said == f"2 trials wait, and no worker takes them: {WORKER.host}: no key for the model"
        store.fleet.seen(replace(WORKER, name="another", left={"else": "too old"}))
        assert nobody_can(store.fleet.unmet("r")) == ""

    def test_only_of_a_run_for_workers_is_it_told_that_none_can(self, store: Store, make):
        a_run(store, make, "here", labels=["gpu"], engine="local")
        a_run(store, make, "there", labels=["gpu"], engine="celery")
        assert store.unattended([]) == {}
        told = store.unattended(["here", "there"])
        assert told.keys() == {"there"}
        assert told["there"].startswith("3 trials wait for a worker that is not there: needs the label gpu")
        store.fleet.seen(replace(WORKER, labels=("gpu",)))
        assert store.unattended(["here", "there"]) == {}

    def test_demand_is_counted_by_sandbox(self, store: Store, make):
        a_run(store, make, "any", size=2)
        a_run(store, make, "boxed", size=3, sandbox={"backend": "podman"})
        store.take("any", worker="w", lease_s=30)
        assert store.fleet.demand("boxed") == {"": (1, 0), "podman": (3, 3)}
        assert store.fleet.takeable_of("any", "", 9) == [1]

    def test_a_place_is_free_where_a_live_worker_holds_no_trial(self, store: Store, make):
        a_run(store, make, "r", size=3)
        store.fleet.seen(replace(WORKER, backends=("podman",)))
        store.fleet.seen(replace(WORKER, name="leaves", draining=True))
        store.fleet.seen(replace(WORKER, name="other", run="another"))
        assert store.fleet.free_places("r") == [(4, ("podman",))]
        take_any(store, Offers(), 3)
        assert store.fleet.free_places("r") == [(1, ("podman",))]


@pytest.mark.parametrize("reason", ["", "the budget of the run is spent"])
def test_a_coordinator_hears_that_a_budget_is_spent(store: Store, make, reason):
    a_run(store, make, "r")
    seen = store.coordination.last_event("r")
    if reason:
        store.service.queue.tell("r", "run.spent", {"reason": reason})
    assert store.coordination.spent_since("r", seen) == reason
