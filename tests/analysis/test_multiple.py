from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from proctor.analysis.multiple import benjamini_hochberg, holm

P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=30)


def test_holm_multiplies_the_smallest_by_all_and_never_falls():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx((0.03, 0.06, 0.06))


@given(P_VALUES)
def test_holm_keeps_the_order_and_never_helps(values):
    adjusted = holm(values)
    assert all(p <= q <= 1 for p, q in zip(values, adjusted, strict=True))
    order = np.argsort(values, kind="stable")
    assert list(np.array(adjusted)[order]) == sorted(adjusted)


@given(P_VALUES)
def test_benjamini_hochberg_agrees_with_scipy(values):
    assert benjamini_hochberg(values) == pytest.approx(stats.false_discovery_control(values))


def test_no_questions_have_no_answers():
    assert holm([]) == ()
    assert benjamini_hochberg([]) == ()


def test_holm_holds_the_family_wise_error_on_true_nulls():
    generator = np.random.default_rng(3)
    false = sum(min(holm(list(generator.random(20)))) <= 0.05 for _ in range(2000))
    assert false / 2000 < 0.065
