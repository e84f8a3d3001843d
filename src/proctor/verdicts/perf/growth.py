"""What must not grow: latency over a run, memory over its passes, artifacts faster than episodes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from statistics import median
from typing import Any

from proctor.model.arms import Arm
from proctor.runfolder.perf.episode import Episode

LATENCY_TOLERANCE = 0.25
"""Normal drift of a machine that is shared with others."""
MEMORY_TOLERANCE = 0.10
EXPONENT_TOLERANCE = 0.05
WARM_SHARE = 0.25
"""The part of a run in which memory may still be filling up."""


def growth_checks(
    episodes: Sequence[Episode],
    samples: Sequence[Mapping[str, Any]],
    *,
    pass_length: int,
    prepare_s: float = 0.0,
) -> dict[str, dict[str, Any]]:
    """Each check with its figures and a verdict; `unknown` where there is too little to tell."""
    return {
        "latency": latency(episodes),
        "artifact_bytes": artifact_bytes(episodes, pass_length),
        "memory": memory(episodes, samples, pass_length=pass_length, prepare_s=prepare_s),
    }


def latency(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Late episodes against early ones. Each counts relative to its group, so the mix does not matter."""
    groups: dict[tuple[str, Arm], list[float]] = {}
    for each in episodes:
        groups.setdefault(each.group, []).append(each.wall_clock_s)
    middles = {name: median(values) for name, values in groups.items()}
    ordered = sorted(episodes, key=lambda one: one.started_s)
    return _drift(
        [each.wall_clock_s / middles[each.group] for each in ordered if middles[each.group]],
        LATENCY_TOLERANCE,
    )


def memory(
    episodes: Sequence[Episode],
    samples: Sequence[Mapping[str, Any]],
    *,
    pass_length: int,
    prepare_s: float = 0.0,
) -> dict[str, Any]:
    """The harness's resident memory after each pass over the scenario, the first passes aside.

    What was used before the first episode and after the last is not in it.
    """
    known = [(float(row["at_s"]), float(row["harness_rss_bytes"])) for row in samples]
    known = [(at, size) for at, size in known if size]
    ends = sorted(prepare_s + each.started_s + each.wall_clock_s for each in episodes)
    after = [_latest(known, end) for end in ends[pass_length - 1 :: pass_length]]
    sizes = [size for size in after if size is not None]
    warm = sizes[int(len(sizes) * WARM_SHARE) :]
    third = len(warm) // 3
    if third < 2:
        return {"verdict": "unknown", "relative": None, "p_value": None, "values": len(warm)}
    # Memory is not noisy as latency is: the first and the last third say it all.
    relative = median(warm[-third:]) / median(warm[:third]) - 1
    word = "grows" if relative > MEMORY_TOLERANCE else "falls" if relative < -MEMORY_TOLERANCE else "steady"
    return {"verdict": word, "relative": round(relative, 4), "p_value": None, "values": len(warm)}


def _latest(known: Sequence[tuple[float, float]], until: float) -> float | None:
    """The last known size at a time."""
    at = bisect_right(known, (until, float("inf")))
    return known[at - 1][1] if at else None


def artifact_bytes(episodes: Sequence[Episode], pass_length: int) -> dict[str, Any]:
    """Bytes after each whole pass against passes: an exponent of one is linear."""
    from proctor.analysis.perf import growth

    sums = list(accumulate(each.artifact_bytes for each in sorted(episodes, key=lambda one: one.index)))
    after = sums[pass_length - 1 :: pass_length]
    found = growth(range(1, len(after) + 1), after)
    if found is None:
        return {"verdict": "unknown", "exponent": None, "passes": len(after)}
    off = found.exponent - 1
    word = "linear" if abs(off) <= EXPONENT_TOLERANCE else "faster" if off > 0 else "slower"
    return {"verdict": word, "exponent": round(found.exponent, 4), "passes": len(after)}


def _drift(values: Sequence[float], tolerance: float) -> dict[str, Any]:
    from proctor.analysis.perf import drift

    found = drift(values)
    if found is None:
        return {"verdict": "unknown", "relative": None, "p_value": None, "values": len(values)}
    moved = found.drifts(tolerance=tolerance)
    word = "steady" if not moved else "grows" if found.relative > 0 else "falls"
    return {
        "verdict": word,
        "relative": round(found.relative, 4),
        "p_value": round(found.p_value, 6),
        "values": found.values,
    }
