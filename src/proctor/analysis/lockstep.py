"""Judge lockstep pairs on one clock: one number per pair, an interval that allows for several looks.

The unit of sampling is the pair of processes, never the slot: slots of one pair share its memory layout, its
hash seed and its moment. Pure, and without numpy: it runs between measurements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, median, stdev

from proctor.analysis.distributions import t_quantile, two_sided_t
from proctor.model.lockstep import Clock, Pair

LOOKS = (6, 8, 10, 12, 15, 20)
"""After how many pairs the data are looked at."""
TRIM = 0.2
CLOCKS: tuple[Clock, ...] = ("cpu", "wall")
MAIN_SHARE = 0.75
"""The clocks share the chance of calling identical code different. The larger part is for the CPU clock where
code computes for at least half of its time, else for the wall clock."""
CONFIRM_ERROR = 0.3
"""Over all looks of a confirmation and both directions: chance confirms one false difference in ten."""
CONFIRM_LOOKS = (4, 6, 10, 16, 24, 36)
_CHECK_ERROR = 0.002
_LEAST_BUSY = 0.02
_HALF = 0.5
_POWER = 0.8
FEWEST_PAIRS = 4
"""No verdict with fewer pairs."""
MOST_PAIRS = 2000
_OPEN = 4
"""How evenly looks without a planned end share the error: the larger, the less the first ones get."""


class Verdict(StrEnum):
    """What the pairs say of B against A."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    """Any difference is inside the margin, on both clocks."""
    SAME_COMPUTING = "same computing"
    """The CPU time is the same; the load of the machine leaves unclear how long B waits."""
    SMALL = "small"
    """There is a difference, and it is inside the margin."""
    INCONCLUSIVE = "inconclusive"


DIFFERENT = frozenset({Verdict.FASTER, Verdict.SLOWER, Verdict.SMALL})
UNSETTLED = frozenset({Verdict.INCONCLUSIVE, Verdict.SAME_COMPUTING})
"""What a gate on time takes as inconclusive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What is asked of a comparison, fixed before the first pair."""

    margin: float = 0.01
    """The smallest change of computing that matters, as a share of the time that the code takes."""
    wall_margin: float = 0.03
    """The smallest change of the time that it takes, waiting included: the wall clock is noisier."""
    error: float = 0.02
    """Chance that identical code is called different before the confirmation, over all looks and points."""
    same_error: float = 0.1
    """Chance, both sides together, that "same" hides a change beyond the margin."""
    looks: tuple[int, ...] = LOOKS
    points: int = 1
    """Parameter points compared together."""
    open_ended: bool = False
    """Whether the pairs go on until there is a verdict: then the last look is only a limit, and the error is
    shared so that it would last for any number of looks."""

    def margin_on(self, clock: Clock, busy: float = 1.0) -> float:
        """The margin, as a logarithm. Code that computes little may change that little by more."""
        share = min(1.0, max(busy, _LEAST_BUSY))
        return math.log1p(self.margin / share if clock == "cpu" else self.wall_margin)


def error_share(clock: Clock, busy: float) -> float:
    """What a clock may use of the error."""
    return MAIN_SHARE if (clock == "cpu") == (busy >= _HALF) else 1 - MAIN_SHARE


@dataclass(frozen=True, slots=True)
class Centre:
    """Yuen's estimate: a 20 % trimmed mean with the error that its winsorised spread gives it."""

    value: float
    error: float
    df: int
    count: int

    def half_width(self, error: float) -> float:
        """Half of the interval that misses with this probability."""
        return t_quantile(1 - error / 2, self.df) * self.error if self.error else 0.0

    @property
    def p_value(self) -> float:
        """How often chance alone would give a value this far from zero."""
        if not self.error:
            return 0.0 if self.value else 1.0
        return two_sided_t(self.value / self.error, self.df)

    @property
    def spread(self) -> float:
        """What one more pair adds to the knowledge: the standard error of a single one."""
        return self.error * math.sqrt(self.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockFinding:
    """What one clock says after a look. Changes are fractions: 0.05 is B 5 % slower than A."""

    clock: Clock
    verdict: Verdict | None
    """None: go on."""
    margin: float
    pairs: int
    change: float
    low: float
    high: float
    """The interval that the verdict uses: wide enough to hold over all looks together."""
    level: float
    """Its confidence at this look alone."""
    p_value: float
    """Over all looks so far."""
    noise: float
    """Spread of single pairs."""
    detectable: float
    """The smallest change that this many pairs would detect with 80 % probability."""
    share: float = MAIN_SHARE
    """What this clock may use of the error."""
    pairs_needed: int | None = None
    """Total pairs that would probably give a verdict; None: there is one, or no number would be enough."""

    @property
    def is_different(self) -> bool:
        """Certain, and beyond the margin."""
        return self.verdict in {Verdict.FASTER, Verdict.SLOWER}

    @property
    def is_alike(self) -> bool:
        """Certainly inside the margin."""
        return self.verdict in {Verdict.SAME, Verdict.SMALL}


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfCheck:
    """What pairs of A against A say about the measurement itself."""

    pairs: int
    change: float = 0.0
    p_value: float = 1.0
    passed: bool = True


def looks_for(pairs: int) -> tuple[int, ...]:
    """The looks of a comparison of up to this many pairs: the usual ones, then a third more each time."""
    looks = [each for each in LOOKS if each <= pairs]
    while looks and looks[-1] * 4 // 3 < pairs:
        looks.append(looks[-1] * 4 // 3)
    if not looks or looks[-1] != pairs:
        looks.append(pairs)
    return tuple(looks)


def spent(looks: Sequence[int], *, open_ended: bool = False) -> tuple[float, ...]:
    """Which share of the error each look may use; together they use all of it.

    Without a planned end look k of any number gets 4/((k+4)(k+5)), counted from 0: the sum never exceeds 1.

    The total after n of N pairs is (n/N)^1.5: little at first, most near the end. The shares are added up as
    if the looks were independent, which they are not, so the true error is smaller still.
    """
    if open_ended:
        return tuple(_OPEN / ((at + _OPEN) * (at + _OPEN + 1)) for at in range(len(looks)))
    totals = [(look / looks[-1]) ** 1.5 for look in looks]
    return tuple(total - before for total, before in zip(totals, [0.0, *totals[:-1]], strict=True))


def centre(values: Sequence[float]) -> Centre:
    """Yuen's trimmed mean: an outlying pair in each tail does no harm."""
    ordered, count = sorted(values), len(values)
    cut = int(TRIM * count)
    kept = ordered[cut : count - cut]
    winsorised = [kept[0]] * cut + kept + [kept[-1]] * cut
    size = len(kept)
    error = stdev(winsorised) * math.sqrt((count - 1) / (size * (size - 1)))
    return Centre(fmean(kept), error, size - 1, count)


def log_ratio(pair: Pair, clock: Clock, *, aa: bool = False, parallel: bool = False) -> float:
    """The pair's one number: the median over its slots of log(B/A), or of log(A/A).

    The wall clock counts without the time in which other programs had the CPU. That is known for code that
    does one thing at a time; where it runs in `parallel`, its tasks also wait for each other.
    """
    other = pair.again if aa else pair.b
    field = "cpu_ns" if clock == "cpu" else "wall_ns" if parallel else "elapsed_ns"
    kept = slice(pair.schedule.warmup, None)
    return median(
        math.log(max(getattr(y, field), 1) / max(getattr(x, field), 1))
        for x, y in zip(pair.a[kept], other[kept], strict=True)
    )


def judge_values(
    values: Sequence[float], rules: Rules, *, clock: Clock = "cpu", busy: float = 1.0, final: bool = False
) -> ClockFinding:
    """Look at the pairs' numbers so far. Between looks the answer is to go on, unless these are all."""
    count, shares = len(values), dict(zip(rules.looks, _shares(rules.looks, rules), strict=True))
    last = is_last(count, rules, final=final)
    earlier = [look for look in rules.looks if FEWEST_PAIRS <= look < count]
    # A comparison that is cut short, by its price and not by its data, may use all that is left.
    left = 1 - sum(share for look, share in shares.items() if look < min(count, rules.looks[-1]))
    share = left if last else shares[next(look for look in rules.looks if look >= count)]
    now = centre(values)
    p_values = [centre(values[:look]).p_value / shares[look] for look in earlier] + [now.p_value / share]
    margin, mine = rules.margin_on(clock, busy), error_share(clock, busy)
    error = rules.error * share / rules.points * mine
    verdict = None
    if last or count in shares:
        verdict = _verdict(now, margin, error, rules.same_error * share, last=last)
    if verdict is None and last:
        verdict = Verdict.INCONCLUSIVE
    half = now.half_width(rules.same_error * share if verdict is Verdict.SAME else error)
    return ClockFinding(
        clock=clock,
        verdict=verdict,
        margin=math.expm1(margin),
        pairs=count,
        change=math.expm1(now.value),
        low=math.expm1(now.value - half),
        high=math.expm1(now.value + half),
        level=1 - (rules.same_error * share if verdict is Verdict.SAME else error),
        p_value=min(1.0, *p_values, 1.0),
        noise=now.spread,
        detectable=math.expm1(half + t_quantile(_POWER, now.df) * now.error),
        share=mine,
        pairs_needed=pairs_needed(now, margin, rules, mine) if verdict is Verdict.INCONCLUSIVE else None,
    )


def _shares(looks: Sequence[int], rules: Rules) -> tuple[float, ...]:
    return spent(looks, open_ended=rules.open_ended)


def is_last(count: int, rules: Rules, *, final: bool) -> bool:
    """Whether there must be an answer now."""
    return final or count >= rules.looks[-1]


def _verdict(now: Centre, margin: float, error: float, same_error: float, *, last: bool) -> Verdict | None:
    size, half = abs(now.value), now.half_width(error)
    if size > half:
        if size >= margin:
            return Verdict.SLOWER if now.value > 0 else Verdict.FASTER
        return Verdict.SMALL if last or size + half < margin else None
    return Verdict.SAME if size + now.half_width(same_error) < margin else None


def pairs_needed(now: Centre, margin: float, rules: Rules, mine: float = MAIN_SHARE) -> int | None:
    """Total pairs needed for a verdict with 80 % probability, if the true difference is as measured."""
    size, error = abs(now.value), rules.error / rules.points * mine

    def settles(count: int) -> bool:
        degrees = count - 2 * int(TRIM * count) - 1
        one = now.spread / math.sqrt(count)
        share, luck = _shares(looks_for(count), rules)[-1], t_quantile((1 + _POWER) / 2, degrees)
        certain = (t_quantile(1 - error * share / 2, degrees) + luck) * one < size
        same = (t_quantile(1 - rules.same_error * share / 2, degrees) + luck) * one < margin - size
        return certain or same

    low, high = now.count, MOST_PAIRS
    if not settles(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if settles(middle) else (middle, high)
    return high


def confirms(change: float, values: Sequence[float]) -> bool:
    """Whether the numbers of fresh pairs agree with an earlier change: the same direction, not by chance."""
    again, looks = centre(values), CONFIRM_LOOKS
    shares = dict(zip(looks, spent(looks), strict=True))
    share = shares[max(look for look in looks if look <= max(len(values), looks[0]))]
    return again.value * change > 0 and abs(again.value) > again.half_width(CONFIRM_ERROR * share)


def self_check(between: Sequence[float], itself: Sequence[float], margin: float) -> SelfCheck:
    """Whether A differs from A. It must not; if it does, nothing that was measured can be believed.

    `between` are the numbers of A against B, for their spread; `itself` are those of A against A.
    """
    if len(itself) < 2 or len(between) < FEWEST_PAIRS:
        return SelfCheck(pairs=len(itself))
    found = centre(between)
    spread = max(found.spread, stdev(itself))
    change = fmean(itself)
    degrees = found.df + len(itself) - 1
    p_value = (
        two_sided_t(change / (spread / math.sqrt(len(itself))), degrees) if spread else float(not change)
    )
    biased = abs(change) > margin / 2 and p_value < _CHECK_ERROR
    return SelfCheck(pairs=len(itself), change=math.expm1(change), p_value=p_value, passed=not biased)
