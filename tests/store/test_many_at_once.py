"""Many workers on one store, and what is written together. On SQLite and on PostgreSQL."""

from __future__ import annotations

import threading

import pytest
from tests.store.workers import RUN, work
from tests.taking import take

from proctor.errors import StoreError
from proctor.model.trial import Lease
from proctor.store.steps import Ended
from proctor.store.store import Store


class TestManyAtOnce:
    def test_threads_and_processes_share_thework_and_every_trial_counts_once(self, store: Store, make):
        make.run(store, size=40)
        workers = [threading.Thread(target=work, args=(store, f"w{number}", make)) for number in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert store.counts(RUN) == {"passed": 40}
        assert [row.trial.index for row in store.attempts(RUN)] == list(range(40))

    def test_a_forked_child_opens_its_own_connection(self, store: Store, make):
        import multiprocessing

        make.run(store, size=10)
        assert store.counts(RUN) == {}
        children = [
            multiprocessing.get_context("fork").Process(target=work, args=(store, f"c{number}", make))
            for number in range(2)
        ]
        for child in children:
            child.start()
        work(store, "parent", make)
        for child in children:
            child.join(60)
            assert child.exitcode == 0
        assert store.counts(RUN) == {"passed": 10}

    def test_cancelling_beside_claimingworkers_leaves_nothing_behind(self, store: Store, make):
        make.run(store, size=200)
        workers = [threading.Thread(target=work, args=(store, f"w{number}", make)) for number in range(3)]
        for worker in workers:
            worker.start()
        store.cancel(RUN)
        for worker in workers:
            worker.join()
        states = store.state_counts(RUN)
        assert states["done"] + states["cancelled"] == 200

    def test_what_ended_is_written_and_the_next_is_taken_together_or_not_at_all(self, store: Store, make):
        make.run(store, size=3)
        (lease,) = take(store, RUN, worker="w", lease_s=30)
        bad = make.record(lease, metrics={"x": {1, 2}})
        with pytest.raises(StoreError):
            store.exchange(RUN, [Ended(lease, bad)], worker="w", lease_s=30, limit=1)
        assert store.state_counts(RUN)["pending"] == 2
        ended = [Ended(lease, make.record(lease))]
        written, taken = store.exchange(RUN, ended, worker="w", lease_s=30, limit=1)
        assert written == [True]
        assert [trial.index for _, trial in taken.begun] == [1]
        assert taken.upcoming.index == 2
        assert store.counts(RUN) == {"passed": 1}

    def test_one_whose_lease_has_passed_on_does_not_hinder_the_others(self, store: Store, make):
        make.run(store, size=3)
        first, second = take(store, RUN, worker="w", lease_s=30, limit=2)
        stale = Lease(RUN, first.key, first.index, "w", 99, 1, 1.0)
        ended = [Ended(stale, make.record(first)), Ended(second, make.record(second))]
        written, taken = store.exchange(RUN, ended, worker="w", lease_s=30, limit=0)
        assert (written, taken.begun) == ([False, True], [])
        assert store.counts(RUN) == {"passed": 1}

    def test_counters_of_many_workers_are_in_rows_of_their_own_and_add_up(self, store: Store, make):
        make.run(store, size=8)
        for number in range(8):
            ((lease, _),), _ = store.take(RUN, worker=f"host:{number}", lease_s=30)
            store.finish(lease, make.record(lease), counts=True)
        assert store.counts(RUN) == {"passed": 8}
        assert store.run(RUN).done == store.runs()[0].done == 8
        assert len(store._db.read("SELECT shard FROM run_counts")) > 1
