"""Trials that were lost to others than the agent are done again on request; nothing else is."""

from __future__ import annotations

import threading
import time

import pytest
from tests.taking import take

from proctor.model.outcome import Outcome
from proctor.model.trial import RunStatus, TrialState
from proctor.store.open import open_store
from proctor.store.store import Store

RUN = "r1"


def finish_all(store: Store, make, *outcomes: Outcome) -> None:
    make.run(store, RUN, size=len(outcomes))
    for lease, outcome in zip(take(store, RUN, worker="w", lease_s=30, limit=99), outcomes, strict=True):
        store.finish(lease, make.record(lease, outcome), counts=True)


def test_what_was_lost_is_done_again_and_its_attempts_stay(store: Store, make):
    finish_all(store, make, Outcome.PASSED, Outcome.STARVED, Outcome.FAILED, Outcome.PROVIDER_ERROR)
    assert store.reopen_lost(RUN) == 2
    assert store.state_counts(RUN)[TrialState.PENDING] == 2
    assert store.state_counts(RUN)[TrialState.DONE] == 2
    assert store.check() == []
    told = store.events(run_id=RUN)[-1]
    assert (told.kind, told.data) == ("trials.pending", {"trials": 2, "reason": "lost"})
    again = take(store, RUN, worker="w", lease_s=30, limit=99)
    assert [(lease.index, lease.attempt) for lease in again] == [(1, 2), (3, 2)]
    for lease in again:
        store.finish(lease, make.record(lease), counts=True)
    rows = [
        (row.trial.index, row.record.number, row.record.outcome, row.counts) for row in store.attempts(RUN)
    ]
    assert rows == [
        (0, 1, Outcome.PASSED, True),
        (1, 1, Outcome.STARVED, False),
        (1, 2, Outcome.PASSED, True),
        (2, 1, Outcome.FAILED, True),
        (3, 1, Outcome.PROVIDER_ERROR, False),
        (3, 2, Outcome.PASSED, True),
    ]
    assert store.state_counts(RUN)[TrialState.DONE] == 4
    assert store.check() == []


@pytest.mark.parametrize("outcome", [each for each in Outcome if each is not Outcome.CANCELLED])
def test_only_who_is_not_to_blame_gets_another_attempt(store: Store, make, outcome):
    finish_all(store, make, outcome)
    assert store.reopen_lost(RUN) == int(outcome.retryable)
    assert store.reopen_lost(RUN) == 0, "once is enough"


def test_other_runs_stay_as_they_are(store: Store, make):
    finish_all(store, make, Outcome.WORKER_LOST)
    make.run(store, "r2")
    assert store.reopen_lost("r2") == 0
    assert store.state_counts(RUN)[TrialState.DONE] == 1


def lose(store: Store, number: int) -> None:
    """A worker begins the trial and is found dead."""
    ((_, _),), _ = store.take(RUN, worker=f"w{number}", lease_s=30)
    store.release_worker(f"w{number}")


def allowing(losses: int) -> dict[str, object]:
    """What a run's row says about its retries."""
    return {"resolved": {"retries": {"infrastructure": losses, "provider": 0}}}


def test_a_trial_that_loses_its_worker_too_often_ends_and_its_attempts_stay(store: Store, make, clock):
    make.run(store, RUN, size=1, **allowing(2))
    for number in (1, 2):
        lose(store, number)
        assert store.state_counts(RUN)[TrialState.PENDING] == 1
    lose(store, 3)
    assert store.state_counts(RUN)[TrialState.DONE] == 1
    assert store.counts(RUN) == {"worker_lost": 1}
    assert [(row.record.outcome, row.counts) for row in store.attempts(RUN)] == [
        (Outcome.WORKER_LOST, False),
        (Outcome.WORKER_LOST, False),
        (Outcome.WORKER_LOST, True),
    ]
    assert store.check() == []
    assert store.reopen_lost(RUN) == 1, "on request it is tried once more"
    store.take(RUN, worker="late", lease_s=30)
    clock.now = 100.0
    store.reap()
    assert store.counts(RUN) == {"worker_lost": 1}
    assert store.check() == []


def test_without_a_policy_a_lost_trial_is_tried_again(store, make):
    make.run(store, RUN, size=1)
    for number in range(1, 6):
        lose(store, number)
    assert store.state_counts(RUN)[TrialState.PENDING] == 1
    assert len(list(store.attempts(RUN))) == 5


def test_whoever_watches_over_the_trials_itself_gets_them_back_whatever_the_policy(store: Store, make, clock):
    make.run(store, RUN, size=2, **allowing(0))
    store.take(RUN, worker="w", lease_s=30)
    store.release_worker("w", again=True)
    store.take(RUN, worker="v", lease_s=30)
    clock.now = 31.0
    store.reap(again=True)
    assert store.state_counts(RUN)[TrialState.PENDING] == 2


def test_two_that_reap_at_once_take_each_trial_back_once(store: Store, store_url: str, make, clock):
    make.run(store, RUN, size=40, **allowing(0))
    make.run(store, "r2", size=40, **allowing(5))
    for run_id in (RUN, "r2"):
        store.take(run_id, worker="w", lease_s=30, limit=40)
    clock.now = 31.0
    found: list[list[tuple[str, int]]] = []

    def reap() -> None:
        with open_store(store_url, clock=clock) as other:
            found.append([(lease.run_id, lease.index) for lease in other.reap()])

    reapers = [threading.Thread(target=reap) for _ in range(4)]
    for each in reapers:
        each.start()
    for each in reapers:
        each.join()
    taken = [each for part in found for each in part]
    assert sorted(taken) == sorted((run_id, index) for run_id in (RUN, "r2") for index in range(40))
    assert store.counts(RUN) == {"worker_lost": 40}
    assert store.state_counts("r2")[TrialState.PENDING] == 40
    assert len(list(store.attempts("r2"))) == 40


@pytest.mark.parametrize("ahead_s", [40.0, -40.0])
def test_a_worker_whose_clock_is_wrong_neither_reaps_a_fresh_lease_nor_loses_its_own(
    store_url: str, make, monkeypatch: pytest.MonkeyPatch, ahead_s: float
):
    right = time.time
    with open_store(store_url) as punctual, open_store(store_url) as wrong:
        make.run(punctual, RUN, size=2)
        ((fresh, _),), _ = punctual.take(RUN, worker="punctual", lease_s=30)
        monkeypatch.setattr(time, "time", lambda: right() + ahead_s)
        ((own, _),), _ = wrong.take(RUN, worker="wrong", lease_s=30)
        assert wrong.reap() == []
        assert wrong.renew([own], lease_s=30) == []
        monkeypatch.undo()
        assert punctual.reap() == []
        assert punctual.lost([fresh]) == []
        wrong.finish(own, make.record(own), counts=True)
        punctual.finish(fresh, make.record(fresh), counts=True)
        assert all(abs(event.at - right()) < 20 for event in punctual.events())


def test_who_holds_a_run_and_until_when_is_known(store: Store, make, clock):
    make.run(store, RUN, size=3)
    assert store.holders(RUN) == {}
    take(store, RUN, worker="a", lease_s=30)
    clock.now = 5.0
    take(store, RUN, worker="b", lease_s=30, limit=2)
    assert store.holders(RUN) == {"a": 31.0, "b": 35.0}


def test_a_cancelled_run_stays_cancelled(store: Store, make, clock):
    make.run(store, RUN, size=1)
    store.set_status(RUN, RunStatus.CANCELLED)
    for status in (RunStatus.RUNNING, RunStatus.DONE, RunStatus.INTERRUPTED):
        store.set_status(RUN, status)
        assert store.run(RUN).status is RunStatus.CANCELLED
    clock.now = 3.0
    store.set_status(RUN, RunStatus.CANCELLED)
    assert store.run(RUN).finished_at == 3.0
