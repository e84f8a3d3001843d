from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import fisher_exact

from proctor.analysis.p_values import fisher, holm


@pytest.mark.parametrize(
    ("a", "n", "b", "m"), [(0, 10, 0, 10), (1, 24, 9, 24), (3, 400, 20, 445), (5, 5, 0, 5), (0, 0, 1, 9)]
)
def test_the_p_value_is_that_of_scipy(a, n, b, m):
    assert fisher(a, n, b, m) == pytest.approx(fisher_exact([[a, n - a], [b, m - b]]).pvalue, rel=1e-7)


def test_more_events_than_trials_are_refused():
    with pytest.raises(ValueError, match="cannot be more"):
        fisher(3, 2, 0, 5)


P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=30)


def test_holm_multiplies_the_smallest_by_all_and_never_falls():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx((0.03, 0.06, 0.06))


@given(P_VALUES)
def test_holm_keeps_the_order_and_never_helps(values):
    adjusted = holm(values)
    assert all(p <= q <= 1 for p, q in zip(values, adjusted, strict=True))
    order = np.argsort(values, kind="stable")
    assert list(np.array(adjusted)[order]) == sorted(adjusted)


def test_no_questions_have_no_answers():
    assert holm([]) == ()


def test_holm_holds_the_family_wise_error_on_true_nulls():
    generator = np.random.default_rng(3)
    false = sum(min(holm(list(generator.random(20)))) <= 0.05 for _ in range(2000))
    assert false / 2000 < 0.065
