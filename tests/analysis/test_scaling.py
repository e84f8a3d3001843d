"""Slopes, exponents and speed-ups agree with scipy, and say when they know too little."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from proctor.analysis.scaling import scaling_exponent, slope, speed_up


@pytest.mark.parametrize("count", [3, 4, 10, 50])
def test_a_slope_and_its_interval_are_those_of_linregress(count):
    draw = np.random.default_rng(count)
    xs, ys = list(draw.normal(size=count) * 100), list(draw.normal(size=count))
    wanted = stats.linregress(xs, ys)
    half = stats.t.ppf(0.975, len(xs) - 2) * wanted.stderr
    found = slope(xs, ys)
    assert found.value == pytest.approx(wanted.slope, rel=1e-9)
    assert found.interval is not None
    assert found.interval.width / 2 == pytest.approx(half, rel=1e-6)


def test_groups_have_levels_of_their_own_as_dummy_variables_give_them():
    xs = [1.0, 2, 3, 1, 2, 4, 2, 5]
    ys = [2.0, 4.1, 5.9, 12.0, 13.8, 18.3, 3.0, 9.5]
    groups = ["a", "a", "a", "b", "b", "b", "c", "c"]
    design = np.array([[x, g == "a", g == "b", g == "c"] for x, g in zip(xs, groups, strict=True)], float)
    weights, residuals, *_ = np.linalg.lstsq(design, np.array(ys))
    error = math.sqrt(residuals[0] / 4 * np.linalg.inv(design.T @ design)[0, 0])
    found = slope(xs, ys, groups)
    assert found.value == pytest.approx(weights[0])
    assert found.interval is not None
    assert found.interval.width / 2 == pytest.approx(stats.t.ppf(0.975, 4) * error)


def test_an_exponent_is_found_and_has_an_interval_from_three_values_on():
    sizes = [10.0, 100, 1000, 10000]
    found = scaling_exponent(sizes, [3 * size**1.5 for size in sizes])
    assert found.value == pytest.approx(1.5)
    assert found.metrics("k").keys() == {"k", "k_low", "k_high"}
    assert scaling_exponent([1, 2], [1, 2]).metrics("k") == {"k": pytest.approx(1.0)}


@pytest.mark.parametrize(("sizes", "costs"), [([1, 1], [2, 3]), ([], []), ([0, 1], [1, 2]), ([1, 2], [0, 1])])
def test_what_says_nothing_about_growth_is_refused(sizes, costs):
    with pytest.raises(ValueError, match="needs"):
        scaling_exponent(sizes, costs)


def test_groups_without_two_different_sizes_are_refused():
    with pytest.raises(ValueError, match="two different"):
        slope([1, 2], [3, 4], ["a", "b"])


def test_a_speed_up_is_the_geometric_mean_with_the_t_interval_of_its_logarithm():
    before, after = [4.0, 4.4, 3.9, 4.2], [2.0, 2.1, 2.05, 1.9]
    logs = np.log(np.array(before) / np.array(after))
    low, high = stats.t.interval(0.95, 3, logs.mean(), stats.sem(logs))
    found = speed_up(before, after)
    assert found.value == pytest.approx(math.exp(logs.mean()))
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx((math.exp(low), math.exp(high)))
    assert speed_up([2.0], [1.0]).interval is None
    with pytest.raises(ValueError, match="at least one pair"):
        speed_up([], [])
