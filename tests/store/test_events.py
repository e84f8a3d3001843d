"""Readers of events: they miss nothing, nobody waits for them, and they are woken."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from proctor.errors import StoreError
from proctor.model.trial import RunStatus
from proctor.store.open import open_store
from proctor.store.steps import Ended, write_event
from proctor.store.store import Store

RUN = "20260101-aaaa"
LONG_S = 60.0


def written(store: Store, status: RunStatus = RunStatus.RUNNING) -> None:
    store.set_status(RUN, status)


class TestWaiting:
    def test_what_is_there_already_is_not_waited_for(self, store: Store, make):
        make.run(store)
        assert store.wait_events(0, LONG_S)
        last = store.events()[-1].id
        assert not store.wait_events(last, 0.0)

    @pytest.mark.parametrize("own", [True, False], ids=["by this store", "by another"])
    def test_a_reader_wakes_when_something_happens(self, store: Store, store_url: str, make, own: bool):
        make.run(store)
        last = store.events()[-1].id
        found: list[bool] = []
        reader = threading.Thread(target=lambda: found.append(store.wait_events(last, LONG_S, run_id=RUN)))
        reader.start()
        if own:
            written(store)
        else:
            with open_store(store_url) as other:
                written(other)
        reader.join(LONG_S / 2)
        assert found == [True]

    def test_what_happens_in_other_runs_does_not_end_the_wait(self, store: Store, make):
        make.run(store)
        make.run(store, "other")
        last = store.events()[-1].id
        store.set_status("other", RunStatus.RUNNING)
        assert not store.wait_events(last, 0.0, run_id=RUN)
        assert store.wait_events(last, 0.0)

    def test_the_newest_event_of_a_run_is_known(self, store: Store, make):
        assert store.last_event(RUN) == 0
        make.run(store)
        assert store.last_event(RUN) == store.events()[-1].id


class TestNotes:
    def test_notes_are_written_together_with_the_attempt_and_before_its_end(self, store: Store, make, clock):
        make.run(store, size=1)
        ((lease, _),), _ = store.take(RUN, worker="w", lease_s=30)
        store.note(lease, "attempt.phase", {"phase": "agent"})
        assert "attempt.phase" not in {event.kind for event in store.events()}
        clock.now = 100.0
        store.finish(lease, make.record(lease), counts=True)
        noted, ended, _ = store.events()[-3:]
        assert (noted.kind, noted.trial_key) == ("attempt.phase", lease.key)
        assert noted.data == {"attempt": 1, "phase": "agent"}
        assert ended.kind == "attempt.ended"
        assert 40.0 < noted.at < ended.at == 100.0, "it is told when it happened"

    def test_notes_are_written_on_request_and_those_of_a_lost_lease_are_dropped(self, store: Store, make):
        make.run(store, size=2)
        ((mine, _),), _ = store.take(RUN, worker="w", lease_s=30)
        ((lost, _),), _ = store.take(RUN, worker="v", lease_s=30)
        store.release_worker("v")
        before = store.events()[-1].id
        for lease in (mine, lost, mine):
            store.note(lease, "attempt.log", {"name": "agent.log", "bytes": 5})
        store.write_notes()
        store.write_notes()
        assert [event.trial_key for event in store.events(after=before)] == [mine.key, mine.key]

    def test_an_exchange_writes_them_first(self, store: Store, make):
        make.run(store, size=1)
        ((lease, _),), _ = store.take(RUN, worker="w", lease_s=30)
        store.note(lease, "attempt.phase", {"phase": "verify"})
        store.exchange(RUN, [Ended(lease, make.record(lease))], worker="w", lease_s=30, limit=1)
        assert [event.kind for event in store.events()][-3:] == [
            "attempt.phase",
            "attempt.ended",
            "trial.done",
        ]


@pytest.fixture
def postgres(postgres_url: str, make):
    with open_store(postgres_url) as store:
        make.run(store)
        yield store


@pytest.mark.needs("postgres")
class TestBelowTheHorizon:
    def test_an_event_of_a_transaction_that_is_slow_to_commit_is_not_passed_over(
        self, postgres: Store, postgres_url: str
    ):
        """The slow one has the smaller id, and the quick one commits first."""
        seen = [event.id for event in postgres.events()]
        with open_store(postgres_url) as slow:
            with slow._db.write() as tx:
                tx.execute("SELECT pg_current_xact_id()")  # from here on it has its number
                write_event(tx, RUN, "run.started", {})
                make_other_status(postgres_url)
                assert postgres.events(after=seen[-1]) == []
            found = postgres.events(after=seen[-1])
        assert [event.kind for event in found] == ["run.started", "run.imported"]

    def test_who_drew_a_smaller_number_may_write_later(self, postgres: Store, postgres_url: str):
        """A transaction has its number before others write, and its event after theirs were committed."""
        last = postgres.events()[-1].id
        with open_store(postgres_url) as early:
            with early._db.write() as tx:
                tx.execute("SELECT pg_current_xact_id()")
                make_other_status(postgres_url)
                assert postgres.events(after=last) == []
                write_event(tx, RUN, "run.started", {})
            kinds = [event.kind for event in postgres.events(after=last)]
        assert kinds == ["run.started", "run.imported"]

    def test_a_transaction_that_was_rolled_back_holds_up_nobody(self, postgres: Store, postgres_url: str):
        last = postgres.events()[-1].id

        def undone() -> None:
            with postgres._db.write() as tx:
                write_event(tx, RUN, "run.started", {})
                raise KeyError

        with pytest.raises(KeyError):
            undone()
        make_other_status(postgres_url)
        assert [event.kind for event in postgres.events(after=last)] == ["run.imported"]

    def test_reading_needs_no_lock_that_a_writer_waits_for(self, postgres: Store, postgres_url: str):
        """One that may wait for nothing writes while a reader has an open transaction, and the reverse."""
        with (
            open_store(postgres_url, busy_s=0.001) as writer,
            open_store(postgres_url, busy_s=0.001) as reader,
        ):
            with reader._db.write() as tx:
                tx.execute("SELECT id FROM events")
                written(writer)
            with writer._db.write() as tx:
                write_event(tx, RUN, "run.finished", {})
                assert [event.kind for event in reader.events()] == ["run.created", "run.started"]

    def test_one_transaction_may_not_write_more_events_than_it_has_ids_for(
        self, postgres: Store, monkeypatch: pytest.MonkeyPatch
    ):
        from proctor.store import postgres as module

        monkeypatch.setattr(module, "_ID_BITS", 1)

        def too_many() -> None:
            with postgres._db.write() as tx:
                for _ in range(3):
                    write_event(tx, RUN, "run.started", {})

        with pytest.raises(StoreError, match="2 events, not more"):
            too_many()
        assert postgres.run(RUN).status is RunStatus.PENDING

    def test_a_reader_whose_connection_was_cut_listens_again_and_misses_nothing(
        self, postgres: Store, postgres_url: str, cut: Callable[[str], None]
    ):
        last = postgres.events()[-1].id
        assert not postgres.wait_events(last, 0.01)
        cut(postgres_url)
        assert not postgres.wait_events(last, 0.3)
        written(postgres)
        assert postgres.wait_events(last, LONG_S)


def make_other_status(url: str) -> None:
    """Another process writes an event and commits."""
    with open_store(url) as other, other._db.write() as tx:
        event = {"run": RUN, "kind": "run.imported", "idx": None, "data": "{}"}
        from proctor.store.queries import INSERT_EVENT

        tx.events(INSERT_EVENT, (event,))


@pytest.fixture
def cut() -> Callable[[str], None]:
    import psycopg

    def end_all(url: str) -> None:
        with psycopg.connect(url, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND datname = %s",
                [other.info.dbname],
            )

    return end_all
