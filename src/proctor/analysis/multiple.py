"""Corrections for many tests at once: Holm to decide, Benjamini-Hochberg to explore."""

from __future__ import annotations

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Adjusted p-values: with all below α, the chance of a single false one among them is below α."""
    count = len(p_values)
    adjusted = [0.0] * count
    worst = 0.0
    for rank, index in enumerate(sorted(range(count), key=p_values.__getitem__)):
        value = p_values[index] * (count - rank)
        if not value <= worst:  # spelt out: a sweep asks a hundred thousand questions
            worst = min(1.0, value)
        adjusted[index] = worst
    return tuple(adjusted)


def benjamini_hochberg(p_values: Sequence[float]) -> tuple[float, ...]:
    """Adjusted p-values: of those below α, about a share α is false. For looking around, not for a gate."""
    count = len(p_values)
    adjusted = [0.0] * count
    best = 1.0
    order = sorted(range(count), key=p_values.__getitem__)
    for rank in range(count, 0, -1):
        index = order[rank - 1]
        best = min(best, p_values[index] * count / rank)
        adjusted[index] = best
    return tuple(adjusted)
