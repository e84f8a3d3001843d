from __future__ import annotations

import pytest
from scipy import stats

from proctor.analysis.interval import Interval, clopper_pearson, student, wilson


@pytest.mark.parametrize(("passed", "count"), [(0, 5), (1, 5), (3, 5), (5, 5), (40, 89)])
def test_wilson_and_clopper_pearson_agree_with_scipy(passed, count):
    result = stats.binomtest(passed, count)
    for ours, method in (
        (wilson(passed / count, count), "wilson"),
        (clopper_pearson(passed, count), "exact"),
    ):
        theirs = result.proportion_ci(0.95, method=method)
        assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


def test_wilson_reaches_the_ends_exactly():
    assert wilson(0, 7.5).low == 0
    assert wilson(1, 7.5).high == 1


def test_student_is_mean_plus_minus_t_errors():
    interval = student(10, 2, 4)
    assert interval.high == pytest.approx(10 + 2 * stats.t.ppf(0.975, 4))
    assert interval.width == pytest.approx(2 * (interval.high - 10))


def test_an_interval_contains_its_ends():
    interval = Interval(1, 2)
    assert interval.contains(1)
    assert interval.contains(2)
    assert not interval.contains(2.001)
