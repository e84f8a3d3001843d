"""The live matrix: tasks × competitors, a sign per trial. Small signs, because there may be ten thousand."""

from __future__ import annotations

from typing import Any

from proctor.model.run import RunInfo
from proctor.server.reading.reading import Reading
from proctor.store.store import Store
from proctor.store.views.trials import State
from proctor.verdicts.rollouts.columns import Layout

ORDER = "tasks that pass most often first, then in the order of the plan"


def matrix(store: Store, reading: Reading, info: RunInfo) -> dict[str, Any]:
    """Every trial in its place."""
    layout = reading.rows.summaries.layout(store, info)
    states = store.views.trials.states(info.id)
    suspect = _suspects(store, reading, info)
    cells: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
    for key, indices in zip(layout.places, layout.trials, strict=True):
        cells[key] = [
            _sign(states[at], layout.rollout_of[at], suspect=at in suspect)
            for at in indices
            if at < len(states)
        ]
    rows = sorted(layout.rows, key=lambda row: -_share(layout, cells, row))
    return {
        "run": info.id,
        "last_event": store.last_event(info.id),
        "columns": [{"agent": arm.agent, "model": arm.model, "label": arm.label} for arm in layout.arms],
        "rows": [
            {"task": row.label, "name": row.task, "cells": [cells.get((row, arm), []) for arm in layout.arms]}
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


def _share(layout: Layout, cells: dict[tuple[Any, Any], list[dict[str, Any]]], row: Any) -> float:
    signs = [sign for arm in layout.arms for sign in cells.get((row, arm), ())]
    scored = [sign for sign in signs if sign["w"] is not None]
    return sum(sign["w"] >= 1 for sign in scored) / len(scored) if scored else -1.0


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
