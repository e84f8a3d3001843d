"""The clock that leads a comparison, the same for both sides, and how long the code of each was held up."""

from __future__ import annotations

from collections.abc import Sequence

from proctor.analysis.clock import (
    HELD_UP,
    WALL,
    HeadlineClock,
    Waiting,
    headline_clock,
    measured_cpu,
)
from proctor.verdicts.compare.results import ResultSet


def judged_metrics(a: ResultSet, b: ResultSet, metrics: Sequence[str] = ()) -> tuple[str, ...]:
    """The metrics that were named, or the main one: of times that of the clock which leads for both sides."""
    if metrics:
        return tuple(metrics)
    clock = shared_clock(a, b)
    return (clock.metric if clock else a.metric,)


def shared_clock(a: ResultSet, b: ResultSet, *, with_cpu: bool = False) -> HeadlineClock | None:
    """The clock that leads a comparison of times; None where the main metric is none.

    `with_cpu`: the clock that would lead if the CPU times were here.
    """
    if a.metric != WALL or b.metric != WALL or "task" in {a.kind, b.kind}:
        return None
    return headline_clock(
        (Waiting(point.waited, point.own_wait), with_cpu or measured_cpu(point.samples))
        for side in (a, b)
        for point in side.points
        if not point.failed
    )


def waiting_sentences(side: str, found: ResultSet) -> list[str]:
    """A warning where the code of a side waited for a CPU too long."""
    most = max((point.waited for point in found.points), default=0.0)
    if most < HELD_UP:
        return []
    hint = "; --metric cpu_s has no waiting in it" if "cpu_s" in found.metrics else ""
    return [f"{side}: the code waited for a CPU up to {most:.0%} of the time{hint}"]
