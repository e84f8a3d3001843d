"""Why rollouts did not pass, in the words of the errors, and whose logs are offered."""

from __future__ import annotations

import pytest

from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord, Failure
from proctor.runfolder.read import RunData, TrialResult
from proctor.verdicts.rollouts.evidence import evidence, reasons


def result(index: int, subject: str, agent: str, outcome: Outcome, why: str = "") -> TrialResult:
    planned = PlannedTrial(
        key=str(index), index=index, kind="task", subject=subject, subject_digest="d", body=0, agent=agent
    )
    failure = Failure(phase="image", type="ImageError", message=f"{why}\n  | output") if why else None
    record = AttemptRecord(
        key=str(index), number=1, outcome=outcome, started_at=1.0, ended_at=2.0, failure=failure
    )
    return TrialResult(planned=planned, attempts=(record,), counted=record)


def reasons_of(data: RunData) -> list[str]:
    return reasons(evidence(data))


def run(*trials: TrialResult) -> RunData:
    return RunData(info=None, trials=trials)  # type: ignore[arg-type]


def test_a_cause_is_told_once_per_task_with_its_first_line():
    lost = [result(at, "pull", agent, Outcome.IMAGE_ERROR, "no image") for at, agent in enumerate("ab")]
    assert reasons_of(run(*lost, result(2, "ok", "a", Outcome.FAILED))) == [
        "pull (2 rollouts): no image: output"
    ]


def test_the_oracle_without_a_solution_is_explained_though_it_counts():
    found = reasons_of(
        run(*(result(0, "t", agent, Outcome.AGENT_ERROR, "no solve.sh") for agent in ("oracle", "mini")))
    )
    assert found == ["t: no solve.sh: output"]


def test_of_many_causes_the_first_are_told():
    found = reasons_of(run(*(result(at, f"t{at}", "a", Outcome.IMAGE_ERROR, "no") for at in range(7))))
    assert found[0] == "t0: no: output"
    assert found[-1] == "… and 2 more"
    assert len(found) == 6


@pytest.mark.parametrize(
    ("ends", "wanted"),
    [
        ([("nop", Outcome.FAILED), ("mini", Outcome.FAILED), ("oracle", Outcome.FAILED)], 2),
        ([("nop", Outcome.FAILED), ("mini", Outcome.FAILED)], 1),
        ([("nop", Outcome.VERIFIER_ERROR), ("oracle", Outcome.PASSED)], 0),
        ([("nop", Outcome.FAILED), ("oracle", Outcome.PASSED)], None),
        ([("nop", Outcome.IMAGE_ERROR), ("oracle", Outcome.INVALID)], None),
    ],
)
def test_the_logs_that_tell_most_are_offered(ends, wanted):
    found = evidence(run(*(result(at, "t", *end) for at, end in enumerate(ends)))).worth_reading
    assert (found[0] if found else None) == wanted


def test_an_unexpected_error_tells_its_phase_and_type():
    assert Failure(phase="agent", type="KeyError", message="'x'").in_words == "agent: KeyError: 'x'"
    printed = Failure(phase="image", type="ImageError", message="'RUN x' ended\n  | one\n  | two\n  | \n")
    assert printed.in_words == "'RUN x' ended: two"
    cancelled = Failure(phase="run", type="Cancelled", message="the run was cancelled")
    assert cancelled.in_words == "the run was cancelled"
    assert Failure(phase="", type="ValueError", message="").in_words == "ValueError"
    assert Failure(phase="image", type="ImageError", message="no image\nmore").in_words == "no image"
