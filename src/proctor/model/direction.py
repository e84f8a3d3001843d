"""Whether more of a metric is better: as somebody declared it, or by a short list of words that tell.

Documented in docs/how-to/compare-stored-runs.md. Of other names nothing is guessed: a guess inverts verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from proctor.quantity import is_rate, is_time_unit


class Direction(StrEnum):
    """Which change of a metric is an improvement."""

    HIGHER = "higher"
    LOWER = "lower"


HIGHER_WORDS = (
    "accuracy", "f1", "fps", "hit_rate", "iops", "ops", "pass_rate", "precision", "qps", "recall", "reward",
    "rps", "score", "speedup", "success_rate", "throughput",
)  # fmt: skip
LOWER_WORDS = (
    "bytes", "cost", "duration", "elapsed", "errors", "failures", "latency", "misses", "tokens", "usd",
)  # fmt: skip
_PER_SECOND_IS_WORK = {"bytes", "tokens"}


def direction_of(metric: str, declared: Mapping[str, Direction] | None = None) -> Direction | None:
    """The declared direction, or the one that the name tells; None where neither does."""
    if declared and metric in declared:
        return declared[metric]
    name = metric.lower()
    if is_time_unit(name):
        return Direction.LOWER
    higher = any(f"_{word}_" in f"_{name}_" for word in HIGHER_WORDS)
    lower = {word for word in LOWER_WORDS if f"_{word}_" in f"_{name}_"}
    if is_rate(name):
        higher, lower = True, lower - _PER_SECOND_IS_WORK
    if higher == bool(lower):
        return None
    return Direction.HIGHER if higher else Direction.LOWER


def declared_directions(resolved: Mapping[str, Any]) -> dict[str, Direction]:
    """What the experiments of a stored spec declare. Where two of them disagree about a name, nothing."""
    known: dict[str, set[Direction]] = {}
    bodies = resolved.get("experiments")
    for body in bodies if isinstance(bodies, list | tuple) else ():
        better = body.get("better") if isinstance(body, Mapping) else None
        for metric, word in better.items() if isinstance(better, Mapping) else ():
            if word in set(Direction):
                known.setdefault(metric, set()).add(Direction(word))
    return {metric: words.pop() for metric, words in known.items() if len(words) == 1}
