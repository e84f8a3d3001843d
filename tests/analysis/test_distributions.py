from __future__ import annotations

import math

import pytest
from scipy import stats

from proctor.analysis.distributions import (
    beta_cdf,
    beta_quantile,
    log_beta,
    log_beta_cdf,
    normal_cdf,
    normal_quantile,
    t_quantile,
    two_sided_t,
)

DEGREES = [1, 2, 3.7, 4, 19, 88, 1e4]
PROBABILITIES = [1e-9, 1e-4, 0.025, 0.2, 0.4999, 0.5, 0.7, 0.975, 0.99999]


@pytest.mark.parametrize("x", [-30, -8, -1.96, 0, 0.3, 5, 9])
def test_the_normal_tail_agrees_with_scipy(x):
    assert normal_cdf(x) == pytest.approx(stats.norm.cdf(x), rel=1e-12)


@pytest.mark.parametrize("p", PROBABILITIES)
def test_the_normal_quantile_agrees_with_scipy(p):
    assert normal_quantile(p) == pytest.approx(stats.norm.ppf(p), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("a", [0.01, 0.5, 1, 3, 50, 2000])
@pytest.mark.parametrize("b", [0.5, 1, 7, 900])
def test_beta_agrees_with_scipy(a, b):
    for x in (1e-6, 0.1, 0.5, 0.93, 1 - 1e-9):
        assert beta_cdf(x, a, b) == pytest.approx(stats.beta.cdf(x, a, b), rel=1e-9, abs=1e-13)
    for p in (1e-5, 0.025, 0.5, 0.975):
        assert beta_quantile(p, a, b) == pytest.approx(stats.beta.ppf(p, a, b), rel=1e-8, abs=1e-13)


@pytest.mark.parametrize("df", DEGREES)
@pytest.mark.parametrize("p", PROBABILITIES)
def test_t_agrees_with_scipy(df, p):
    expected = float(stats.t.ppf(p, df))
    assert t_quantile(p, df) == pytest.approx(expected, rel=1e-8, abs=1e-11)
    assert two_sided_t(expected, df) == pytest.approx(2 * stats.t.sf(abs(expected), df), rel=1e-8)


def test_infinite_degrees_of_freedom_are_the_normal():
    assert t_quantile(0.975, math.inf) == pytest.approx(1.959964, abs=1e-6)
    assert two_sided_t(1.959964, math.inf) == pytest.approx(0.05, abs=1e-6)


def test_the_ends_of_every_distribution_are_its_ends():
    assert (normal_quantile(0), normal_quantile(1)) == (-math.inf, math.inf)
    assert (beta_quantile(0, 2, 3), beta_quantile(1, 2, 3)) == (0, 1)
    assert (beta_cdf(-1, 2, 3), beta_cdf(2, 2, 3)) == (0, 1)
    assert (t_quantile(0, 3), t_quantile(1, 3)) == (-math.inf, math.inf)
    assert two_sided_t(math.inf, 3) == 0


def test_log_beta_is_the_logarithm_of_the_beta_function():
    assert log_beta(2, 3) == pytest.approx(math.log(1 / 12))


@pytest.mark.parametrize(("x", "a", "b"), [(0.5, 3, 9), (0.5, 9, 3), (0.1, 2, 2), (0.99, 0.5, 4)])
def test_the_logarithm_of_the_beta_tail_agrees_with_scipy(x, a, b):
    assert log_beta_cdf(x, a, b) == pytest.approx(stats.beta.logcdf(x, a, b), rel=1e-9, abs=1e-12)


def test_the_logarithm_of_the_beta_tail_survives_where_the_tail_vanishes():
    assert beta_cdf(0.5, 10_000, 2) == 0
    assert log_beta_cdf(0.5, 10_000, 2) == pytest.approx(10_000 * math.log(0.5) + math.log(5001), rel=1e-9)
