from __future__ import annotations

import math

import numpy as np
import pytest

from proctor.analysis.medians import _drawn, _ranks, verdicts
from proctor.analysis.times import (
    DEFAULT_NOISE,
    NOISE_FLOOR,
    Noise,
    Samples,
    adjust_together,
    compare_times,
    run_to_run_noise,
)
from proctor.analysis.verdict import Verdict, judge

QUIET = Noise(sigma=0.01, source="test")
NONE = Noise(sigma=0.0, source="none")


def times(generator, middle, count=15, spread=0.01):
    return tuple(middle * np.exp(generator.normal(0, spread, count)))


def sweep(ratio, points=4, seed=1, spread=0.01, shift=0.0):
    generator = np.random.default_rng(seed)
    return [
        Samples(
            name=f"p{at}",
            a=times(generator, 0.01 * (at + 1), spread=spread),
            b=times(generator, 0.01 * (at + 1) * ratio * math.exp(shift), spread=spread),
        )
        for at in range(points)
    ]


def test_a_clear_slowdown_is_worse_and_a_clear_speedup_better():
    slow = compare_times(sweep(1.25), noise=QUIET)
    assert slow.verdict is Verdict.WORSE
    assert slow.ratio == pytest.approx(1.25, rel=0.02)
    assert slow.interval.contains(1.25)
    assert compare_times(sweep(0.8), noise=QUIET).verdict is Verdict.BETTER
    assert compare_times(sweep(0.8), noise=QUIET, higher_is_better=True).verdict is Verdict.WORSE


def test_identical_code_is_the_same_only_at_a_margin_that_the_data_can_settle():
    quiet = compare_times(sweep(1.0), noise=QUIET)
    assert (quiet.verdict, quiet.margin) == (Verdict.SAME, 0.05)
    usual = Noise(sigma=DEFAULT_NOISE, source="default")
    open_ = compare_times(sweep(1.0), noise=usual)
    assert (open_.verdict, open_.margin) == (Verdict.INCONCLUSIVE, 0.05)
    assert compare_times(sweep(1.0), noise=usual, margin=open_.settles).verdict is Verdict.SAME


def test_a_margin_below_what_can_be_settled_is_inconclusive():
    found = compare_times(sweep(1.0), noise=Noise(sigma=DEFAULT_NOISE, source="default"), margin=0.02)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.settles > 0.2


def test_run_to_run_shifts_raise_no_false_alarm():
    generator = np.random.default_rng(7)
    noise = Noise(sigma=0.05, source="default")
    worse = sum(
        compare_times(
            sweep(1.0, points=5, seed=at, shift=generator.normal(0, 0.05 * math.sqrt(2))), noise=noise
        ).verdict
        in {Verdict.WORSE, Verdict.BETTER}
        for at in range(200)
    )
    assert worse / 200 <= 0.06


def test_without_run_to_run_noise_a_sweep_of_identical_code_has_few_false_alarms():
    generator = np.random.default_rng(8)
    alarms = 0
    for at in range(150):
        points = [
            Samples(name=str(p), a=times(generator, 1.0, 30, 0.1), b=times(generator, 1.0, 30, 0.1))
            for p in range(5)
        ]
        found = compare_times(points, noise=NONE, margin=0.0, seed=at)
        alarms += found.verdict in {Verdict.WORSE, Verdict.BETTER}
    assert alarms / 150 <= 0.12


def test_a_change_that_would_settle_is_found_nineteen_times_in_twenty():
    generator = np.random.default_rng(9)
    noise = Noise(sigma=0.03, source="test")
    reach = compare_times(sweep(1.0, points=1), noise=noise).settles
    found = sum(
        compare_times(
            sweep(1 + reach, points=1, seed=at, shift=generator.normal(0, 0.03 * math.sqrt(2))), noise=noise
        ).verdict
        is Verdict.WORSE
        for at in range(200)
    )
    assert 0.88 <= found / 200 <= 0.99


def test_more_points_make_the_bar_higher():
    one, many = (compare_times(sweep(1.0, points=n), noise=QUIET).settles for n in (1, 50))
    assert many > one


def test_metrics_judged_together_share_the_correction():
    one = compare_times(sweep(1.02, points=1, spread=0.03), noise=NONE)
    both = adjust_together([one, compare_times(sweep(1.0, points=3, spread=0.03), noise=NONE)])
    assert both[0].points[0].p_holm >= one.points[0].p_holm
    assert [len(each.points) for each in both] == [1, 3]


def test_exact_quantities_need_no_statistics():
    found = compare_times([Samples(name="bytes", a=(100.0, 100.0), b=(120.0, 120.0))], noise=NONE)
    assert found.verdict is Verdict.WORSE
    same = compare_times([Samples(name="bytes", a=(100.0, 100.0), b=(100.0, 100.0))], noise=NONE)
    assert same.verdict is Verdict.SAME


def test_one_value_without_known_noise_says_nothing():
    found = compare_times([Samples(name="x", a=(100.0,), b=(120.0,))], noise=NONE)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "one value" in found.points[0].note


def test_one_value_with_known_noise_can_be_judged():
    found = compare_times([Samples(name="x", a=(1.0,), b=(1.5,))], noise=QUIET)
    assert found.verdict is Verdict.WORSE


def test_values_at_zero_have_no_ratio():
    found = compare_times([Samples(name="x", a=(0.0, 1.0, 2.0), b=(1.0, 2.0, 3.0))], noise=QUIET)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.ratio is None
    equal = compare_times([Samples(name="x", a=(0.0, 0.0), b=(0.0, 0.0))], noise=QUIET)
    assert equal.verdict is Verdict.SAME


def test_no_points_settle_nothing():
    found = compare_times([], noise=QUIET)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert math.isinf(found.settles)


def test_history_gives_the_noise_of_its_runs():
    generator = np.random.default_rng(10)
    history = [list(level * np.exp(generator.normal(0, 0.04, 12))) for level in (1.0, 5.0, 0.1)]
    noise = run_to_run_noise(history)
    assert noise.sigma == pytest.approx(0.04, rel=0.35)
    assert noise.df == 11


def test_a_short_history_is_no_history_and_a_quiet_one_has_a_floor():
    assert run_to_run_noise([[1.0, 1.1], [2.0]]) is None
    assert run_to_run_noise([[1.0, 1.0, 1.0, 1.0, 1.0]]).sigma == NOISE_FLOOR
    assert run_to_run_noise([[0.0, -1.0, 1.0]]) is None


def test_the_same_seed_gives_the_same_comparison():
    assert compare_times(sweep(1.1), noise=QUIET, seed=3) == compare_times(sweep(1.1), noise=QUIET, seed=3)


def test_code_that_waited_for_a_cpu_is_believed_less():
    calm, busy = (
        compare_times(
            [Samples(name="x", a=(1.0, 1.01, 0.99), b=(1.6, 1.61, 1.59), waited_a=share, waited_b=share)],
            noise=QUIET,
            margin=0.05,
        )
        for share in (0.0, 0.6)
    )
    assert calm.verdict is Verdict.WORSE
    assert busy.verdict is Verdict.INCONCLUSIVE
    assert busy.settles > 5 * calm.settles


def test_a_history_that_was_noisier_than_the_waiting_is_not_widened_twice():
    point = Samples(name="x", a=(1.0, 1.0), b=(1.1, 1.1), waited_a=0.2, waited_b=0.2)
    history = Noise(sigma=0.5, source="history", df=9)
    assert compare_times([point], noise=history).points[0].error == pytest.approx(0.5 * math.sqrt(2))
    guess = Noise(sigma=0.5, source="default")
    assert compare_times([point], noise=guess).points[0].error > 0.5 * math.sqrt(2)


def test_arrays_are_judged_as_single_points_are():
    generator = np.random.default_rng(5)
    ratio = np.exp(generator.normal(0, 0.2, 500))
    low, high = (
        ratio * np.exp(-generator.exponential(0.1, 500)),
        ratio * np.exp(generator.exponential(0.1, 500)),
    )
    low[0], high[0], ratio[1] = 0.0, np.inf, np.nan
    p_values = generator.uniform(0, 0.1, 500)
    for higher in (True, False):
        words = verdicts(ratio, low, high, p_values, margin=0.05, higher_is_better=higher, alpha=0.05)
        for at, word in enumerate(words):
            if math.isnan(ratio[at]):
                assert word is Verdict.INCONCLUSIVE
                continue
            logs = [math.log(each) if each > 0 else -math.inf for each in (ratio[at], low[at], high[at])]
            gain, least, most = logs if higher else (-logs[0], -logs[2], -logs[1])
            assert word is judge(
                gain=gain, low=least, high=most, p_value=p_values[at],
                margin=math.log1p(0.05),
            )  # fmt: skip


def test_draws_that_came_often_count_as_often():
    generator = np.random.default_rng(6)
    a, b = np.sort(generator.lognormal(0, 0.1, (20, 5))), np.sort(generator.lognormal(0, 0.1, (20, 5)))
    ranks, weights = _ranks(5, 5, 3, 400)
    assert weights.sum() == 400
    assert weights.size <= 25
    every = np.repeat(ranks, weights, axis=1)
    short = _drawn(a, b, ranks, weights, 0.95)
    whole = _drawn(a, b, every, np.ones(400, dtype=np.intp), 0.95)
    for one, two in zip(short, whole, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-12)
