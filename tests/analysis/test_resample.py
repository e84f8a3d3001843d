from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from proctor.analysis.resample import mean, median_ranks, quantile, resamples, sign_flip


def test_the_same_seed_gives_the_same_draws():
    values = [1.0, 4.0, 2.0, 8.0]
    assert (resamples(values, mean, seed=3, draws=50) == resamples(values, mean, seed=3, draws=50)).all()
    assert (resamples(values, mean, seed=3, draws=50) != resamples(values, mean, seed=4, draws=50)).any()


def test_long_samples_are_drawn_in_blocks():
    values = np.arange(700_000, dtype=float)
    drawn = resamples(values, mean, seed=1, draws=5)
    assert drawn.shape == (5,)
    assert drawn.mean() == pytest.approx(349_999.5, rel=0.01)


@pytest.mark.parametrize("count", [3, 6, 11])
def test_exact_sign_flips_agree_with_scipy(count):
    differences = list(np.random.default_rng(count).normal(0.6, 1, count))
    theirs = stats.permutation_test(
        (differences,), np.sum, permutation_type="samples", n_resamples=np.inf, alternative="two-sided"
    )
    ours = sign_flip(differences, seed=0)
    assert ours.exact
    assert ours.p_value == pytest.approx(theirs.pvalue)


def test_zero_differences_do_not_change_the_p_value():
    assert sign_flip([1, 2, 3], seed=0).p_value == sign_flip([1, 0, 2, 0, 3], seed=0).p_value == 0.25
    assert sign_flip([0, 0], seed=0).p_value == 1


def test_sampled_sign_flips_are_near_the_t_test_and_never_zero():
    differences = list(np.random.default_rng(9).normal(0.35, 1, 60))
    ours = sign_flip(differences, seed=1)
    assert not ours.exact
    assert ours.p_value == pytest.approx(stats.ttest_1samp(differences, 0).pvalue, abs=0.01)
    assert sign_flip([1.0] * 60, seed=1).p_value > 0


@pytest.mark.parametrize("count", [1, 2, 5, 8, 31])
def test_ranks_of_resampled_medians_have_the_distribution_of_real_resamples(count):
    values = np.sort(np.random.default_rng(count).lognormal(0, 1, count))
    real = resamples(values, quantile(0.5), seed=1, draws=20_000)
    lower, upper = median_ranks(count, seed=2, draws=20_000)
    quick = (values[lower] + values[upper]) / 2
    for q in (0.05, 0.25, 0.5, 0.75, 0.95):
        # The same share of both lies below any value; quantiles themselves jump between the few values.
        cut = np.quantile(real, q)
        assert np.mean(quick <= cut) == pytest.approx(np.mean(real <= cut), abs=0.02)
