"""What records hold of a program's performance against the author's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from proctor.model.record import AttemptRecord
from proctor.quantity import number

QUANTITIES = {"time": "time_s", "cpu": "cpu_s", "memory": "memory_bytes", "custom": "custom"}
"""Metric → the name by which its values are shown in their unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One execution of the reference and one of the program, on the same input."""

    number: int
    """0 is the warm-up, which does not count."""
    seed: int
    order: str
    """Who ran first: `rp` or `pr`."""
    reference: float
    program: float

    def to_mapping(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def performance_of(record: AttemptRecord) -> dict[str, Any]:
    """What the record says of the program's performance; empty for a task without."""
    found = record.metrics.get("performance")
    return dict(found) if isinstance(found, Mapping) else {}


def gain_of(record: AttemptRecord) -> float | None:
    """The logarithm of how many times better the program was; None where no reward followed from it."""
    found = performance_of(record)
    ratio = number(found.get("ratio"))
    return math.log(ratio) if ratio and ratio > 0 and found.get("verdict") in {"settled", "erratic"} else None


def error_of(record: AttemptRecord) -> float | None:
    """Half of the interval of that, as a logarithm."""
    found = performance_of(record).get("interval")
    low, high = (number(each) for each in found) if isinstance(found, list | tuple) else (None, None)
    return math.log(high / low) / 2 if low and high and 0 < low <= high else None
