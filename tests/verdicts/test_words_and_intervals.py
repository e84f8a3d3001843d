"""Beside slower, faster, worse or better stands an interval that says so too, as it is printed."""

from __future__ import annotations

import math
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.test_ab import Bench, points
from tests.verdicts.gate.conftest import Sides, judge

from proctor.analysis import verdict as judging
from proctor.analysis.change import change_points
from proctor.analysis.lockstep import Rules
from proctor.analysis.lockstep import Verdict as SpeedVerdict
from proctor.analysis.times import Noise
from proctor.analysis.verdict import Verdict
from proctor.engine.ab import Asked, compare
from proctor.engine.ab_words import sentence as said_of_pairs
from proctor.verdicts.compare.judge import compare as compare_sides
from proctor.verdicts.compare.results import ResultPoint, ResultSet
from proctor.verdicts.compare.sentence import points as score_points
from proctor.verdicts.compare.sentence import range_text, sentence
from proctor.verdicts.gate.verdict import GateVerdict

_NUMBER = r"([+-]?\d+(?:\.\d+)?)"
_AB = re.compile(rf"B is {_NUMBER}% (slower|faster) than A \({_NUMBER} % interval {_NUMBER}% to {_NUMBER}%\)")
_RATIO = re.compile(rf"B/A {_NUMBER} \({_NUMBER} to {_NUMBER}\)")
_AGAINST = re.compile(rf"{_NUMBER} times the baseline \(95 % {_NUMBER} to {_NUMBER}\)")

anything = st.floats(allow_nan=True, allow_infinity=True)
shares = st.floats(min_value=0, max_value=1)


@settings(max_examples=500)
@given(gain=anything, low=anything, high=anything, p_value=st.sampled_from([0.0, 0.04, 1.0]), margin=shares)
def test_a_verdict_of_better_or_worse_has_its_whole_interval_on_that_side(gain, low, high, p_value, margin):
    found = judging.judge(gain=gain, low=low, high=high, p_value=p_value, margin=margin)
    if found in {Verdict.BETTER, Verdict.WORSE, Verdict.SMALL}:
        assert low > 0 or high < 0


def side(scale: float, spread: float, seed: int, count: int) -> ResultSet:
    rng = random.Random(seed)
    made = tuple(
        ResultPoint(
            name=f"sort(n={at})",
            samples={
                "duration_s": tuple(scale * rng.lognormvariate(0, spread) for _ in range(count)),
                "size_bytes": tuple(round(1e6 * scale) + 0.0 for _ in range(count)),
            },
        )
        for at in range(3)
    )
    return ResultSet(label=f"s{seed}", source="run", points=made, metrics=("duration_s", "size_bytes"))


@settings(deadline=None, max_examples=60)
@given(
    change=st.floats(min_value=-0.2, max_value=0.2) | st.floats(min_value=-0.001, max_value=0.001),
    spread=st.sampled_from([0.0001, 0.01, 0.1]),
    sigma=st.sampled_from([0.0001, 0.01, 0.05]),
    margin=st.sampled_from([0.0, 0.05]),
    metric=st.sampled_from(["duration_s", "size_bytes"]),
    count=st.sampled_from([1, 2, 8, 20]),
    seed=st.integers(min_value=0, max_value=10_000),
)
def test_a_comparison_of_times_says_worse_or_better_only_beside_an_interval_without_1(
    change, spread, sigma, margin, metric, count, seed
):
    a, b = side(1.0, spread, seed, count), side(1 + change, spread, seed + 1, count)
    noise = {"duration_s": Noise(sigma=sigma, source="test")}
    found = compare_sides(a, b, metrics=(metric,), margin=margin, noise=noise)
    for point in found.metrics[0].times.points:
        if point.verdict in {Verdict.WORSE, Verdict.BETTER, Verdict.SMALL}:
            assert point.interval.low > 1 or point.interval.high < 1
            low, high = map(float, re.findall(_NUMBER, range_text(point.ratio, point.interval))[1:])
            assert low > 1 or high < 1
    if found.verdict in {Verdict.WORSE, Verdict.BETTER}:
        _, low, high = map(float, _RATIO.search(sentence(found)).groups())
        assert low > 1 or high < 1


@settings(deadline=None, max_examples=60)
@given(
    chances=st.tuples(shares, shares),
    tasks=st.integers(min_value=2, max_value=30),
    rollouts=st.integers(min_value=1, max_value=6),
    margin=st.sampled_from(["0", "3", "10"]),
    level=st.sampled_from([90, 95, 99.9]),
    seed=st.integers(min_value=0, max_value=10_000),
)
def test_a_gate_on_scores_says_regression_only_beside_an_interval_without_0(
    chances, tasks, rollouts, margin, level, seed
):
    run, baseline = (
        Sides.rolled(chance, tasks=tasks, rollouts=rollouts, seed=seed + at)
        for at, chance in enumerate(chances)
    )
    rule = f"score not worse than baseline by more than {margin}pp at {level}%"
    found = judge(rule, run, baseline).results[0]
    assert f"({level:g} % " in found.sentence
    if found.verdict is GateVerdict.REGRESSION:
        assert found.estimate.high < 0
        assert float(score_points(found.estimate.high).split()[0]) < 0


@settings(deadline=None, max_examples=60)
@given(
    scale=st.floats(min_value=0.9, max_value=1.1) | st.floats(min_value=0.999, max_value=1.001),
    sigma=st.sampled_from([0.00001, 0.002, 0.05]),
    margin=st.sampled_from(["0", "5"]),
    statistic=st.sampled_from(["", "p95 ", "mean "]),
    seed=st.integers(min_value=0, max_value=10_000),
)
def test_a_gate_on_times_says_regression_only_beside_an_interval_without_1(
    scale, sigma, margin, statistic, seed
):
    run, baseline = Sides.times(scale, seed=seed), Sides.times(seed=seed + 1)
    noise = {"duration_s": Noise(sigma=sigma, source="test")}
    rule = f"{statistic}duration_s not slower than baseline by more than {margin}%"
    found = judge(rule, run, baseline, noise=noise).results[0]
    if found.verdict is GateVerdict.REGRESSION:
        assert found.estimate.low > 1
        _, low, _ = map(float, _AGAINST.search(found.sentence).groups())
        assert low > 1


@settings(deadline=None, max_examples=150)
@given(
    changes=st.lists(
        st.floats(min_value=-0.06, max_value=0.06) | st.floats(min_value=-0.0005, max_value=0.0005),
        min_size=1,
        max_size=5,
    ),
    spread=st.sampled_from([0.00002, 0.004, 0.03, 0.1]),
    confirmed=st.sampled_from([None, 0.0, 0.03]),
    margin=st.sampled_from([0.0, 0.01]),
)
def test_pairs_say_slower_or_faster_only_beside_an_interval_without_0(changes, spread, confirmed, margin):
    asked = Asked(rules=Rules(margin=margin))
    for found in compare(points(len(changes)), asked, Bench(*changes, spread=spread, confirmed=confirmed)):
        said = said_of_pairs(found)
        if found.verdict in {SpeedVerdict.SLOWER, SpeedVerdict.FASTER, SpeedVerdict.SMALL}:
            size, way, level, low, high = _AB.search(said).groups()
            assert float(size) > 0
            assert float(low) > 0 if way == "slower" else float(high) < 0
            assert float(level) == pytest.approx(100 * found.finding.level, rel=0.01)
            assert float(level) < 100
        else:
            assert not re.search("B is .* (slower|faster)", said)


@pytest.mark.parametrize("start", range(0, 300, 50))
def test_a_history_names_a_change_only_beside_an_interval_without_none(start):
    for seed in range(start, start + 50):
        for change in change_points(restless(seed)).changes:
            assert change.interval.low > 1 or change.interval.high < 1
            assert change.interval.level == 0.95


def restless(seed: int) -> list[float]:
    """A calm history with one stretch of wild results, and a step in the middle of it."""
    rng = random.Random(seed)
    count = rng.randint(30, 120)
    wild = rng.choice([0.03, 0.1, 0.3])
    begin = rng.randint(8, count - 10)
    end = begin + rng.randint(8, 16)
    step = rng.choice([0.02, 0.05, 0.1])
    return [
        math.exp(step * (at >= (begin + end) // 2) + rng.gauss(0, wild if begin <= at < end else 0.001))
        for at in range(count)
    ]
