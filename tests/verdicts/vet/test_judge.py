"""From how trials ended to what a task is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import jsonschema
import pytest

from proctor.errors import Exit
from proctor.model.document import Document, Table
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord, Failure
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.model.vetting import MARKER, Check, check_of
from proctor.render.document.html import html
from proctor.render.document.markdown import markdown
from proctor.render.results import vet
from proctor.runfolder.perf.schema import load_schema, problems
from proctor.runfolder.read import RunData, TrialResult
from proctor.verdicts.vet.certificate import TaskCertificate, TaskVerdict, exit_code
from proctor.verdicts.vet.document import summary, to_mapping
from proctor.verdicts.vet.judge import certificates
from proctor.verdicts.vet.words import headline, not_tried, sentence

GOOD: Mapping[str, Sequence[str | None]] = {
    "oracle": ["passed"] * 5,
    "nop": ["failed"] * 5,
    **{check.value: ["passed"] * 2 for check in Check if check.disturbed},
}


def vetted(
    changes: Mapping[str, Sequence[str | None]],
    *,
    task: str = "org/task",
    left_out: Mapping[str, str] | None = None,
) -> TaskCertificate:
    trials: list[TrialResult] = []
    for check, ends in {**GOOD, **changes}.items():
        disturbed = {"environment_variables": {MARKER: check}} if Check(check).disturbed else {}
        for rollout, end in enumerate(ends):
            planned = PlannedTrial(
                key=f"{len(trials):064d}", index=len(trials), kind="task", subject=task,
                subject_digest="d" * 64, body=0, agent="nop" if check == "nop" else "oracle",
                rollout=rollout, overrides=disturbed,
            )  # fmt: skip
            record = _record(planned, end) if end else None
            trials.append(TrialResult(planned, (record,) if record else (), record))
    info = RunInfo(
        id="run-1", name="vet", kind="task", status=RunStatus.DONE, created_at=0.0, seed=0, folder="data/vet",
        versions={"proctor": "0.1.0"},
    )  # fmt: skip
    checks = [check for check in Check if check.value in {**GOOD, **changes}]
    (found,) = certificates(RunData(info, tuple(trials)), checks=checks, left_out={"d" * 64: left_out or {}})
    document = to_mapping(found, made_at="2026-01-01T00:00:00Z")
    assert problems(document, load_schema("task-certificate")) == []
    jsonschema.validate(document, load_schema("task-certificate"))
    return found


def _record(trial: PlannedTrial, end: str) -> AttemptRecord:
    outcome = Outcome(end)
    failure = None
    if outcome not in {Outcome.PASSED, Outcome.FAILED, Outcome.PARTIAL}:
        failure = Failure(phase="x", type="Y", message=f"it was {end}")
    reward = {Outcome.PASSED: 1.0, Outcome.PARTIAL: 0.4}.get(outcome, 0.0) if outcome.scored else None
    return AttemptRecord(
        key=trial.key, number=1, outcome=outcome, started_at=0.0, ended_at=1.0, reward=reward,
        failure=failure, ledger={"backend": "bubblewrap"},
    )  # fmt: skip


def shown(*found: TaskCertificate) -> Document:
    return vet.certificates(found, run_id="run-1", folder=Path("data/vet/certificates"))


def checks(found: TaskCertificate) -> Table:
    (table,) = shown(found).sections[0].blocks
    assert isinstance(table, Table)
    return table


def test_a_task_that_holds_everywhere_is_sound_and_its_bound_is_honest():
    found = vetted({})
    assert found.verdict is TaskVerdict.SOUND
    assert found.findings == ()
    assert found.flake_bound == pytest.approx(0.434, abs=0.01)
    assert found.backend == "bubblewrap"
    text = sentence(found)
    assert "passed 5 of 5 (with 95 % confidence it fails less than 43 % of the time)" in text
    assert "it also passed under: one cpu, network off, clock, time zone, loaded" in text
    assert not_tried(found) == ""
    assert exit_code([found]) is Exit.OK


@pytest.mark.parametrize(
    ("changes", "verdict", "said"),
    [
        ({"oracle": ["failed"] * 5}, "broken", "the oracle never passed in 5"),
        ({"oracle": ["agent_error"] * 5}, "broken", "agent error: it was agent_error"),
        ({"oracle": ["verifier_error"] * 5}, "broken", "verifier error"),
        ({"oracle": ["invalid"]}, "broken", "it cannot be run: it was invalid"),
        ({"oracle": ["passed", "failed", "passed"]}, "flaky", "the oracle failed 1 of 3"),
        ({"nop": ["passed"] * 5}, "leaking", "an agent that does nothing passed 5 of 5"),
        ({"nop": ["failed", "passed"]}, "leaking", "an agent that does nothing passed 1 of 2"),
        ({"nop": ["verifier_error"] * 5}, "broken", "its tests gave no reward 5 of 5 times"),
        ({"clock": ["failed"] * 2}, "rotting", "400 days ahead failed 2 of 2"),
        ({"network_off": ["agent_timeout"] * 2}, "network", "without network failed 2 of 2 (agent timeout"),
        ({"one_cpu": ["passed", "failed"]}, "fragile", "on one CPU failed 1 of 2"),
        ({"time_zone": ["partial"] * 2}, "fragile", "in another time zone failed 2 of 2"),
        ({"loaded": ["failed"]}, "fragile", "on a busy machine failed 1 of 1"),
        ({"oracle": ["sandbox_error"] * 5}, "unsettled", "broken by infrastructure (sandbox error"),
        ({"clock": ["image_error"] * 2}, "unsettled", "400 days ahead was broken by infrastructure"),
        ({"loaded": [None, None]}, "unsettled", "has not ended"),
    ],
)
def test_how_the_trials_ended_is_what_the_task_is(
    changes: Mapping[str, Sequence[str | None]], verdict: str, said: str
):
    found = vetted(changes)
    assert found.verdict == verdict
    assert said in sentence(found)
    assert exit_code([found]) is (Exit.INFRASTRUCTURE if verdict == "unsettled" else Exit.WORSE)


def test_what_is_proven_stands_whatever_else_is_open():
    found = vetted({"nop": ["passed"] * 5, "clock": ["failed"] * 2, "loaded": ["sandbox_error"]})
    assert found.verdict is TaskVerdict.LEAKING
    assert [finding.verdict for finding in found.findings] == ["leaking", "rotting", "unsettled"]
    assert "; also rotting: the oracle 400 days ahead failed 2 of 2" in sentence(found)


def test_a_broken_task_is_not_called_fragile_as_well():
    everything = {check.value: ["failed"] * 2 for check in Check if check is not Check.NOP}
    assert [each.verdict for each in vetted(everything).findings] == [TaskVerdict.BROKEN]


def test_a_flaky_task_is_fragile_too_only_when_its_luck_does_not_explain_it():
    flaky = ["passed", "failed"] * 5
    luck = vetted({"oracle": flaky, "clock": ["failed"] * 2})
    assert [each.verdict for each in luck.findings] == [TaskVerdict.FLAKY]
    rotten = vetted({"oracle": ["passed"] * 9 + ["failed"], "clock": ["failed"] * 5})
    assert [each.verdict for each in rotten.findings] == [TaskVerdict.FLAKY, TaskVerdict.ROTTING]


def test_what_infrastructure_broke_is_told_once():
    found = vetted({check.value: ["image_error"] * 2 for check in Check})
    (finding,) = found.findings
    assert "every trial of the oracle, an agent that does nothing, the oracle on one CPU" in finding.sentence
    assert finding.sentence.count("it was image_error") == 1


def test_evidence_names_the_trials_that_went_wrong_and_where_they_lie():
    found = vetted({"oracle": ["passed", "failed", "passed", "agent_timeout"]})
    (finding,) = found.findings
    assert [each.trial for each in finding.evidence] == [1, 3]
    first, second, _ = shown(found).sections[1].blocks[0].entries[0].items
    assert first.text == "trial 1: failed"
    assert first.href == "../trials/org__task/1/evaluation_results.json"
    assert second.note == "oracle: it was agent_timeout"


def test_what_was_not_tried_is_said_with_the_reason():
    found = vetted(
        {"network_off": [], "clock": ["skipped"] * 2}, left_out={"network_off": "no network anyway"}
    )
    assert found.verdict is TaskVerdict.SOUND
    assert not_tried(found) == "not tried: network off (no network anyway), clock (it was skipped)"
    document = to_mapping(found, made_at="2026-01-01T00:00:00Z")
    assert document["checks"]["clock"] == {"tried": False, "why_not": "it was skipped"}
    assert "clock" not in [column.title for column in checks(found).columns]


def test_losses_to_infrastructure_and_free_points_are_noted():
    found = vetted({"oracle": ["passed", "sandbox_error"], "nop": ["partial"] * 5})
    assert found.verdict is TaskVerdict.SOUND
    assert "infrastructure lost 1 of 2 trials of the oracle" in found.notes
    assert "an agent that does nothing earned 0.4 of 1" in found.notes
    assert checks(found).rows[0][2].text == "1/1 (+1)"


def test_the_page_has_the_worst_first_and_no_markup_of_strangers():
    bad, good = vetted({"nop": ["passed"]}, task="z<b>|bad"), vetted({})
    text = markdown(shown(good, bad))
    assert "**1 of 2 tasks are sound; 1 leaking.**" in text
    assert text.index("bad is leaking") < text.index("org/task is sound")
    assert "<b>" not in text
    assert "<b>|" not in html(shown(good, bad))
    assert headline([good]) == "The task is sound."
    assert headline([good, good]) == "All 2 tasks are sound."
    assert summary([good, bad], run_id="run-1", made_at="2026-01-01T00:00:00Z")["exit_code"] == Exit.WORSE


def test_a_trial_knows_its_check():
    plain = PlannedTrial(
        key="k", index=0, kind="task", subject="t", subject_digest="d", body=0, agent="oracle"
    )
    assert check_of(plain) is Check.ORACLE
    assert not Check.NOP.disturbed
    assert Check.CLOCK.disturbed
