"""Many workers on one store, and what is written together. On SQLite and on PostgreSQL."""

from __future__ import annotations

import threading

import pytest
from tests.store.workers import RUN, work

from proctor.errors import FenceError
from proctor.model.trial import Lease
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
        with store.batch():
            pass
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

    def test_a_batch_commits_together_or_not_at_all(self, store: Store, make):
        make.run(store, size=2)

        def half_done() -> None:
            with store.batch():
                (lease,) = store.claim(RUN, worker="w", lease_s=30)
                store.begin(lease)
                store.finish(lease, make.record(lease), counts=True)
                assert store.counts(RUN) == {"passed": 1}
                raise KeyError

        with pytest.raises(KeyError):
            half_done()
        assert store.counts(RUN) == {}
        with store.batch():
            (lease,) = store.claim(RUN, worker="w", lease_s=30)
            with pytest.raises(FenceError):
                store.begin(Lease(RUN, lease.key, 0, "w", 99, 1, 1.0))
            store.finish(lease, make.record(lease), counts=True)
        assert store.counts(RUN) == {"passed": 1}
