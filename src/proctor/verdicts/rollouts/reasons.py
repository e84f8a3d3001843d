"""Why rollouts did not pass: the errors in their own words, and whose logs to read first."""

from __future__ import annotations

from collections import Counter

from proctor.model.outcome import ENVIRONMENT_BROKEN, Blame, Outcome
from proctor.model.record import Failure
from proctor.runfolder.read import RunData, TrialResult

IDLE, ORACLE = "nop", "oracle"
"""Agents of which a failure is expected, and of which it means that the task is wrong."""
MOST_REASONS = 5


def reasons(data: RunData) -> list[str]:
    """A line per task and cause: what could not be scored, what agents broke, what the oracle could not do.

    The first few.
    """
    found: Counter[tuple[str, str]] = Counter()
    for trial in data.trials:
        record = trial.counted
        if record and record.failure and trial.outcome and _explains(trial, record.failure):
            found[trial.planned.subject, record.failure.in_words] += 1
    shown = [
        f"{subject}{f' ({count} rollouts)' if count > 1 else ''}: {why}"
        for (subject, why), count in list(found.items())[:MOST_REASONS]
    ]
    more = len(found) - MOST_REASONS
    return [*shown, f"… and {more} more"] if more > 0 else shown


def _explains(trial: TrialResult, failure: Failure) -> bool:
    """Whether a failure says more than that an agent did not solve its task."""
    unscored = trial.outcome is not None and not trial.outcome.scored
    return unscored or trial.planned.agent == ORACLE or failure.type == ENVIRONMENT_BROKEN


def worth_reading(data: RunData) -> TrialResult | None:
    """The trial whose logs tell most: one that the oracle failed, else another agent, else an error."""
    ranked = [(rank, trial) for trial in data.trials if (rank := _rank(trial)) is not None]
    return min(ranked, key=lambda pair: pair[0])[1] if ranked else None


def _rank(trial: TrialResult) -> int | None:
    outcome, agent = trial.outcome, trial.planned.agent
    if outcome in {None, Outcome.PASSED, Outcome.CANCELLED, Outcome.SKIPPED}:
        return None
    assert outcome is not None
    if not outcome.scored:
        # Of others the message is all there is: nothing has run that could have left a log.
        return 2 if outcome.blame is Blame.TASK or outcome is Outcome.PROVIDER_ERROR else None
    if agent == IDLE:
        return None
    if agent == ORACLE:
        return None if outcome is Outcome.AGENT_ERROR else 0  # its reason is told
    return 1
