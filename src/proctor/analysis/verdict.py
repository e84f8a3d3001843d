"""What may be said about a change, from its interval, its p-value and the margin that is tolerated."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Verdict(StrEnum):
    """What the data say about B against A."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    """Any difference is inside the margin."""
    SMALL = "small"
    """There is a difference, and it is inside the margin."""
    NO_WORSE = "no_worse"
    """Not worse by more than the margin; whether it is better is open."""
    CHANGED = "changed"
    """A certain change of at least the margin, in a metric of which nobody said what is better."""
    INCONCLUSIVE = "inconclusive"


_NEWS = (
    Verdict.WORSE,
    Verdict.CHANGED,
    Verdict.INCONCLUSIVE,
    Verdict.BETTER,
    Verdict.NO_WORSE,
    Verdict.SMALL,
)


def judge(
    *,
    gain: float,
    low: float,
    high: float,
    p_value: float,
    margin: float,
    alpha: float = 0.05,
) -> Verdict:
    """Judge a gain (below zero: worse) with its interval.

    A change counts when it is certain and its best estimate is at least the margin. "Same", "small" and "no
    worse" are promises that the whole interval keeps within the margin. Everything else is inconclusive.
    """
    certain = p_value <= alpha and (low > 0 or high < 0)
    if certain and abs(gain) >= margin:
        return Verdict.BETTER if gain > 0 else Verdict.WORSE
    if -margin <= low and high <= margin:
        return Verdict.SMALL if certain else Verdict.SAME
    return Verdict.NO_WORSE if low >= -margin else Verdict.INCONCLUSIVE


def overall(verdicts: Iterable[Verdict]) -> Verdict:
    """One verdict over many points: the worst news wins, then doubt, then the best news."""
    found = set(verdicts)
    order = (
        Verdict.WORSE,
        Verdict.CHANGED,
        Verdict.INCONCLUSIVE,
        Verdict.BETTER,
        Verdict.NO_WORSE,
        Verdict.SMALL,
    )
    for verdict in order:
        if verdict in found:
            return verdict
    return Verdict.SAME if found else Verdict.INCONCLUSIVE
