"""Which clock is the headline of some runs: elapsed time, or CPU time where other programs held them up.

One rule for every command. It looks at all runs at once: both sides of a comparison and every run of a series
are judged by the same clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from proctor.quantity import number

WALL, CPU = "duration_s", "cpu_s"
HELD_UP = 0.1
"""From this share of its time waiting for a CPU on, code is said to be held up by other programs."""
COMPUTES = 0.9
"""Code that computes for this share of its own time is told precisely by its CPU time."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """How the code of one measured point waited, as shares of its elapsed time."""

    for_cpu: float = 0.0
    """It was ready, and other programs had the CPU."""
    own: float | None = None
    """It waited of itself: for a disk, a server, a sleep, another process. None: not known."""

    @property
    def computes(self) -> bool:
        """Whether it is known to compute for nearly all of its own time."""
        return self.own is not None and self.own <= (1 - COMPUTES) * (1 - self.for_cpu)


@dataclass(frozen=True, slots=True)
class HeadlineClock:
    """The metric that leads, and why it is that one."""

    metric: str = WALL
    why: str = ""
    """Empty: nothing is known that speaks against elapsed time."""

    def to_mapping(self) -> dict[str, str]:
        """Plain data."""
        return {"metric": self.metric, "why": self.why}


def waiting_in(noise: object) -> Waiting:
    """What the ledger of an attempt says under 'noise'.

    Earlier versions did not record how long the code was ready without a CPU. There time off the CPU counts
    as such to the extent that something was waiting for a CPU meanwhile; whether it waited of itself is not
    known.
    """
    if not isinstance(noise, Mapping):
        return Waiting()
    busy, waited = number(noise.get("cpu_over_wall")), number(noise.get("waited_for_cpu"))
    if busy is None:
        return Waiting()
    away = min(max(1 - busy, 0.0), 1.0)
    if waited is not None:
        stolen = number(noise.get("steal_fraction")) or 0.0
        return Waiting(min(waited, away), max(away - waited - stolen, 0.0))
    pressure = number(noise.get("cpu_pressure"))
    return Waiting(min(away * pressure, 1.0)) if pressure is not None else Waiting()


def waited_for_cpu(scheduled: object, busy: float) -> float | None:
    """The share of its elapsed time that code waited for a CPU; None where the kernel did not say.

    `scheduled`: nanoseconds on a CPU and ready without one, over all of a pass. `busy`: CPU time by elapsed
    time in the iterations that count.
    """
    match scheduled:
        case [int(ran_ns), int(waited_ns)] if ran_ns > 0:
            return min(max(busy * waited_ns / ran_ns, 0.0), max(1 - busy, 0.0))
    return None


def headline_clock(points: Iterable[tuple[Waiting, bool]]) -> HeadlineClock:
    """The clock for all of these points. With each: whether its CPU time was measured."""
    most, alone, without = 0.0, 0.0, False
    for waiting, measured in points:
        most = max(most, waiting.for_cpu)
        without = without or not measured
        if not waiting.computes and waiting.own is not None:
            alone = max(alone, waiting.own)
        elif waiting.own is None and waiting.for_cpu >= HELD_UP:
            without = True
    if most < HELD_UP:
        return HeadlineClock()
    held_up = f"other programs had the CPU for up to {most:.0%} of the time"
    if without:
        return HeadlineClock(
            WALL, f"{held_up}, which is in it; it leads because not every point has a CPU time to rely on"
        )
    if alone:
        return HeadlineClock(
            WALL,
            f"{held_up}, which is in it; it leads because the code also waits by itself "
            f"(up to {alone:.0%} of the time)",
        )
    return HeadlineClock(CPU, f"{held_up}, which is not in it, and the code waits for nothing else")


def clock_sentence(clock: HeadlineClock) -> str:
    """Which clock leads and why; empty where that needs no word."""
    if not clock.why:
        return ""
    name = "CPU time" if clock.metric == CPU else "elapsed time"
    return f"Judged by {name} ({clock.metric}): {clock.why}."


def measured_cpu(metrics: Mapping[str, Any]) -> bool:
    """Whether a point has a CPU time beside its elapsed time."""
    return CPU in metrics and WALL in metrics
