from __future__ import annotations

import math
import random
from statistics import median

from hypothesis import given
from hypothesis import strategies as st

from proctor.analysis.median import median_interval, values_outside
from proctor.trial.point import calibrate


def coverage(count: int, rank: int) -> float:
    inside = sum(math.comb(count, at) for at in range(rank + 1, count - rank))
    return inside / 2**count


def test_five_values_cannot_hold_the_median_with_95_percent():
    assert median_interval([1, 2, 3, 4, 5]) is None
    assert median_interval([1, 2, 3, 4, 5, 6]) == (1, 6)


def test_the_interval_covers_95_percent_and_the_next_narrower_one_does_not():
    for count in (6, 9, 10, 25, 50, 200, 999, 1000):
        rank = values_outside(count)
        assert coverage(count, rank) >= 0.95
        assert coverage(count, rank + 1) < 0.95


def test_large_samples_use_the_normal_rank_and_still_cover():
    assert 0.949 <= coverage(1500, values_outside(1500)) <= 0.96


def test_the_median_of_a_skewed_source_is_inside_nearly_always():
    rng = random.Random(1)
    hits = 0
    for _ in range(400):
        low, high = median_interval(sorted(rng.expovariate(1) for _ in range(21)))
        hits += low <= math.log(2) <= high
    assert hits >= 370


@given(st.lists(st.floats(1e-9, 1e9), min_size=6))
def test_the_interval_lies_around_the_median(values):
    low, high = median_interval(sorted(values))
    assert low <= median(values) <= high


def test_whoever_stops_a_measurement_uses_the_interval_that_is_reported():
    for count in (6, 42, 200, 201, 355, 1000, 1001, 2994):
        low, high = median_interval(range(1, count + 1))
        assert calibrate.relative_width(range(1, count + 1)) == (high - low) / (count // 2 + 1)
