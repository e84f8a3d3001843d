"""The quick ways to read a run say what the thorough one says, on both databases."""

from __future__ import annotations

import pytest

from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial, trial_key
from proctor.model.record import Artifact, AttemptRecord, Failure
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus

RUN = "run-1"


@pytest.fixture
def filled(store):
    """Trials with one attempt, with two, with a long record, and with none."""
    trials, attempts = [], []
    for index in range(620):
        params = {"n": index}
        trials.append(
            PlannedTrial(
                key=trial_key(subject_digest="d", params=params),
                index=index,
                kind="experiment",
                subject="sort",
                subject_digest="d",
                body=0,
                params=params,
            )
        )
        if index == 5:
            continue
        failed = index == 7
        for number in (1, 2) if failed else (1,):
            broken = failed and number == 1
            record = AttemptRecord(
                key=trials[-1].key,
                number=number,
                outcome=Outcome.WORKER_LOST if broken else Outcome.PASSED,
                started_at=1.0,
                ended_at=2.5,
                metrics={"duration_s": {"p50": 0.5}},
                iterations=({"duration_s": 0.5, "x": "é"},) * (300 if index == 9 else 2),
                ledger={"cpu_s": 0.25},
                artifacts=(Artifact(name="log", digest="a" * 64, size_bytes=3),),
                notes=("noisy",),
                worker="w",
                failure=Failure(phase="work", type="Lost", message="gone") if broken else None,
            )
            attempts.append((record, not broken))
    info = RunInfo(
        id=RUN, name="sorting", kind="experiment", status=RunStatus.DONE, created_at=1.0, seed=0, total=620
    )
    store.import_run(info, trials, attempts)
    return store


def test_records_are_the_attempts_without_their_trials(filled):
    keys = [trial.key for trial in filled.planned(RUN)]
    thorough = [(row.trial.index, row.record, row.counts) for row in filled.attempts(RUN)]
    assert len(thorough) == 620
    assert list(filled.records(RUN, keys)) == thorough


def test_brief_records_have_what_are_columns(filled):
    keys = [trial.key for trial in filled.planned(RUN)]
    found = list(filled.brief_records(RUN, keys))
    thorough = list(filled.attempts(RUN))
    assert [
        (index, record.number, record.outcome, record.ended_at, counts) for index, record, counts in found
    ] == [
        (row.trial.index, row.record.number, row.record.outcome, row.record.ended_at, row.counts)
        for row in thorough
    ]
    assert all(not record.metrics and not record.iterations for _, record, _ in found)


@pytest.mark.parametrize("bodies", [True, False])
def test_results_have_every_trial_once_with_the_attempt_that_counts(filled, bodies):
    found = list(filled.results(RUN, bodies=bodies))
    assert [row.key for row in found] == [trial.key for trial in filled.planned(RUN)]
    assert [row.params["n"] for row in found] == list(range(620))
    assert (found[5].outcome, found[5].number) == (None, None)
    assert (found[7].outcome, found[7].number) == (Outcome.PASSED, 2)
    measured = found[9].measured
    assert [each["duration_s"] for each in measured.iterations] == ([0.5] * 300 if bodies else [])
    assert measured.ledger == ({"cpu_s": 0.25} if bodies else {})
