"""Trials that were lost to others than the agent are done again on request; nothing else is."""

from __future__ import annotations

import pytest

from proctor.model.outcome import Outcome
from proctor.model.trial import RunStatus, TrialState
from proctor.store.store import Store

RUN = "r1"


def finish_all(store: Store, make, *outcomes: Outcome) -> None:
    make.run(store, RUN, size=len(outcomes))
    for lease, outcome in zip(
        store.claim(RUN, worker="w", now=1.0, lease_s=30, limit=99), outcomes, strict=True
    ):
        store.finish(lease, make.record(lease, outcome), now=2.0, counts=True)


def test_what_was_lost_is_done_again_and_its_attempts_stay(store: Store, make):
    finish_all(store, make, Outcome.PASSED, Outcome.STARVED, Outcome.FAILED, Outcome.PROVIDER_ERROR)
    assert store.reopen_lost(RUN, 3.0) == 2
    assert store.state_counts(RUN)[TrialState.PENDING] == 2
    assert store.state_counts(RUN)[TrialState.DONE] == 2
    assert store.check() == []
    told = store.events(run_id=RUN)[-1]
    assert (told.kind, told.data) == ("trials.pending", {"trials": 2, "reason": "lost"})
    again = store.claim(RUN, worker="w", now=4.0, lease_s=30, limit=99)
    assert [(lease.index, lease.attempt) for lease in again] == [(1, 2), (3, 2)]
    for lease in again:
        store.finish(lease, make.record(lease), now=5.0, counts=True)
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
    assert store.reopen_lost(RUN, 3.0) == int(outcome.retryable)
    assert store.reopen_lost(RUN, 4.0) == 0, "once is enough"


def test_other_runs_stay_as_they_are(store: Store, make):
    finish_all(store, make, Outcome.WORKER_LOST)
    make.run(store, "r2")
    assert store.reopen_lost("r2", 3.0) == 0
    assert store.state_counts(RUN)[TrialState.DONE] == 1


def lose(store: Store, number: int, retries: int | None) -> None:
    """A worker begins the trial and is found dead."""
    ((_, _),), _ = store.take(RUN, worker=f"w{number}", now=float(number), lease_s=30)
    store.release_worker(f"w{number}", float(number), retries=retries)


def test_a_trial_that_loses_its_worker_too_often_ends_and_its_attempts_stay(store: Store, make):
    make.run(store, RUN, size=1)
    for number in (1, 2):
        lose(store, number, retries=2)
        assert store.state_counts(RUN)[TrialState.PENDING] == 1
    lose(store, 3, retries=2)
    assert store.state_counts(RUN)[TrialState.DONE] == 1
    assert store.counts(RUN) == {"worker_lost": 1}
    assert [(row.record.outcome, row.counts) for row in store.attempts(RUN)] == [
        (Outcome.WORKER_LOST, False),
        (Outcome.WORKER_LOST, False),
        (Outcome.WORKER_LOST, True),
    ]
    assert store.check() == []
    assert store.reopen_lost(RUN, 9.0) == 1, "on request it is tried once more"
    store.take(RUN, worker="late", now=10.0, lease_s=30)
    store.reap(100.0, RUN, retries=2)
    assert store.counts(RUN) == {"worker_lost": 1}
    assert store.check() == []


def test_without_a_policy_a_lost_trial_is_tried_again_and_what_had_not_begun_is_never_lost(store, make):
    make.run(store, RUN, size=1)
    for number in range(1, 6):
        lose(store, number, retries=None)
    store.claim(RUN, worker="w", now=9.0, lease_s=30)
    store.release_worker("w", 9.0, retries=0)
    assert store.state_counts(RUN)[TrialState.PENDING] == 1
    assert len(list(store.attempts(RUN))) == 5


def test_who_holds_a_run_and_until_when_is_known(store: Store, make):
    make.run(store, RUN, size=3)
    assert store.holders(RUN) == {}
    store.claim(RUN, worker="a", now=1.0, lease_s=30)
    store.claim(RUN, worker="b", now=5.0, lease_s=30, limit=2)
    assert store.holders(RUN) == {"a": 31.0, "b": 35.0}


def test_a_cancelled_run_stays_cancelled(store: Store, make):
    make.run(store, RUN, size=1)
    store.set_status(RUN, RunStatus.CANCELLED, 1.0)
    for status in (RunStatus.RUNNING, RunStatus.DONE, RunStatus.INTERRUPTED):
        store.set_status(RUN, status, 2.0)
        assert store.run(RUN).status is RunStatus.CANCELLED
    store.set_status(RUN, RunStatus.CANCELLED, 3.0)
    assert store.run(RUN).finished_at == 3.0
