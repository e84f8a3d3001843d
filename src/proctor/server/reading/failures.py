"""Errors of a run, alike ones together: by outcome, phase, type and message, whatever figures are in it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from proctor.model.outcome import Outcome
from proctor.store.store import Store

MOST_INDICES = 50
MOST_TASKS = 20
MOST_GROUPS = 200
_USUAL = frozenset({Outcome.FAILED.value, Outcome.PARTIAL.value})
_VARYING = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{8,}\b|\d+(?:[.,]\d+)*|/[^\s'\":,]+", re.IGNORECASE)
"""What differs between messages that mean the same: numbers, digests, paths."""


@dataclass(slots=True)
class _Group:
    outcome: str
    failure: Mapping[str, Any]
    count: int = 0
    tasks: dict[str, int] = field(default_factory=dict)
    indices: list[int] = field(default_factory=list)


def errors(store: Store, run_id: str) -> dict[str, Any]:
    """Every group, the largest first. An agent that did not solve its task is a result, not an error."""
    groups: dict[tuple[str, ...], _Group] = {}
    for index, task, outcome, failure in store.views.trials.failures(run_id):
        if failure is None and outcome in _USUAL:
            continue
        found = failure or {}
        phase, kind, message = (str(found.get(name) or "") for name in ("phase", "type", "message"))
        group = groups.setdefault((outcome, phase, kind, alike(message)), _Group(outcome, found))
        group.count += 1
        group.tasks[task] = group.tasks.get(task, 0) + 1
        if len(group.indices) < MOST_INDICES:
            group.indices.append(index)
    ordered = sorted(groups.items(), key=lambda each: (-each[1].count, each[1].indices))
    return {
        "groups": [_written(key, group) for key, group in ordered[:MOST_GROUPS]],
        "total": sum(group.count for group in groups.values()),
        "left_out": max(0, len(ordered) - MOST_GROUPS),
    }


def alike(message: str) -> str:
    """The first lines of a message without what varies."""
    return _VARYING.sub("#", "\n".join(message.strip().splitlines()[:3]))[:500]


def _written(key: tuple[str, ...], group: _Group) -> dict[str, Any]:
    outcome = Outcome(group.outcome)
    return {
        "signature": hashlib.sha256("\0".join(key).encode("utf-8", "replace")).hexdigest()[:16],
        "outcome": outcome,
        "blame": outcome.blame,
        "scored": outcome.scored,
        "retryable": outcome.retryable,
        "phase": key[1],
        "type": key[2],
        "message": str(group.failure.get("message") or "")[:2000],
        "traceback": str(group.failure.get("traceback") or "")[:8000],
        "count": group.count,
        "tasks": sorted(group.tasks, key=lambda task: (-group.tasks[task], task))[:MOST_TASKS],
        "first": group.indices[0],
        "indices": group.indices,
    }
