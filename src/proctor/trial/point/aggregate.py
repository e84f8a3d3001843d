"""The aggregates of a point's iterations: calculated after measuring, and again for a receipt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proctor.model.describe import describe
from proctor.trial.point.calibrate import median_interval
from proctor.trial.point.values import flat_numbers

BOOKKEEPING = frozenset({"iteration", "involuntary_switches", "page_faults", "gc_collections"})
"""Columns of an iteration that describe the circumstances and are no metric."""


def aggregate(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float | int]]:
    """Describe every numeric column; with six values or more the median has its 95 % interval."""
    columns: dict[str, list[float]] = {}
    for row in rows:
        for name, value in flat_numbers(row).items():
            if name not in BOOKKEEPING:
                columns.setdefault(name, []).append(float(value))
    found = {}
    for name, values in columns.items():
        found[name] = describe(values)
        if interval := median_interval(sorted(values)):
            found[name] |= {"p50_low": interval[0], "p50_high": interval[1]}
    return found
