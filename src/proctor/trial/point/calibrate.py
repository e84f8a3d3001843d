"""How many calls make a slot, when warm-up is over, when enough was measured, what it comes to. Pure."""

from __future__ import annotations

import math
from bisect import insort

from proctor.analysis.median import SMALLEST, median_interval

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Literal


SLOT_S = 0.002
"""How long a calibrated slot should last: long for the clock, short for whatever disturbs a machine."""
MAX_LOOPS = 10_000_000
WARMUP_WINDOW = 5
WARMUP_FALL = 0.02
WARMUP_MAX_SLOTS = 200
WARMUP_MAX_S = 5.0


def calibrate_loops(time_slot: Callable[[int], float], *, slot_s: float = SLOT_S) -> int:
    """Calls per slot so that a slot lasts about `slot_s`. `time_slot(n)` makes n calls and says how long.

    Doubles until a slot is long enough to be believed, then extrapolates from the quicker of two looks.
    """
    loops = 1
    spent_s = time_slot(loops)
    while spent_s < slot_s / 4 and loops < MAX_LOOPS:
        loops = min(MAX_LOOPS, loops * (2 if spent_s > slot_s / 64 else 8))
        spent_s = time_slot(loops)
    if spent_s >= slot_s and loops == 1:
        return 1
    spent_s = min(spent_s, time_slot(loops))
    return max(1, min(MAX_LOOPS, math.ceil(loops * slot_s / max(spent_s, 1e-9))))


class WarmupRule:
    """Warm-up is over when the best of the last five times is within 2 % of the best of the five before."""

    __slots__ = ("asked", "spent_s", "times_s")

    def __init__(self, asked: int | Literal["auto"]) -> None:
        self.asked = asked
        self.times_s: list[float] = []
        self.spent_s = 0.0

    def add(self, duration_s: float, slot_s: float) -> None:
        """One more slot was dropped: its time per call, and as a whole."""
        self.times_s.append(duration_s)
        self.spent_s += slot_s

    @property
    def verdict(self) -> str | None:
        """Why warm-up is over, or None while it is not."""
        count = len(self.times_s)
        if self.asked != "auto":
            return "fixed" if count >= self.asked else None
        if count >= 2 * WARMUP_WINDOW:
            last = min(self.times_s[-WARMUP_WINDOW:])
            before = min(self.times_s[-2 * WARMUP_WINDOW : -WARMUP_WINDOW])
            if last >= before * (1 - WARMUP_FALL):
                return "settled"
        if count >= WARMUP_MAX_SLOTS:
            return "count"
        return "time" if count and self.spent_s >= WARMUP_MAX_S else None


class StopRule:
    """Whether enough was measured: a fixed number, or a narrow interval, or no time left."""

    __slots__ = ("_next_look", "_ordered", "aside", "asked", "failed", "good")

    def __init__(self, asked: Mapping[str, Any]) -> None:
        self.asked = asked
        """The fields of a spec's `Iterations`, as plain data."""
        self.good = 0
        self.failed = 0
        self.aside: list[float] = []
        """Times that do not count because the machine was disturbed."""
        self._ordered: list[float] = []
        self._next_look = SMALLEST

    def add(self, duration_s: float | None, *, calm: bool = True) -> None:
        """One more iteration: its time per call, None when it failed. It counts unless it was disturbed."""
        if duration_s is None:
            self.failed += 1
            return
        self.good += 1
        if not calm:
            self.aside.append(duration_s)
        elif self.asked["measured"] == "auto":
            insort(self._ordered, duration_s)

    @property
    def enough(self) -> bool:
        """Whether what counts would do without the rest."""
        needed: int = self.asked["min_measured"]
        return len(self._ordered) >= max(SMALLEST, needed)

    def forget(self) -> None:
        """What counted until now was disturbed as well."""
        self.aside += self._ordered
        self._ordered.clear()
        self._next_look = SMALLEST

    def take_all(self) -> None:
        """The machine does not become calm: everything counts."""
        self._ordered = sorted(self._ordered + self.aside)
        self.aside.clear()

    def verdict(self, elapsed_s: float) -> str | None:
        """Why it stops here, or None to go on."""
        asked, count = self.asked, self.good + self.failed
        if asked["measured"] != "auto":
            return "count" if count >= asked["measured"] else None
        if count >= asked["max_measured"]:
            return "max_measured"
        if elapsed_s >= asked["max_time_s"] and count:
            return "max_time_s"
        if self.failed >= max(1, asked["min_measured"]) and not self.good:
            return "failures"
        counted = len(self._ordered)
        if counted < max(asked["min_measured"], self._next_look):
            return None
        self._next_look = max(counted + 1, math.ceil(counted * 1.05))
        return "interval" if relative_width(self._ordered) <= asked["target_width"] else None


def relative_width(ordered: Sequence[float]) -> float:
    """Width of the median's interval as a fraction of the median; infinite when there is none yet."""
    interval = median_interval(ordered)
    middle = ordered[len(ordered) // 2] if ordered else 0.0
    if interval is None or middle <= 0:
        return math.inf
    return (interval[1] - interval[0]) / middle


def detectable_effect(values: Sequence[float]) -> float | None:
    """The smallest relative change that these values, in order of time, could show. None: too few to say.

    The wider of two doubts: the interval of the median, and how far the medians of five stretches of time lie
    apart, which sees drift that an interval over the whole does not.
    """
    if len(values) < 6:
        return None
    ordered = sorted(values)
    if ordered[len(ordered) // 2] <= 0:
        return None
    width = relative_width(ordered)
    if len(values) < 15:
        return width
    size = len(values) / 5
    medians = [median(values[round(index * size) : round((index + 1) * size)]) for index in range(5)]
    return max(width, (max(medians) - min(medians)) / median(values))


def median(values: Sequence[float]) -> float:
    """The middle of some values."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


BOOKKEEPING = frozenset({"iteration", "involuntary_switches", "page_faults", "gc_collections"})
"""Columns of an iteration that describe the circumstances and are no metric."""


def aggregate(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float | int]]:
    """Describe every numeric column; with six values or more the median has its 95 % interval."""
    from proctor.model.describe import describe
    from proctor.trial.point.values import flat_numbers

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
