"""P-values without numpy: Fisher's exact test of two rates, and Holm's correction for many tests at once."""

from __future__ import annotations

import math
from collections.abc import Sequence


def fisher(events_a: int, count_a: int, events_b: int, count_b: int) -> float:
    """Two-sided p-value that both sides have one rate, given how many events there are in all."""
    if not (0 <= events_a <= count_a and 0 <= events_b <= count_b):
        msg = f"{events_a} of {count_a} and {events_b} of {count_b}: events cannot be more than trials"
        raise ValueError(msg)
    events, total = events_a + events_b, count_a + count_b

    def log_chance(first: int) -> float:
        return _log_comb(count_a, first) + _log_comb(count_b, events - first) - _log_comb(total, events)

    observed = log_chance(events_a)
    lowest, highest = max(0, events - count_b), min(events, count_a)
    # Tables as likely as the observed one count as extreme; their logarithms may differ in the last bits.
    extreme = math.fsum(
        math.exp(each) for each in map(log_chance, range(lowest, highest + 1)) if each <= observed + 1e-9
    )
    return min(1.0, extreme)


def _log_comb(count: int, chosen: int) -> float:
    return math.lgamma(count + 1) - math.lgamma(chosen + 1) - math.lgamma(count - chosen + 1)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Adjusted p-values: with all below α, the chance of a single false one among them is below α."""
    count = len(p_values)
    adjusted = [0.0] * count
    worst = 0.0
    for rank, index in enumerate(sorted(range(count), key=p_values.__getitem__)):
        value = p_values[index] * (count - rank)
        if not value <= worst:  # spelt out: a sweep asks a hundred thousand questions
            worst = min(1.0, value)
        adjusted[index] = worst
    return tuple(adjusted)
