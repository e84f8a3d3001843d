"""The certificate's phrases: shares, intervals and effects as people say them."""

from __future__ import annotations

from collections.abc import Sequence

from proctor.analysis.aa import AlarmRate
from proctor.quantity import significant
from proctor.verdicts.aa.certificate import Trial


def percent(share: float) -> str:
    """A share with enough digits to tell it from zero."""
    if 0 < share < 0.0005:
        return "under 0.1 %"
    return f"{100 * share:.1f} %"


def rate(found: AlarmRate) -> str:
    """A share with its interval."""
    span = f"{percent(found.interval.low)} to {percent(found.interval.high)}"
    return f"{percent(found.share)} (95 % interval {span})"


def points(value: float) -> str:
    """A difference of scores."""
    return f"{significant(100 * value, 2)} pp"


def plural(count: int, noun: str) -> str:
    """A count with its noun."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def worst(trials: Sequence[Trial]) -> Trial:
    """The pairs that count for the verdict: those with the most certain excess, else the largest share."""
    return max(trials, key=lambda trial: (trial.gate.interval.low > 0.05, trial.gate.share))


def hours(value: float) -> str:
    """A time in the unit that reads well."""
    if value < 1 / 30:
        return f"{significant(3600 * value, 2)} s"
    return f"{significant(60 * value, 2)} min" if value < 2 else f"{significant(value, 2)} h"
