"""Loops, warm-up, stopping and intervals, on numbers alone: no clock is read here."""

from __future__ import annotations

import math
import random
from dataclasses import asdict

import pytest

from proctor.model.spec import Iterations
from proctor.trial.point.calibrate import (
    MAX_LOOPS,
    StopRule,
    WarmupRule,
    calibrate_loops,
    detectable_effect,
    relative_width,
)


@pytest.mark.parametrize("call_s", [2.0, 5e-3, 1e-3, 1e-5, 3e-8])
def test_a_calibrated_slot_lasts_about_two_milliseconds(call_s):
    loops = calibrate_loops(lambda loops: loops * call_s)
    assert loops == max(1, math.ceil(0.002 / call_s - 1e-9)) or loops * call_s == pytest.approx(
        0.002, rel=0.01
    )


def test_calibration_makes_no_more_calls_than_a_few_slots():
    made = []
    calibrate_loops(lambda loops: made.append(loops) or loops * 1e-6)
    assert sum(made) * 1e-6 < 4 * 0.002


def test_a_clock_that_stands_still_ends_at_the_limit():
    assert calibrate_loops(lambda _: 0.0) == MAX_LOOPS


def test_a_long_call_is_made_once():
    made = []
    assert calibrate_loops(lambda loops: made.append(loops) or 0.5 * loops) == 1
    assert made == [1]


def warm(times: list[float], asked="auto") -> tuple[int, str | None]:
    rule = WarmupRule(asked)
    for at, each in enumerate(times):
        if rule.verdict:
            return at, rule.verdict
        rule.add(each, each)
    return len(times), rule.verdict


def test_warm_up_of_a_fixed_number_is_that_number():
    assert warm([1.0] * 9, asked=3) == (3, "fixed")
    assert WarmupRule(0).verdict == "fixed"


def test_warm_up_ends_when_the_times_no_longer_fall():
    falling = [0.02 * 0.9**n + 0.001 for n in range(150)]
    count, why = warm(falling)
    assert why == "settled"
    assert 20 < count < 80
    assert falling[count] < 0.0015
    assert warm([1e-3] * 30) == (10, "settled")


def test_one_slow_call_does_not_keep_warm_up_going():
    times = [1e-3] * 30
    times[2] = times[7] = 1.0
    assert warm(times) == (10, "settled")


def test_warm_up_gives_up_by_time_and_by_count():
    assert warm([6.0, 5.0]) == (1, "time")
    assert warm([1e-3 * 0.97**n for n in range(300)])[1] == "count"


def stop(times, asked: Iterations, each_s: float = 0.0) -> tuple[int, str | None]:
    rule = StopRule(asdict(asked))
    for at, value in enumerate(times):
        if reason := rule.verdict(at * each_s):
            return at, reason
        rule.add(value)
    return len(times), rule.verdict(len(times) * each_s)


def test_a_fixed_number_counts_failures_too():
    assert stop([1.0, None, 1.0, 1.0], Iterations(measured=3)) == (3, "count")
    assert stop([], Iterations(measured=0)) == (0, "count")


def test_auto_stops_when_the_interval_is_narrow():
    assert stop([1.0] * 50, Iterations(measured="auto")) == (6, "interval")
    assert stop([1.0] * 50, Iterations(measured="auto", min_measured=20)) == (20, "interval")


def test_auto_goes_on_while_the_interval_is_wide():
    noise = random.Random(1)
    times = [noise.uniform(0.5, 1.5) for _ in range(3000)]
    count, reason = stop(times, Iterations(measured="auto", target_width=0.1))
    assert reason == "interval"
    assert count > 100
    assert relative_width(sorted(times[:count])) <= 0.1


def test_disturbed_times_do_not_count_until_all_are_taken():
    rule = StopRule(asdict(Iterations(measured="auto")))
    for _ in range(5):
        rule.add(1.0)
        rule.add(9.0, calm=False)
    assert (rule.verdict(0.0), rule.enough) == (None, False)
    rule.add(1.0)
    assert (rule.verdict(0.0), rule.enough, len(rule.aside)) == ("interval", True, 5)
    rule.take_all()
    rule.add(9.0)
    assert (rule.verdict(0.0), rule.aside) == (None, [])


def test_what_seemed_calm_can_be_forgotten():
    rule = StopRule(asdict(Iterations(measured="auto")))
    for _ in range(5):
        rule.add(9.0)
    rule.forget()
    assert not rule.enough
    for _ in range(6):
        rule.add(1.0)
    assert rule.verdict(0.0) == "interval"
    assert rule.aside == [9.0] * 5


def test_auto_stops_by_time_by_count_and_when_nothing_works():
    wide = [1.0, 2.0] * 200
    assert stop(wide, Iterations(measured="auto", max_time_s=3), each_s=0.1)[1] == "max_time_s"
    assert stop(wide, Iterations(measured="auto", max_measured=30)) == (30, "max_measured")
    assert stop([None] * 99, Iterations(measured="auto")) == (5, "failures")
    assert stop([1.0], Iterations(measured="auto", max_time_s=0)) == (1, "max_time_s")


def test_the_detectable_effect_sees_drift_that_an_interval_does_not():
    steady = [1.0 + 0.001 * (n % 3) for n in range(100)]
    drifting = [1.0 if n < 65 else 1.3 for n in range(100)]
    assert detectable_effect(steady) < 0.005
    assert relative_width(sorted(drifting)) < 0.01
    assert detectable_effect(drifting) > 0.2


def test_too_few_values_give_no_effect_and_no_interval():
    assert detectable_effect([1.0] * 5) is None
    assert detectable_effect([0.0] * 20) is None
    assert detectable_effect([1.0, 1.1] * 4) == pytest.approx(0.1 / 1.1)
    assert relative_width([]) == math.inf
