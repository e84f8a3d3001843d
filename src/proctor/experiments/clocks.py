"""Clocks that an experiment reads inside a call, and what becomes of their times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter, perf_counter_ns
from typing import Any, TypeVar

from proctor.model.describe import percentile

T = TypeVar("T")


def timed(work: Callable[..., T], *arguments: Any) -> tuple[T, float]:
    """What the work returns, and its seconds."""
    started = perf_counter()
    result = work(*arguments)
    return result, perf_counter() - started


def timed_ns(times_ns: list[int], work: Callable[..., T], *arguments: Any) -> T:
    """What the work returns; its nanoseconds are added to the list."""
    started = perf_counter_ns()
    result = work(*arguments)
    times_ns.append(perf_counter_ns() - started)
    return result


def percentiles_us(
    kind: str, times_ns: Sequence[int], percents: Sequence[int] = (50, 95)
) -> dict[str, float]:
    """`<kind>_p50_us` and so on; nothing when there are no times."""
    ordered = sorted(times_ns)
    return {f"{kind}_p{part}_us": percentile(ordered, part) / 1e3 for part in percents} if ordered else {}


def per_second(count: int, seconds: float) -> float:
    """A rate that a clock too coarse for it does not break."""
    return count / max(seconds, 1e-9)
