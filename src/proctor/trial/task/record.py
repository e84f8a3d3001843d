"""What the record of an attempt says besides its result: its image, the limits asked for, what it used."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, MutableSequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from proctor.agents.trajectory import Trajectory
from proctor.model.outcome import Outcome
from proctor.model.record import AttemptRecord
from proctor.sandbox.base import Limits, Root
from proctor.trial.progress import LiveSteps

if TYPE_CHECKING:
    from proctor.trial.task.models import AttemptModels
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


def usage_of(
    reported: Mapping[str, Any], trajectory: Trajectory, models: AttemptModels | None = None
) -> dict[str, Any]:
    """What the gateway counted. What the agent says differently is `reported`, beside it.

    Without a gateway the agent's report stays, and what it did not report is counted in its trajectory.
    """
    counted = {
        "prompt_tokens": int(trajectory.total("prompt_tokens")),
        "completion_tokens": int(trajectory.total("completion_tokens")),
        "cost_usd": trajectory.total("cost_usd"),
        "tool_calls": trajectory.tool_calls,
    }
    said = {**counted, **reported}
    if models is None or not models.used:
        if models and models.missing:  # it may have reached its model by a way of its own: nobody counted
            return {name: value for name, value in said.items() if value or name in reported}
        return said
    metered = models.usage()
    differs = {name: value for name, value in said.items() if value and metered.get(name, value) != value}
    own = {name: value for name, value in said.items() if name not in _METERED}
    return {**own, **metered, **({"reported": differs} if differs else {})}


_FEW, _LITTLE_BYTES = 20, 1 << 16
_METERED = frozenset({"prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd", "requests"})
"""What an agent may report, and what the gateway alone decides."""


def leaves_little(attempt: TaskAttempt) -> bool:
    """Whether the record of an attempt is made in a moment, so that an event loop may do it."""
    steps, tapes = attempt.trajectory.steps, attempt.models.tapes
    if len(steps) > _FEW or tapes or sum(len(str(step)) for step in steps) > _LITTLE_BYTES:
        return False
    left = _LITTLE_BYTES
    for part in ("logs", "verifier"):
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(attempt.folder / part) as entries:
            for number, entry in enumerate(entries):
                if number > _FEW or entry.is_dir(follow_symlinks=False):
                    return False
                left -= entry.stat(follow_symlinks=False).st_size
    return left >= 0


def build_record(attempt: TaskAttempt, started_at: float) -> AttemptRecord:
    """All that is kept of an attempt that has ended; its files are written here."""
    outcome = attempt.outcome or Outcome.SANDBOX_ERROR
    redactor, trajectory = attempt.redactor, attempt.trajectory
    # Text by text, because escapes would hide some secrets, then as a whole.
    trajectory.steps = redactor.value(trajectory.steps)
    files = attempt.setting.collector.write(
        attempt.folder, redactor, trajectory=redactor.whole(trajectory.to_json()), rubrics=attempt.rubrics
    )
    if attempt.models.used:
        (attempt.folder / LiveSteps.FILE).unlink(missing_ok=True)
    series = attempt.resources.keep(attempt.setting.collector, attempt.folder)
    tapes = attempt.models.keep_tapes(attempt.setting.collector, attempt.folder)
    found = {"rewards": attempt.parts, "steps": attempt.steps, "rubrics": attempt.rubrics}
    found |= {"judge": attempt.judge, "performance": attempt.performance}
    record = AttemptRecord(
        key=attempt.trial.key,
        number=attempt.lease.attempt,
        outcome=outcome,
        started_at=started_at,
        ended_at=attempt.setting.clock(),
        reward=attempt.reward if outcome.scored else None,
        failure=attempt.failure,
        phases_s=_phases(attempt),
        metrics={name: value for name, value in found.items() if value or name == "rewards"},
        ledger=attempt.ledger,
        usage=usage_of(attempt.usage, trajectory, attempt.models),
        artifacts=(*attempt.state, *attempt.artifacts, *tapes, *files, *series),
        notes=tuple(attempt.notes),
        worker=attempt.setting.worker,
        image=image_of(attempt.root),
        system_changes=attempt.system_changes,
        suspect=attempt.suspect,
    )
    return redactor.record(record)


def _phases(attempt: TaskAttempt) -> dict[str, float]:
    """The seconds of each phase; what the agent waited for budgets and providers is not its work."""
    found = dict(attempt.phases.seconds)
    if budget_s := min(attempt.models.budget_wait_s, found.get("agent", 0.0)):
        found["agent"] -= budget_s
        found["budget_wait"] = budget_s
    if waited_s := min(attempt.models.waited_s, found.get("agent", 0.0)):
        found["agent"] -= waited_s
        found["provider_wait"] = waited_s
    return found
