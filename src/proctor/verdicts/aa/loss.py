"""What loss a suite can detect, spread evenly over its tasks or concentrated in a few of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proctor.analysis.aa import Urns
from proctor.analysis.distributions import t_quantile
from proctor.analysis.power import Detectable, Spread
from proctor.verdicts.aa.certificate import Power

USEFUL = 5.0
"""A suite whose smallest detectable loss is more than this many margins is quiet but blind."""


@dataclass(frozen=True, slots=True)
class Losses:
    """The smallest loss that is detected with 80 % probability; None: not even a total loss."""

    even: float | None
    """Each task loses the same share of its score."""
    concentrated: float | None
    """Some tasks lose everything and the others nothing."""

    @property
    def claimed(self) -> float | None:
        """The larger one: what is detected however the loss is spread."""
        if self.even is None or self.concentrated is None:
            return None
        return max(self.even, self.concentrated)


def is_blind(loss: float, margin: float) -> bool:
    """Whether a loss many times the tolerated one could go unseen."""
    return loss > USEFUL * margin * (1 + 1e-9)


class Curve:
    """How the detectable loss falls with rollouts, brought to what was simulated at one number of them."""

    def __init__(self, spread: Spread, urns: Urns, *, these_tasks: bool) -> None:
        df = max(spread.tasks - 1, 1)
        self._certain = t_quantile(0.975, df) + t_quantile(0.8, df)
        self._spread, self._tasks = spread, max(spread.tasks, 1)
        self._mean = urns.mean
        # Of tasks that lose everything at random: what one such task adds to the spread between tasks.
        self._square = 0.0 if these_tasks else float((urns.means**2).mean())

    def even(self, rollouts: int) -> float:
        """Without any spread of the loss between tasks."""
        return self._certain * math.sqrt(2 * self._spread.within / rollouts / self._tasks)

    def concentrated(self, rollouts: int) -> float:
        """The loss that equals its own detectable size, since its spread between tasks grows with it."""
        loss = self._mean
        for _ in range(60):
            between = max(loss / self._mean * self._square - loss**2, 0.0) if self._square else 0.0
            whole = 2 * self._spread.within / rollouts + between
            loss = min(self._mean, self._certain * math.sqrt(whole / self._tasks))
        return loss


def power_rows(
    rows: Sequence[Detectable],
    curve: Curve,
    anchor: int,
    found: Losses,
    *,
    fewest: int,
    margin: float,
    most: float,
) -> tuple[Power, ...]:
    """One row per number of rollouts. Up to `fewest` nothing was detected; `most` is all there is to lose."""
    made = []
    for row in rows:
        loss: float | None = None
        if found.even is not None and found.concentrated is not None and row.rollouts > fewest:
            pairs = ((curve.even, found.even), (curve.concentrated, found.concentrated))
            loss = max(margin, *(_scaled(shape, anchor, row.rollouts, seen) for shape, seen in pairs))
        made.append(
            Power(
                count=row.rollouts,
                detectable=loss if loss is not None and loss <= most else None,
                total=row.total_rollouts,
                hours=row.hours,
                cost_usd=row.cost_usd,
            )
        )
    return tuple(made)


def _scaled(shape: Callable[[int], float], anchor: int, rollouts: int, seen: float) -> float:
    usual = shape(anchor)
    if usual <= 0:
        # Nothing has varied yet: the only luck is that of the loss itself.
        return seen * math.sqrt(anchor / rollouts)
    return shape(rollouts) * seen / usual
