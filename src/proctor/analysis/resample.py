"""Bootstrap and sign-flip permutation. Every random draw comes from the seed that is passed in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
IntArray = NDArray[np.intp]
Statistic = Callable[[Array], Array]
"""Takes samples along the last axis and gives one number for each."""

EXACT_FLIPS = 14
"""Up to this many differences all 2ⁿ sign patterns are tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignFlip:
    """The p-value of a mean difference when each difference could as well have had the other sign."""

    p_value: float
    exact: bool


def mean(samples: Array) -> Array:
    """Mean along the last axis."""
    return np.asarray(np.mean(samples, axis=-1), dtype=np.float64)


def quantile(q: float) -> Statistic:
    """A statistic: the q quantile along the last axis."""
    return lambda samples: np.asarray(np.quantile(samples, q, axis=-1), dtype=np.float64)


def resamples(
    values: Sequence[float] | Array, statistic: Statistic, *, seed: int, draws: int = 2000
) -> Array:
    """The statistic of `draws` samples drawn from the values with replacement."""
    data = np.asarray(values, dtype=np.float64)
    generator = np.random.default_rng(seed)
    block = max(1, 2_000_000 // max(1, data.size))
    parts = []
    for start in range(0, draws, block):
        rows = min(block, draws - start)
        parts.append(statistic(data[generator.integers(0, data.size, (rows, data.size))]))
    return np.concatenate(parts)


def median_ranks(count: int, *, seed: int, draws: int) -> tuple[IntArray, IntArray]:
    """Which two of the ordered values a resample's median lies between, for every draw.

    The median of n draws with replacement is an order statistic of n uniform numbers in disguise, and those
    follow beta distributions: so a draw costs two numbers, not n, and is exact.
    """
    generator = np.random.default_rng([seed, count])
    half = count // 2
    if count % 2:
        lower = upper = generator.beta(half + 1, half + 1, draws)
    else:
        lower = generator.beta(half, half + 1, draws)
        upper = lower + (1 - lower) * generator.beta(1, half, draws)
    last = count - 1
    return (
        np.minimum((lower * count).astype(np.intp), last),
        np.minimum((upper * count).astype(np.intp), last),
    )


def sign_flip(differences: Sequence[float], *, seed: int, flips: int = 10_000) -> SignFlip:
    """Two-sided test of a zero mean; every pattern when few, otherwise a random sample of them."""
    data = np.asarray([value for value in differences if value != 0], dtype=np.float64)
    if data.size == 0:
        return SignFlip(p_value=1.0, exact=True)
    # Sums are compared with a tolerance: the same numbers in another order may differ in the last bit.
    target = abs(float(data.sum())) * (1 - 1e-12) - 1e-15
    if data.size <= EXACT_FLIPS:
        bits = np.arange(2 ** (data.size - 1))[:, None] >> np.arange(data.size)
        # The last sign is held: the mirror image of a pattern is just as extreme.
        signs = (bits & 1) * 2.0 - 1.0
        extreme = float(np.mean(np.abs(signs @ data) >= target))
        return SignFlip(p_value=extreme, exact=True)
    generator = np.random.default_rng(seed)
    hits = 0
    block = max(1, 4_000_000 // data.size)
    for start in range(0, flips, block):
        rows = min(block, flips - start)
        signs = generator.integers(0, 2, (rows, data.size), dtype=np.int8) * 2.0 - 1.0
        hits += int(np.sum(np.abs(signs @ data) >= target))
    return SignFlip(p_value=(hits + 1) / (flips + 1), exact=False)
