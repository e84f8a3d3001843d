from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from proctor.analysis.perf import drift, growth


def test_a_steady_series_rarely_drifts():
    generator = np.random.default_rng(1)
    alarms = sum(drift(generator.lognormal(0, 0.2, 60)).p_value <= 0.05 for _ in range(300))
    assert alarms / 300 <= 0.08


def test_neighbours_that_resemble_each_other_are_not_taken_for_a_trend():
    generator = np.random.default_rng(2)
    alarms = 0
    for _ in range(200):
        noise = generator.normal(0, 0.1, 80)
        series = np.zeros(80)
        for at in range(1, 80):
            series[at] = 0.6 * series[at - 1] + noise[at]
        alarms += drift(np.exp(series)).p_value <= 0.05
    assert alarms / 200 <= 0.12


def test_a_slow_rise_is_found_with_its_size():
    generator = np.random.default_rng(3)
    found = drift(np.linspace(1.0, 1.3, 200) * np.exp(generator.normal(0, 0.05, 200)))
    assert found.relative == pytest.approx(0.3 / 1.15, rel=0.15)
    assert found.interval.contains(0.3 / 1.15)
    assert found.drifts(tolerance=0.1)
    assert not found.drifts(tolerance=0.5)


def test_the_slope_is_theil_sens():
    generator = np.random.default_rng(4)
    values = generator.lognormal(0, 0.3, 30)
    theirs = stats.theilslopes(values)
    assert drift(values).relative == pytest.approx(theirs.slope * 29 / np.median(values))


def test_the_p_value_is_near_kendalls_for_independent_values():
    values = np.random.default_rng(6).normal(10, 1, 50) + np.linspace(0, 1, 50)
    assert drift(values).p_value == pytest.approx(stats.kendalltau(range(50), values).pvalue, abs=0.05)


def test_long_series_are_thinned_and_short_ones_say_nothing():
    found = drift(np.linspace(1, 2, 50_000))
    assert found.values == 50_000
    assert found.relative == pytest.approx(1 / 1.5, rel=0.01)
    assert drift([1.0] * 7) is None


def test_a_constant_series_does_not_drift():
    found = drift([2.0] * 20)
    assert found.relative == 0
    assert found.p_value == 1
    assert drift([0.0] * 20).relative == 0


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0])
def test_the_exponent_of_growth_is_found_again(exponent):
    generator = np.random.default_rng(5)
    sizes = np.array([100, 200, 400, 800, 1600, 3200])
    found = growth(sizes, 3e-6 * sizes**exponent * np.exp(generator.normal(0, 0.02, 6)))
    assert found.exponent == pytest.approx(exponent, abs=0.05)
    assert found.interval.contains(exponent)
    assert found.sizes == 6


def test_the_exponent_agrees_with_scipy():
    sizes, values = [1, 2, 4, 8], [1.0, 2.1, 3.9, 8.5]
    theirs = stats.linregress(np.log(sizes), np.log(values))
    found = growth(sizes, values)
    half = stats.t.ppf(0.975, 2) * theirs.stderr
    assert found.exponent == pytest.approx(theirs.slope)
    assert found.interval.high == pytest.approx(theirs.slope + half)


def test_two_sizes_give_an_exponent_without_an_interval():
    found = growth([1, 10], [1, 100])
    assert found.exponent == pytest.approx(2)
    assert found.interval is None


@pytest.mark.parametrize(
    ("sizes", "values"), [([1, 1], [1, 2]), ([], []), ([0, 1], [1, 1]), ([1, 2], [0, 1])]
)
def test_fewer_than_two_sizes_have_no_exponent(sizes, values):
    assert growth(sizes, values) is None
