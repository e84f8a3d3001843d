"""The numbers of a parameter point as every report shows them, and whether two points differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proctor.model.outcome import Outcome
from proctor.quantity import MISSING, show, span
from proctor.runfolder.read import TrialResult

NOT_DISTINGUISHABLE = "not distinguishable"
NO_INTERVAL = "no interval"


@dataclass(frozen=True, slots=True)
class PointNumbers:
    """One point in words: ready for a cell of the terminal, of Markdown or of the page."""

    outcome: str
    median: str
    interval: str
    """Of the median, 95 %."""
    half: float | None
    """Half of the interval as a share of the median."""
    mean: str
    p95: str
    n: str

    @property
    def cells(self) -> list[str]:
        """The numbers in the order of `HEADERS`."""
        return [self.median, self.interval, self.mean, self.p95, self.n]


HEADERS = ("median", "95 % interval", "mean", "p95", "n")


def numbers(trial: TrialResult, metric: str) -> PointNumbers:
    """What one point came to."""
    outcome = trial.outcome.value if trial.outcome else "no result"
    middle = trial.stat(metric, "p50")
    if middle is None:
        reward = trial.counted.reward if trial.counted else None
        return PointNumbers(outcome, show(metric, reward), MISSING, None, MISSING, MISSING, MISSING)
    ends = trial.interval
    return PointNumbers(
        outcome=outcome,
        median=show(metric, middle),
        interval=span(metric, *ends) if ends else MISSING,
        half=(ends[1] - ends[0]) / 2 / middle if ends and middle else None,
        mean=show(metric, trial.stat(metric, "mean")),
        p95=show(metric, trial.stat(metric, "p95")),
        n=str(int(trial.stat(metric, "count") or 1)),
    )


def all_passed(trials: Sequence[TrialResult]) -> bool:
    """Whether a column of outcomes would say the same in every row."""
    return all(trial.outcome is Outcome.PASSED for trial in trials)


def differ(one: TrialResult, other: TrialResult) -> bool | None:
    """Whether the intervals of two medians lie apart; None when one of them has no interval."""
    if one.interval is None or other.interval is None:
        return None
    return one.interval[1] < other.interval[0] or other.interval[1] < one.interval[0]


def ratio(slow: TrialResult, fast: TrialResult, metric: str) -> float | None:
    """How many times as long one takes as the other; None unless their intervals lie apart."""
    above, below = slow.stat(metric, "p50"), fast.stat(metric, "p50")
    if above is None or not below or not differ(slow, fast):
        return None
    return above / below


def ratio_text(trial: TrialResult, best: TrialResult, metric: str) -> str:
    """A point against the fastest one, or why no ratio is given."""
    middle = trial.stat(metric, "p50")
    if middle is None:
        return MISSING
    if trial is best:
        return "the fastest"
    found = ratio(trial, best, metric)
    if found is not None:
        return f"{found:.2f}×"
    return NO_INTERVAL if differ(trial, best) is None else NOT_DISTINGUISHABLE
