"""Whether a race may end because the candidate is no worse: looked at when every task had one more round.

An interval that is looked at often excludes too much. So its error is shared over the rounds, most of it for
the last: shares of a whole add up to it, whatever the rounds have to do with each other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from proctor.analysis.distributions import normal_cdf, normal_quantile
from proctor.verdicts.race.design import RacePair

if TYPE_CHECKING:
    from proctor.analysis.compare import MissingBounds

ERROR = 0.025
"""Chance of passing a loss of the margin: that of a 95 % interval on one side."""
_FIRST = 2
"""One rollout of each task does not say how much a task varies."""


class Judged(NamedTuple):
    """A complete pair with the rewards of both sides; None on a side that could not be scored."""

    pair: RacePair
    baseline: float | None
    candidate: float | None

    @property
    def counts(self) -> bool:
        """Whether it is evidence: an error that no agent caused says nothing about either side."""
        return self.baseline is not None and self.candidate is not None


class Promise:
    """The looks of one race, fixed before it begins."""

    def __init__(self, pairs: Sequence[RacePair], margin: float) -> None:
        self.margin = margin
        ends = _rounds(pairs)
        self._shares = dict(zip(ends[_FIRST - 1 :], shares(len(ends)), strict=True) if ends[1:] else ())
        self._shares.setdefault(len(pairs), ERROR)

    def holds(self, judged: Sequence[Judged]) -> bool:
        """Whether a loss of more than the margin is excluded now; False between the looks."""
        share = self._shares.get(len(judged))
        if not share:
            return False
        if all(each.counts for each in judged):
            return _excludes_whole(judged, self.margin, 1 - 2 * share)
        bounds = compared(judged, 1 - 2 * share)
        return bounds is not None and excludes(bounds, self.margin)

    def level(self, judged: Sequence[Judged]) -> float:
        """Of the interval that was looked at last."""
        return 1 - 2 * self._shares.get(len(judged), ERROR)


def shares(rounds: int, error: float = ERROR) -> list[float]:
    """How much of the error each look from the second round on may spend: little early, most at the end.

    The spending of O'Brien and Fleming's boundary, by the share of the rounds.
    """
    bound = normal_quantile(1 - error / 2)
    spent = [2 * (1 - normal_cdf(bound / math.sqrt(at / rounds))) for at in range(_FIRST, rounds + 1)]
    return [after - before for before, after in pairwise([0.0, *spent])]


def _rounds(pairs: Sequence[RacePair]) -> list[int]:
    """After how many pairs each round is complete. Where rounds overlap, only the last has an end."""
    so_far = list(accumulate((each.rollout for each in pairs), max))
    to_come = list(accumulate((each.rollout for each in reversed(pairs)), min))[::-1]
    return [at for at in range(1, len(pairs)) if so_far[at - 1] < to_come[at]] + [len(pairs)] * bool(pairs)


def excludes(bounds: MissingBounds, margin: float) -> bool:
    """Whether every reading of what is missing excludes a loss of more than the margin."""
    claim = claim_of(bounds)
    readings = (bounds.excluded, bounds.as_zero, bounds.best_case)
    return all(each is not None and each.interval(claim).low >= -margin for each in readings)


def _excludes_whole(judged: Sequence[Judged], margin: float, level: float) -> bool:
    """The same where nothing is missing: one reading, and no p-value, which takes long."""
    from proctor.analysis.claim import widest_claim
    from proctor.analysis.compare import paired_scores

    sides: tuple[dict[str, list[float]], dict[str, list[float]]] = ({}, {})
    for each in judged:
        for rewards, reward in zip(sides, (each.baseline, each.candidate), strict=True):
            rewards.setdefault(each.pair.task, []).append(reward or 0.0)
    found = paired_scores(*sides, level=level, flips=1)
    return found is not None and found.interval(widest_claim(found.tasks)).low >= -margin


def compared(judged: Sequence[Judged], level: float = 0.95) -> MissingBounds | None:
    """The scores of both sides by task, as `proctor compare` takes them; None without a pair."""
    from proctor.analysis.compare import missing_bounds
    from proctor.analysis.estimate import TaskRewards

    if not judged:
        return None
    sides = []
    for side in ("baseline", "candidate"):
        scored: dict[str, list[float]] = {}
        errors: Counter[str] = Counter()
        for each in judged:
            rewards, reward = scored.setdefault(each.pair.task, []), getattr(each, side)
            if reward is None:
                errors[each.pair.task] += 1
            else:
                rewards.append(float(reward))
        sides.append(
            [
                TaskRewards(name=task, scored=tuple(rewards), errors=errors[task])
                for task, rewards in scored.items()
            ]
        )
    return missing_bounds(*sides, level=level)


def claim_of(bounds: MissingBounds) -> Any:
    """About these tasks, or about tasks like these where there are enough."""
    from proctor.analysis.claim import widest_claim

    return widest_claim(bounds.tasks)
