"""What the record of an attempt says besides its result: its image, the limits asked for, what it used."""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableSequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from proctor.agents.trajectory import Trajectory
from proctor.model.outcome import Outcome
from proctor.model.record import AttemptRecord
from proctor.sandbox.base import Limits, Root

if TYPE_CHECKING:
    from proctor.trial.task_trial import TaskAttempt


def image_of(root: Root | None) -> dict[str, Any]:
    """The root of an attempt; nothing when it came to none."""
    if root is None:
        return {}
    return {
        "name": root.image_name or root.image or "",
        "digest": root.image_digest,
        "host": root.host,
        "root": root.digest,
    }


def limits_asked(limits: Limits | None) -> dict[str, Any]:
    """The network and every limit that the sandbox was asked to have; `enforced` beside it says how."""
    if limits is None:
        return {}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in asdict(limits).items()
        if value not in (None, ())
    }


def added(
    so_far: Mapping[str, Any], reported: Mapping[str, Any], notes: MutableSequence[str]
) -> dict[str, Any]:
    """The usage of several legs together. What is not a finite amount is left out and noted."""
    total = dict(so_far)
    for name, value in reported.items():
        if value is None:
            continue  # an agent that does not know
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            notes.append(
                f"the agent reported usage['{name}'] = {value!r:.60}, which is not an amount; left out"
            )
        else:
            total[str(name)] = total.get(str(name), 0) + value
    return total


def usage_of(reported: Mapping[str, Any], trajectory: Trajectory) -> dict[str, Any]:
    """What the agent reported stays; what it did not report is counted in its trajectory."""
    counted = {
        "prompt_tokens": int(trajectory.total("prompt_tokens")),
        "completion_tokens": int(trajectory.total("completion_tokens")),
        "cost_usd": trajectory.total("cost_usd"),
        "tool_calls": trajectory.tool_calls,
    }
    return {**counted, **reported}


def build_record(attempt: TaskAttempt, started_at: float) -> AttemptRecord:
    """All that is kept of an attempt that has ended; its files are written here."""
    outcome = attempt.outcome or Outcome.SANDBOX_ERROR
    redactor, trajectory = attempt.redactor, attempt.trajectory
    # Text by text, because escapes would hide some secrets, then as a whole.
    trajectory.steps = redactor.value(trajectory.steps)
    files = attempt.setting.collector.write(
        attempt.folder, redactor, trajectory=redactor.whole(trajectory.to_json()), rubrics=attempt.rubrics
    )
    found = {"rewards": attempt.parts, "steps": attempt.steps, "rubrics": attempt.rubrics}
    record = AttemptRecord(
        key=attempt.trial.key,
        number=attempt.lease.attempt,
        outcome=outcome,
        started_at=started_at,
        ended_at=attempt.setting.clock(),
        reward=attempt.reward if outcome.scored else None,
        failure=attempt.failure,
        phases_s=attempt.phases.seconds,
        metrics={name: value for name, value in found.items() if value or name == "rewards"},
        ledger=attempt.ledger,
        usage=usage_of(attempt.usage, trajectory),
        artifacts=(*attempt.state, *attempt.artifacts, *files),
        notes=tuple(attempt.notes),
        worker=attempt.setting.worker,
        image=image_of(attempt.root),
        system_changes=attempt.system_changes,
        suspect=attempt.suspect,
    )
    return redactor.record(record)
