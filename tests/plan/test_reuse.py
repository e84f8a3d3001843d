"""What an earlier run has answered: counted, the subject's own doing, and measured the same way."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from proctor.model.outcome import Blame, Outcome
from proctor.model.plan import Plan, PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.plan.reuse import reuse
from proctor.trial.experiment_record import CONTENDED


@dataclass(frozen=True)
class Row:
    record: AttemptRecord
    counts: bool = True


def record(key: str, outcome: Outcome = Outcome.PASSED, notes: tuple[str, ...] = ()) -> AttemptRecord:
    return AttemptRecord(key=key, number=1, outcome=outcome, started_at=0, ended_at=1, notes=notes)


PLAN = Plan(
    trials=tuple(
        PlannedTrial(key=key, index=at, kind="experiment", subject="demo", subject_digest="d", body=0)
        for at, key in enumerate("abc")
    )
)


def answered(*rows: Row, contended: bool = False) -> str:
    found = reuse(PLAN, rows, contended=contended)
    assert {trial.key for trial in (*found.answered, *found.missing)} == set("abc")
    return "".join(trial.key for trial in found.answered)


def test_what_was_answered_need_not_run_again() -> None:
    assert answered(Row(record("c")), Row(record("a")), Row(record("elsewhere"))) == "ac"
    assert answered() == ""


def test_an_attempt_that_does_not_count_answers_nothing() -> None:
    assert answered(Row(record("a"), counts=False)) == ""


@pytest.mark.parametrize("outcome", list(Outcome))
def test_only_the_subjects_own_outcomes_are_answers(outcome: Outcome) -> None:
    assert answered(Row(record("a", outcome))) == ("a" if outcome.blame is Blame.AGENT else "")


@pytest.mark.parametrize("note", ["contended: 4 trials at a time", CONTENDED])
def test_contended_timings_serve_only_a_contended_run(note: str) -> None:
    row = Row(record("a", notes=(note,)))
    assert answered(row) == ""
    assert answered(row, contended=True) == "a"
