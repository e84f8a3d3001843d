"""A one-sided sequential test that may be looked at after every pair: a beta-mixture e-process.

Baseline and candidate run the same task next to each other. Pairs in which both agree say nothing; each pair
that disagrees is a coin toss if the candidate is no worse *on that task*, whatever the task's difficulty. The
e-value is what a bettor against "fair or better" would own; by Ville's inequality it exceeds 1/α with
probability at most α, at whatever moment one stops. This is the one place where single rollouts are paired,
and it is sound because they are paired by chance within one task and the null is about each task, not a mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import count

from proctor.analysis.distributions import log_beta, log_beta_cdf

PRIOR = 2.0
"""Shape of the symmetric beta prior, cut to the side where the candidate is worse."""


class Decision(StrEnum):
    """What to do after a look."""

    GO_ON = "go_on"
    WORSE = "worse"
    NOT_WORSE = "not_worse"
    """The pairs were spent, or even losing all that remain would not prove a regression."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Pairs so far. A loss: the baseline passed and the candidate failed."""

    losses: int = 0
    wins: int = 0
    agreed: int = 0

    @property
    def pairs(self) -> int:
        """All pairs, agreeing ones included."""
        return self.losses + self.wins + self.agreed

    def add(self, baseline: bool, candidate: bool) -> Tally:
        """The tally after one more pair."""
        return Tally(
            losses=self.losses + (baseline and not candidate),
            wins=self.wins + (candidate and not baseline),
            agreed=self.agreed + (baseline == candidate),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The state of the test after some pairs."""

    decision: Decision
    tally: Tally
    e_value: float
    p_value: float
    """Valid at any stopping time: one over the largest e-value so far."""
    saved: float
    """Share of the planned pairs that need not be run."""


@lru_cache(maxsize=1 << 16)
def log_e_value(losses: int, wins: int, prior: float = PRIOR) -> float:
    """Logarithm of the evidence that the candidate loses more than half of the disagreements."""
    tosses = losses + wins
    # P(θ > 1/2) under the posterior, over the same under the prior, which is one half.
    above = log_beta_cdf(0.5, wins + prior, losses + prior)
    return (
        tosses * math.log(2)
        + log_beta(losses + prior, wins + prior)
        - log_beta(prior, prior)
        + above
        + math.log(2)
    )


def fewest_pairs(alpha: float = 0.05, prior: float = PRIOR) -> int:
    """With fewer pairs than this nothing can be proven, even if the candidate loses all of them."""
    return next(pairs for pairs in count(1) if log_e_value(pairs, 0, prior) >= -math.log(alpha))


def look(
    tally: Tally,
    *,
    planned: int,
    alpha: float = 0.05,
    largest_log_e: float | None = None,
    prior: float = PRIOR,
) -> Look:
    """Decide after the pairs of a tally, of `planned` in all."""
    log_e = log_e_value(tally.losses, tally.wins, prior)
    largest = log_e if largest_log_e is None else max(log_e, largest_log_e)
    bar = -math.log(alpha)
    left = max(0, planned - tally.pairs)
    decision = Decision.GO_ON
    if largest >= bar:
        decision = Decision.WORSE
    elif log_e_value(tally.losses + left, tally.wins, prior) < bar:
        decision = Decision.NOT_WORSE
    return Look(
        decision=decision,
        tally=tally,
        e_value=math.exp(min(log_e, 700.0)),
        p_value=min(1.0, math.exp(-largest)),
        saved=left / planned if planned and decision is not Decision.GO_ON else 0.0,
    )
