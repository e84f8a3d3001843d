"""Judge an attempt that has just ended. Its sandbox is gone; what it left is in its folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proctor.model.outcome import Outcome, from_reward
from proctor.model.record import Artifact, Failure
from proctor.threads import in_thread
from proctor.trial.judge.judge import FILE, TAPE, Judged, encoded, judge
from proctor.trial.judge.prompt import Material
from proctor.trial.judge.work import DIFF, LOG, MOST_BYTES, material

if TYPE_CHECKING:
    from proctor.trial.collect import Collector
    from proctor.trial.redact import Redactor
    from proctor.trial.task_trial import TaskAttempt

_BY_REWARD = {Outcome.PASSED, Outcome.FAILED, Outcome.PARTIAL}


async def judge_attempt(attempt: TaskAttempt) -> None:
    """Ask the judge, if there is one and there is work to judge, and add what it says to the attempt."""
    spec, outcome = attempt.plan.judge, attempt.outcome
    if spec is None or outcome is None or not outcome.scored:
        return
    reward = None if attempt.task.needs_judge else attempt.reward
    with attempt.phases.phase("judge"):
        work = await in_thread(_work_of, attempt, outcome, reward)
        judged = await judge(
            attempt.setting.models,
            spec,
            attempt.plan.criteria,
            work,
            attempt.trial,
            attempt.lease,
            rows=attempt.rubrics,
            unit_score=reward,
        )
    attempt.rubrics, attempt.judge = judged.rows, judged.summary
    attempt.artifacts += await in_thread(
        kept, judged, attempt.setting.collector, attempt.folder, attempt.redactor
    )
    if judged.missing:
        attempt.notes.append(f"the judge's score is missing: {attempt.redactor.text(judged.missing)}")
    attempt.outcome, attempt.reward, attempt.failure = decided(judged, outcome, reward, attempt.failure)


def _work_of(attempt: TaskAttempt, outcome: Outcome, reward: float | None) -> Material:
    work = material(
        attempt.task,
        outcome=outcome.value,
        reward=reward,
        metrics={"rewards": attempt.parts, "steps": attempt.steps, "rubrics": attempt.rubrics},
        diff=_beginning(attempt.folder / DIFF),
        log=_end(attempt.folder / LOG),
        steps=attempt.trajectory.steps,
    )
    return without_secrets(work, attempt.redactor)


def decided(
    judged: Judged, outcome: Outcome, reward: float | None, failure: Failure | None
) -> tuple[Outcome, float | None, Failure | None]:
    """Outcome, reward and failure: the tests' unless the spec gives the reward to the judge.

    Where that judge has no score, nobody's zero is made of it: the trial is not in the score.
    """
    if not judged.summary["decides"]:
        return outcome, reward, failure
    if judged.score is None:
        lost = Outcome.CANCELLED if judged.spent else Outcome.PROVIDER_ERROR
        kind = Failure.lasting_type("ProviderError")  # another try would let the agent work again
        return lost, None, Failure(phase="judge", type=kind, message=judged.missing)
    return (from_reward(judged.score) if outcome in _BY_REWARD else outcome), judged.score, failure


def kept(judged: Judged, collector: Collector, folder: Path, redactor: Redactor) -> list[Artifact]:
    """The judge's files, without secrets."""
    if not judged.document:
        return []
    found = [collector.keep(folder, FILE, redactor.whole(encoded(judged)))]
    return [*found, collector.keep(folder, TAPE, judged.tape)] if judged.tape else found


def without_secrets(work: Material, redactor: Redactor) -> Material:
    """What leaves this machine for the judge's provider."""
    texts: dict[str, Any] = {
        name: redactor.text(getattr(work, name)) for name in ("instruction", "diff", "tests", "trajectory")
    }
    return Material(**texts)


def _beginning(file: Path) -> bytes:
    return _read(file, 0)


def _end(file: Path) -> bytes:
    try:
        return _read(file, max(0, file.stat().st_size - MOST_BYTES))
    except OSError:
        return b""


def _read(file: Path, start: int) -> bytes:
    """Some of a file of the attempt's own folder; nothing where there is none, and no link is followed."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return b""
    with os.fdopen(fd, "rb") as opened:
        opened.seek(start)
        return opened.read(MOST_BYTES)
