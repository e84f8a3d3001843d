"""The live matrix: tasks × competitors, a sign per trial. Small signs, because there may be ten thousand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proctor.model.outcome import Outcome, is_pass
from proctor.model.run import RunInfo
from proctor.server.reading.reading import Reading
from proctor.store.store import Store
from proctor.store.views.trials import State
from proctor.verdicts.rollouts.columns import Layout
from proctor.verdicts.rollouts.table import Arm, Row

ORDER = "tasks that pass most often first, then in the order of the plan"


def matrix(store: Store, reading: Reading, info: RunInfo) -> dict[str, Any]:
    """Every trial in its place."""
    layout = reading.rows.summaries.layout(store, info)
    states = store.views.trials.states(info.id)
    suspect = _suspects(store, reading, info)
    cells: dict[tuple[Row, Arm], list[dict[str, Any]]] = {}
    counts: dict[tuple[Row, Arm], dict[str, int]] = {}
    for key, indices in zip(layout.places, layout.trials, strict=True):
        cells[key] = [
            _sign(states[at], layout.rollout_of[at], suspect=at in suspect)
            for at in indices
            if at < len(states)
        ]
        counts[key] = _counts([states[at] for at in indices if at < len(states)])
    rows = sorted(layout.rows, key=lambda row: -_share(layout, counts, row))
    return {
        "run": info.id,
        "last_event": store.last_event(info.id),
        "columns": [{"agent": arm.agent, "model": arm.model, "label": arm.label} for arm in layout.arms],
        "rows": [
            {
                "task": row.label,
                "name": row.task,
                "cells": [cells.get((row, arm), []) for arm in layout.arms],
                "counts": [counts.get((row, arm), _counts(())) for arm in layout.arms],
            }
            for row in rows
        ],
        "order": ORDER,
        "total": info.total,
    }


def _sign(found: State, rollout: int, *, suspect: bool) -> dict[str, Any]:
    sign = {
        "i": found.index,
        "r": rollout,
        "s": found.state,
        "o": found.outcome,
        "w": found.reward,
        "t": None if found.took_s is None else round(found.took_s, 3),
    }
    return {**sign, "x": True} if suspect else sign


def _counts(states: Sequence[State]) -> dict[str, int]:
    """How many of some trials passed, are scored, and ended in an error."""
    ended = [(Outcome(each.outcome), each.reward) for each in states if each.outcome]
    return {
        "passed": sum(is_pass(*each) for each in ended),
        "scored": sum(outcome.scored for outcome, _ in ended),
        "errors": sum(outcome.error for outcome, _ in ended),
    }


def _share(layout: Layout, counts: dict[tuple[Row, Arm], dict[str, int]], row: Row) -> float:
    found = [counts[row, arm] for arm in layout.arms if (row, arm) in counts]
    scored = sum(each["scored"] for each in found)
    return sum(each["passed"] for each in found) / scored if scored else -1.0


def _suspects(store: Store, reading: Reading, info: RunInfo) -> set[int]:
    """Trials whose pass is in doubt. A record is looked at once: what counts does not change."""
    if info.kind != "task":
        return set()
    known = reading.suspects.get(info.id) or {}
    new = store.views.trials.suspects(info.id, {at: number for at, (number, _) in known.items()})
    found = known | {index: (number, suspect) for index, number, suspect in new}
    if len(found) != len(known):
        reading.suspects.put(info.id, found, weight=max(1, len(found)))
    return {index for index, (_, suspect) in found.items() if suspect}
