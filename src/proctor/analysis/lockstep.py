"""Judge lockstep pairs: one number per pair, an interval that allows for several looks, five verdicts.

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
from proctor.model.lockstep import Clock, Pair, Slot

LOOKS = (6, 8, 10, 12, 15, 20)
"""After how many pairs the data are looked at."""
TRIM = 0.2
COMPUTE_BOUND = 0.9
"""Code that computes for at least this share of its time is judged on the CPU clock."""
CONFIRM_ERROR = 0.1
CONFIRM_LOOKS = (4, 6, 10)
_CHECK_ERROR = 0.002
_POWER = 0.8
FEWEST_PAIRS = 4
"""Nothing is said about fewer."""
_MOST_PAIRS = 2000


class Verdict(StrEnum):
    """What the pairs say of B against A."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    """Any difference is inside the margin."""
    SMALL = "small"
    """There is a difference, and it is inside the margin."""
    INCONCLUSIVE = "inconclusive"


DIFFERENT = frozenset({Verdict.FASTER, Verdict.SLOWER, Verdict.SMALL})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What is asked of a comparison, fixed before the first pair."""

    margin: float = 0.01
    """The smallest change that matters, on the CPU clock."""
    wall_margin: float = 0.03
    """The same on the wall clock, which sees everything else on the machine."""
    error: float = 0.02
    """Chance that identical code is called different before the confirmation, over all looks and points."""
    same_error: float = 0.1
    """Chance, both sides together, that "same" hides a change beyond the margin."""
    looks: tuple[int, ...] = LOOKS
    points: int = 1
    """Parameter points compared together."""

    def margin_on(self, clock: Clock) -> float:
        """The margin, as a logarithm."""
        return math.log1p(self.margin if clock == "cpu" else self.wall_margin)


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
class Finding:
    """What may be said after a look. Changes are fractions: 0.05 is B 5 % slower than A."""

    verdict: Verdict | None
    """None: go on."""
    clock: Clock
    busy: float
    """Share of the time in which the code computed."""
    margin: float
    pairs: int
    change: float
    low: float
    high: float
    """The interval that the verdict rests on: wide enough to hold over all looks together."""
    level: float
    """Its confidence at this look alone."""
    p_value: float
    """Over all looks so far."""
    noise: float
    """Spread of single pairs."""
    detectable: float
    """The smallest change that this many pairs would find four times in five."""
    pairs_needed: int | None = None
    """Pairs in all that would probably settle it; None when it is settled or no number would."""
    reason: str = ""


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


def spent(looks: Sequence[int]) -> tuple[float, ...]:
    """Which share of the error each look may use; together they use all of it.

    The total after n of N pairs is (n/N)^1.5: little at first, most near the end. The shares are added up as
    if the looks were independent, which they are not, so the true error is smaller still.
    """
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


def pick_clock(pairs: Sequence[Pair]) -> tuple[Clock, float]:
    """The clock to judge on, and the share of its time that the less busy side computes."""
    busy = min(
        median(_busy(getattr(pair, side)[pair.schedule.warmup :]) for pair in pairs) for side in ("a", "b")
    )
    return ("cpu" if busy >= COMPUTE_BOUND else "wall"), busy


def _busy(slots: Sequence[Slot]) -> float:
    """CPU time over the time in which the code could run; waiting behind other programs is not idleness."""
    shares = sorted(slot.cpu_ns / max(slot.wall_ns - slot.waited_ns, 1) for slot in slots)
    kernel_tells = any(slot.waited_ns for slot in slots)
    return median(shares) if kernel_tells else shares[len(shares) * 3 // 4]


def log_ratio(pair: Pair, clock: Clock, *, aa: bool = False) -> float:
    """The pair's one number: the median over its slots of log(B/A), or of log(A/A)."""
    other = pair.again if aa else pair.b
    field = f"{clock}_ns"
    kept = slice(pair.schedule.warmup, None)
    return median(
        math.log(max(getattr(y, field), 1) / max(getattr(x, field), 1))
        for x, y in zip(pair.a[kept], other[kept], strict=True)
    )


def judge(pairs: Sequence[Pair], rules: Rules, *, final: bool = False) -> Finding:
    """Look at the pairs so far. Between looks the answer is to go on, unless this is all there will be."""
    clock, busy = pick_clock(pairs)
    values = [log_ratio(pair, clock) for pair in pairs]
    return judge_values(values, rules, clock=clock, busy=busy, final=final)


def judge_values(
    values: Sequence[float], rules: Rules, *, clock: Clock = "cpu", busy: float = 1.0, final: bool = False
) -> Finding:
    """The same on the pairs' log-ratios."""
    count, shares = len(values), dict(zip(rules.looks, spent(rules.looks), strict=True))
    last = final or count >= rules.looks[-1]
    # A comparison that is cut short uses the share of the look it did not reach.
    share = shares[next((look for look in rules.looks if look >= count), rules.looks[-1])]
    earlier = [look for look in rules.looks if FEWEST_PAIRS <= look < count]
    now = centre(values)
    p_values = [centre(values[:look]).p_value / shares[look] for look in earlier] + [now.p_value / share]
    margin, error = rules.margin_on(clock), rules.error * share / rules.points
    verdict = None
    if last or count in shares:
        verdict = _verdict(now, margin, error, rules.same_error * share, last=last)
    if verdict is None and last:
        verdict = Verdict.INCONCLUSIVE
    return _finding(
        now,
        rules.same_error * share if verdict is Verdict.SAME else error,
        verdict=verdict,
        clock=clock,
        busy=busy,
        margin=margin,
        p_value=min(1.0, *p_values, 1.0),
        needed=pairs_needed(now, margin, rules) if verdict is Verdict.INCONCLUSIVE else None,
    )


def _finding(
    now: Centre,
    error: float,
    *,
    margin: float,
    clock: Clock,
    busy: float,
    p_value: float,
    verdict: Verdict | None,
    needed: int | None,
) -> Finding:
    half = now.half_width(error)
    return Finding(
        verdict=verdict,
        clock=clock,
        busy=busy,
        margin=math.expm1(margin),
        pairs=now.count,
        change=math.expm1(now.value),
        low=math.expm1(now.value - half),
        high=math.expm1(now.value + half),
        level=1 - error,
        p_value=p_value,
        noise=now.spread,
        detectable=math.expm1(half + t_quantile(_POWER, now.df) * now.error),
        pairs_needed=needed,
    )


def _verdict(now: Centre, margin: float, error: float, same_error: float, *, last: bool) -> Verdict | None:
    size, half = abs(now.value), now.half_width(error)
    if size > half:
        if size >= margin:
            return Verdict.SLOWER if now.value > 0 else Verdict.FASTER
        return Verdict.SMALL if last or size + half < margin else None
    return Verdict.SAME if size + now.half_width(same_error) < margin else None


def pairs_needed(now: Centre, margin: float, rules: Rules) -> int | None:
    """How many pairs in all would settle it four times in five, if the difference is what it seems to be."""
    size = abs(now.value)

    def settles(count: int) -> bool:
        degrees = count - 2 * int(TRIM * count) - 1
        one = now.spread / math.sqrt(count)
        share, luck = spent(looks_for(count))[-1], t_quantile((1 + _POWER) / 2, degrees)
        certain = (t_quantile(1 - rules.error * share / rules.points / 2, degrees) + luck) * one < size
        same = (t_quantile(1 - rules.same_error * share / 2, degrees) + luck) * one < margin - size
        return certain or same

    low, high = now.count, _MOST_PAIRS
    if not settles(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if settles(middle) else (middle, high)
    return high


def confirms(first: Finding, pairs: Sequence[Pair]) -> bool:
    """Whether fresh pairs agree with an earlier finding: the same direction, and not by chance."""
    again = centre([log_ratio(pair, first.clock) for pair in pairs])
    return again.value * first.change > 0 and abs(again.value) > again.half_width(CONFIRM_ERROR)


def self_check(pairs: Sequence[Pair], clock: Clock, rules: Rules) -> SelfCheck:
    """Whether A differs from A. It must not; if it does, nothing that was measured can be believed."""
    values = [log_ratio(pair, clock, aa=True) for pair in pairs if pair.again]
    if len(values) < 2 or len(pairs) < FEWEST_PAIRS:
        return SelfCheck(pairs=len(values))
    between = centre([log_ratio(pair, clock) for pair in pairs])
    spread = max(between.spread, stdev(values))
    change = fmean(values)
    degrees = between.df + len(values) - 1
    p_value = (
        two_sided_t(change / (spread / math.sqrt(len(values))), degrees) if spread else float(not change)
    )
    biased = abs(change) > rules.margin_on(clock) / 2 and p_value < _CHECK_ERROR
    return SelfCheck(pairs=len(values), change=math.expm1(change), p_value=p_value, passed=not biased)
