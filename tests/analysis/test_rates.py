from __future__ import annotations

import pytest
from scipy.stats import fisher_exact

from proctor.analysis.rates import fisher


@pytest.mark.parametrize(
    ("a", "n", "b", "m"), [(0, 10, 0, 10), (1, 24, 9, 24), (3, 400, 20, 445), (5, 5, 0, 5), (0, 0, 1, 9)]
)
def test_the_p_value_is_that_of_scipy(a, n, b, m):
    assert fisher(a, n, b, m) == pytest.approx(fisher_exact([[a, n - a], [b, m - b]]).pvalue, rel=1e-7)


def test_more_events_than_trials_are_refused():
    with pytest.raises(ValueError, match="cannot be more"):
        fisher(3, 2, 0, 5)
