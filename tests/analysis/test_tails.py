from __future__ import annotations

import math

import numpy as np
import pytest

from proctor.analysis.interval import Interval
from proctor.analysis.tails import point_ratio, statistic_of, suite_ratio, values_needed, widen
from proctor.analysis.times import Noise

QUIET = Noise(sigma=0.0, source="none")
NOISY = Noise(sigma=0.05, source="default")


def values(seed: int, count: int, scale: float = 1.0) -> list[float]:
    return (scale * np.exp(np.random.default_rng(seed).normal(0, 0.2, count))).tolist()


def test_a_percentile_is_judged_only_when_values_lie_beyond_it():
    assert [values_needed(name) for name in ("p50", "mean", "p95", "p99")] == [5, 5, 20, 100]
    found = point_ratio(values(1, 19), values(2, 19), "p95", noise=QUIET)
    assert math.isnan(found.ratio)
    assert found.p_value == 1
    assert found.note == "p95 needs 20 values on each side"


def test_a_doubled_tail_is_found_and_its_interval_holds_two():
    found = point_ratio(values(1, 400), values(2, 400, 2.0), "p95", noise=QUIET)
    assert found.ratio == pytest.approx(2, rel=0.1)
    assert found.interval.contains(2.0)
    assert found.interval.low > 1.5
    assert found.p_value < 1e-6


def test_run_to_run_noise_widens_the_interval_and_raises_the_p_value():
    quiet = point_ratio(values(1, 400), values(2, 400, 1.1), "mean", noise=QUIET)
    noisy = point_ratio(values(1, 400), values(2, 400, 1.1), "mean", noise=NOISY)
    assert noisy.ratio == quiet.ratio
    assert noisy.interval.low < quiet.interval.low
    assert noisy.interval.high > quiet.interval.high
    assert noisy.p_value > quiet.p_value
    assert "run-to-run" in noisy.interval.method


def test_equal_constants_are_equal_and_different_ones_differ():
    same = point_ratio([3.0] * 9, [3.0] * 9, "mean", noise=QUIET)
    assert (same.ratio, same.p_value, same.interval.width) == (1.0, 1.0, 0.0)
    other = point_ratio([3.0] * 9, [6.0] * 9, "mean", noise=QUIET)
    assert other.ratio == pytest.approx(2)
    assert other.p_value < 1e-100


def test_values_at_zero_have_no_ratio():
    assert "not above zero" in point_ratio([0.0] * 30, [1.0] * 30, "p95", noise=QUIET).note
    suite = {"x": [0.0] * 30, "y": [1.0] * 30}
    assert "not above zero" in suite_ratio(suite, suite, "p95", noise=QUIET).note


def test_a_suite_is_resampled_by_task():
    before = {str(at): values(at, 10, 1 + at) for at in range(20)}
    after = {str(at): values(100 + at, 12, 1.5 * (1 + at)) for at in range(20)}
    found = suite_ratio(before, after, "p90", noise=QUIET)
    assert found.interval.contains(1.5)
    assert found.p_value < 0.01
    assert (found.count_a, found.count_b) == (200, 240)


@pytest.mark.parametrize(
    ("tasks", "rollouts", "words"), [(1, 40, "two shared tasks"), (3, 2, "20 values"), (0, 0, "two shared")]
)
def test_a_small_suite_says_what_it_lacks(tasks, rollouts, words):
    suite = {str(at): values(at, rollouts) for at in range(tasks)}
    assert words in suite_ratio(suite, suite, "p95", noise=QUIET).note


@pytest.mark.parametrize("name", ["p0", "p100", "max", "p9x"])
def test_what_is_no_statistic_is_refused(name):
    with pytest.raises(ValueError, match="not a statistic"):
        statistic_of(name)


def test_widening_keeps_the_ratio_and_adds_the_noise():
    wider, error = widen(Interval(0.9, 1.1, 0.95, "bootstrap"), 1.0, NOISY)
    assert wider.low < 0.87
    assert wider.high > 1.14
    assert error == pytest.approx(math.hypot(0.0515, 0.0707), rel=0.05)
    same, _ = widen(Interval(0.9, 1.1, 0.95, "bootstrap"), 1.0, QUIET)
    assert same.low == pytest.approx(0.9)
    assert same.method == "bootstrap"


def test_identical_tails_raise_few_alarms():
    """One-sided 2.5 % are allowed; 200 pairs with heavy tails, no noise added to help."""
    generator = np.random.default_rng(3)
    alarms = 0
    for seed in range(200):
        a, b = (np.exp(0.3 * generator.standard_t(4, 60)).tolist() for _ in range(2))
        found = point_ratio(a, b, "p95", noise=QUIET, seed=seed)
        alarms += found.p_value <= 0.05 and found.interval.low > 1
    assert alarms <= 10
