"""How much better a program is than the reference, from rounds in which both ran, and the reward that means.

One number per round counts: the logarithm of how many times better the program was. The interval allows for
several looks, so the rounds may end as soon as the reward is settled. Pure, and without numpy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

from proctor.analysis.distributions import t_quantile
from proctor.analysis.lockstep import Centre, centre, looks_for, spent

ERROR = 0.05
"""Chance that the interval misses the true ratio, over all looks together."""
ERRATIC = 4.0
"""How much further than the reference's the values of a program lie apart that varies by itself."""


class Settled(StrEnum):
    """Whether a reward follows from the rounds."""

    YES = "settled"
    """The interval of the reward is as narrow as the task asks."""
    ERRATIC = "erratic"
    """It is wider, and the program varied far more than the reference: the lower end counts."""
    NO = "inconclusive"
    """It is wider, and both varied: nothing follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a task asks of the measurement."""

    rounds: int
    target: float
    precision: float
    higher: bool = False
    """Whether more is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating:
    """What the rounds say. Ratios say how many times better than the reference: 2 is twice as good."""

    settled: Settled
    rounds: int
    ratio: float
    low: float
    high: float
    """It holds over all looks together."""
    reward: float | None
    """None: inconclusive."""
    reward_low: float
    reward_high: float


def reward_at(ratio: float, target: float) -> float:
    """0 for a program that is no better than the reference, 1 at the target, evenly in factors between."""
    return min(1.0, max(0.0, math.log(ratio) / math.log(target)))


def is_look(count: int, rules: Rules) -> bool:
    """Whether the rounds may be judged after this many."""
    return count in looks_for(rules.rounds)


def rate(reference: Sequence[float], program: Sequence[float], rules: Rules) -> Rating:
    """Judge the values of both, round by round, at a look."""
    looks = looks_for(rules.rounds)
    error = ERROR * dict(zip(looks, spent(looks), strict=True))[len(program)]
    a, b = ([math.log(each) for each in side] for side in (reference, program))
    now = centre([(y - x) if rules.higher else (x - y) for x, y in zip(a, b, strict=True)])
    half = now.half_width(error)
    low, high = math.exp(now.value - half), math.exp(now.value + half)
    worst, best = reward_at(low, rules.target), reward_at(high, rules.target)
    # A gain that may be luck is none: doing nothing must not earn something in half of all cases.
    reward = reward_at(math.exp(now.value), rules.target) if low > 1 else 0.0
    settled = Settled.YES
    if best - worst > rules.precision:
        settled = Settled.ERRATIC if _is_erratic(a, b, now, error, rules) else Settled.NO
    return Rating(
        settled=settled,
        rounds=len(program),
        ratio=math.exp(now.value),
        low=low,
        high=high,
        reward={Settled.YES: reward, Settled.ERRATIC: worst, Settled.NO: None}[settled],
        reward_low=worst,
        reward_high=best,
    )


def _is_erratic(
    reference: Sequence[float], program: Sequence[float], now: Centre, error: float, rules: Rules
) -> bool:
    """Whether the program varies by itself.

    Its values lie much further apart than the reference's, and one as steady as that would be settled.
    """
    own = centre(reference)
    # Both sides vary in a ratio.
    half = own.half_width(error) * math.sqrt(2)
    span = [reward_at(math.exp(now.value + side * half), rules.target) for side in (-1, 1)]
    return centre(program).spread > ERRATIC * own.spread and span[1] - span[0] <= rules.precision


@dataclass(frozen=True, slots=True)
class Gain:
    """How many times better than the reference, over several programs: a geometric mean with its interval."""

    ratio: float
    low: float
    high: float
    programs: int


def over_tasks(tasks: Sequence[Sequence[tuple[float, float]]]) -> Gain | None:
    """Programs by task, each as the logarithm of its ratio and half of that one's interval; None for none.

    Every task counts the same. The interval is for these tasks. It is as wide as the programs of a task
    differ, and never narrower than their measurement allows.
    """
    known = [task for task in tasks if task]
    if not known:
        return None
    squares, freedom = 0.0, 0
    for task in known:
        count, middle = len(task), fmean(gain for gain, _ in task)
        measured = sum((half / _TWO_SIDED) ** 2 for _, half in task) / count**2
        spread = sum((gain - middle) ** 2 for gain, _ in task)
        between = spread / (count - 1) / count if count > 1 else 0.0
        squares += max(measured, between)
        freedom += count - 1
    value = fmean(fmean(gain for gain, _ in task) for task in known)
    quantile = t_quantile(1 - ERROR / 2, freedom) if freedom else _TWO_SIDED
    half = quantile * math.sqrt(squares) / len(known)
    programs = sum(map(len, known))
    return Gain(math.exp(value), math.exp(value - half), math.exp(value + half), programs)


_TWO_SIDED = 1.959964
