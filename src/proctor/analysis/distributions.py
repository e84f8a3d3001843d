"""Quantiles and tails of the few distributions we need. Scalars, standard library only.

scipy.stats would take longer to import than most commands take to answer; the tests hold every
function here against it.
"""

from __future__ import annotations

import math
from functools import lru_cache

_TINY = 1e-300


def normal_cdf(x: float) -> float:
    """P(Z ≤ x) for a standard normal Z, accurate far into both tails."""
    return 0.5 * math.erfc(-x / math.sqrt(2))


def normal_quantile(p: float) -> float:
    """The x with P(Z ≤ x) = p."""
    from statistics import NormalDist  # 10 ms, which a command that only shows an interval need not spend

    if p <= 0:
        return -math.inf
    return math.inf if p >= 1 else NormalDist().inv_cdf(p)


def log_beta(a: float, b: float) -> float:
    """Logarithm of the beta function."""
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def beta_cdf(x: float, a: float, b: float) -> float:
    """P(X ≤ x) for X ~ Beta(a, b): the regularised incomplete beta function."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    # The fraction converges fast on this side of the mean; the other side is its mirror image.
    if x < (a + 1) / (a + b + 2):
        return min(1.0, math.exp(_log_tail(x, a, b)))
    return max(0.0, 1.0 - math.exp(_log_tail(1 - x, b, a)))


def log_beta_cdf(x: float, a: float, b: float) -> float:
    """Logarithm of `beta_cdf` for 0 < x < 1, where the probability itself would vanish."""
    if x < (a + 1) / (a + b + 2):
        return min(0.0, _log_tail(x, a, b))
    return math.log1p(-min(math.exp(_log_tail(1 - x, b, a)), 1 - 1e-16))


def _log_tail(x: float, a: float, b: float) -> float:
    front = a * math.log(x) + b * math.log1p(-x) - log_beta(a, b)
    return front + math.log(_beta_fraction(x, a, b) / a)


def _beta_fraction(x: float, a: float, b: float) -> float:
    """Continued fraction of the incomplete beta function, by the modified Lentz method."""
    c, d = 1.0, 1.0 / _nonzero(1 - (a + b) * x / (a + 1))
    total = d
    for step in range(1, 1000):
        for factor in (
            step * (b - step) * x / ((a + 2 * step - 1) * (a + 2 * step)),
            -(a + step) * (a + b + step) * x / ((a + 2 * step) * (a + 2 * step + 1)),
        ):
            d = 1.0 / _nonzero(1 + factor * d)
            c = _nonzero(1 + factor / c)
            change = c * d
            total *= change
        if abs(change - 1) < 1e-15:
            break
    return total


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def beta_quantile(p: float, a: float, b: float) -> float:
    """The x with P(X ≤ x) = p for X ~ Beta(a, b)."""
    if p <= 0:
        return 0.0
    if p >= 1:
        return 1.0
    low, high = 0.0, 1.0
    x = _first_guess(p, a, b)
    for _ in range(200):
        found = beta_cdf(x, a, b)
        if found < p:
            low = x
        else:
            high = x
        density = math.exp((a - 1) * math.log(x) + (b - 1) * math.log1p(-x) - log_beta(a, b))
        step = (found - p) / density if density > _TINY else math.inf
        # Newton's step where it stays inside what is known, half the way where it does not.
        following = x - step if low < x - step < high else (low + high) / 2
        if following in {x, low, high} or abs(following - x) <= 1e-16 * x:
            break
        x = following
    return x


def _first_guess(p: float, a: float, b: float) -> float:
    """Near the quantile: log odds are about normal, the more so the larger both parameters are."""
    odds = math.exp(min(700.0, math.log(a / b) + normal_quantile(p) * math.sqrt(1 / a + 1 / b)))
    near = odds / (1 + odds)
    return near if 0 < near < 1 else 0.5


@lru_cache(maxsize=1024)
def t_quantile(p: float, df: float) -> float:
    """The x with P(T ≤ x) = p."""
    if not 0 < p < 1:
        return math.inf if p >= 1 else -math.inf
    if math.isinf(df):
        return normal_quantile(p)
    if p == 0.5:
        return 0.0
    tail = 2 * min(p, 1 - p)
    # The same care as in `two_sided_t`: work with whichever of the two shares is small.
    near = beta_quantile(1 - tail, 0.5, df / 2)
    far = beta_quantile(tail, df / 2, 0.5)
    x = math.sqrt(df * near / (1 - near)) if near < 0.5 else math.sqrt(df * (1 - far) / max(far, _TINY))
    return x if p > 0.5 else -x


def two_sided_t(x: float, df: float) -> float:
    """P(|T| ≥ |x|): the p-value of a t statistic."""
    if math.isinf(df):
        return math.erfc(abs(x) / math.sqrt(2))
    if math.isinf(x):
        return 0.0
    # Near zero df/(df + x²) rounds to 1 and loses x; its complement does not.
    if x * x < df:
        return 1 - beta_cdf(x * x / (df + x * x), 0.5, df / 2)
    return beta_cdf(df / (df + x * x), df / 2, 0.5)
