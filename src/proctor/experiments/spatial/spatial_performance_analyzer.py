"""How spatial indexes scale: exponents of building and asking over the number of points, with intervals.

Whether a later run is slower is not decided here: `proctor compare` and gates judge it against a stored run.
"""

from __future__ import annotations

import random
from itertools import product
from statistics import median
from typing import Any, ClassVar, NamedTuple

from proctor.experiments.base import Experiment, ExperimentContext, register_experiment
from proctor.experiments.clocks import timed
from proctor.experiments.spatial.base import BruteForce, SpatialIndex
from proctor.experiments.spatial.indexes import (
    PATTERNS,
    SIZES_PARAMS,
    draw_centers,
    draw_points,
    load_index,
)

_NEAREST = 8
_BUILDS = 3


class _Case(NamedTuple):
    """One way of asking one index."""

    algorithm: str
    agents: int
    world_size: float
    pattern: str
    radius: float


@register_experiment(
    "spatial_performance_analyzer",
    summary="Scaling exponents of spatial indexes over sizes, worlds, query patterns and radii",
    tags=("spatial", "scaling"),
)
class SpatialPerformanceAnalyzer(Experiment):
    """Builds each index at each size and asks it in every pattern."""

    param_schema: ClassVar = {
        **SIZES_PARAMS,
        "world_sizes": {
            "type": "list",
            "each": "float",
            "default": [100.0, 500.0],
            "exclusiveMinimum": 0,
            "description": "sides of the square that the radii are measured in",
        },
        "query_patterns": {
            "type": "list",
            "each": "str",
            "default": [*PATTERNS],
            "choices": [*PATTERNS],
            "description": "where questions are asked",
        },
        "query_radii": {
            "type": "list",
            "each": "float",
            "default": [10.0, 50.0],
            "minimum": 0,
            "description": "radii, in units of the world",
        },
        "steps": {"type": "int", "default": 20, "minimum": 1, "description": "questions of each kind"},
        "analyze_complexity": {"type": "bool", "default": True, "description": "scaling exponents"},
        "analyze_scalability": {
            "type": "bool",
            "default": True,
            "description": "throughput at the largest size relative to the smallest",
        },
        "analyze_memory_efficiency": {
            "type": "bool",
            "default": True,
            "description": "bytes per point, from one more build under tracemalloc",
        },
    }

    def setup(self, context: ExperimentContext) -> None:
        """Load the indexes and draw the points."""
        import proctor.analysis.scaling  # noqa: F401 - so that no call pays for the import

        p = self.params
        self.classes = {name: load_index(name) for name in p["algorithms"]}
        self.points = {
            count: draw_points(random.Random(context.seed + count), count, "uniform")  # noqa: S311 - repeatable, no secret
            for count in p["agent_counts"]
        }
        for each in self.classes.values():
            each([(0.1, 0.1), (0.2, 0.2)])

    def execute_once(self, context: ExperimentContext) -> dict[str, Any]:
        """Build, ask, and say how it grows."""
        p = self.params
        builds, rows = [], []
        for count, name in product(p["agent_counts"], p["algorithms"]):
            for _ in range(_BUILDS):
                index, seconds = timed(self.classes[name], self.points[count])
                builds.append({"algorithm": name, "agents": count, "build_s": seconds})
            rows += [
                {**case._asdict(), **self._ask(index, case, context.seed)}
                for case in self._cases(name, count)
            ]
            _check(index, self.points[count])
        found: dict[str, Any] = {}
        for name in p["algorithms"]:
            mine = [row for row in rows if row["algorithm"] == name]
            built = [row for row in builds if row["algorithm"] == name]
            found |= self._analysis(name, built, mine)
        return {**found, "combinations": len(rows), "builds": builds, "rows": rows}

    def _cases(self, name: str, count: int) -> list[_Case]:
        p = self.params
        kinds = product(p["world_sizes"], p["query_patterns"], p["query_radii"])
        return [_Case(name, count, *each) for each in kinds]

    def _ask(self, index: SpatialIndex, case: _Case, seed: int) -> dict[str, float]:
        steps = self.params["steps"]
        centers = draw_centers(random.Random(seed), steps, case.pattern)  # noqa: S311 - same
        radius = case.radius / case.world_size
        found, radius_s = timed(lambda: sum(len(index.radius(center, radius)) for center in centers))
        _, nearest_s = timed(lambda: [index.nearest(center, _NEAREST) for center in centers])
        return {
            "radius_us": radius_s / steps * 1e6,
            "nearest_us": nearest_s / steps * 1e6,
            "found": found / steps,
        }

    def _analysis(
        self, name: str, builds: list[dict[str, Any]], rows: list[dict[str, Any]]
    ) -> dict[str, float]:
        p = self.params
        found: dict[str, float] = {}
        if p["analyze_complexity"] and len(set(p["agent_counts"])) > 1:
            found |= _exponents(name, builds, rows)
        if p["analyze_scalability"]:
            found |= _scalability(name, rows)
        if p["analyze_memory_efficiency"]:
            largest = max(p["agent_counts"])
            found[f"{name}_bytes_per_point"] = self._bytes(name, largest) / largest
        return found

    def _bytes(self, name: str, count: int) -> int:
        import tracemalloc

        was_tracing = tracemalloc.is_tracing()
        if not was_tracing:
            tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            index = self.classes[name](self.points[count])
            taken = tracemalloc.get_traced_memory()[0] - before
            del index
        finally:
            if not was_tracing:
                tracemalloc.stop()
        return taken


def _exponents(name: str, builds: list[dict[str, Any]], rows: list[dict[str, Any]]) -> dict[str, float]:
    from proctor.analysis.scaling import scaling_exponent

    kinds = [(row["world_size"], row["pattern"], row["radius"]) for row in rows]
    sizes = [row["agents"] for row in rows]
    return {
        **scaling_exponent([row["agents"] for row in builds], [row["build_s"] for row in builds]).metrics(
            f"{name}_build_exponent"
        ),
        **scaling_exponent(sizes, [row["radius_us"] for row in rows], kinds).metrics(
            f"{name}_radius_exponent"
        ),
        **scaling_exponent(sizes, [row["nearest_us"] for row in rows], kinds).metrics(
            f"{name}_nearest_exponent"
        ),
    }


def _scalability(name: str, rows: list[dict[str, Any]]) -> dict[str, float]:
    """Questions a second at the largest size, and that as a share of the rate at the smallest."""
    sizes = [row["agents"] for row in rows]
    rate = {
        size: 1e6
        / median([row["radius_us"] + row["nearest_us"] for row in rows if row["agents"] == size])
        * 2
        for size in (min(sizes), max(sizes))
    }
    return {
        f"{name}_queries_per_s": rate[max(sizes)],
        f"{name}_rate_kept": rate[max(sizes)] / rate[min(sizes)],
    }


def _check(index: SpatialIndex, points: list[tuple[float, float]]) -> None:
    truth = BruteForce(points)
    for center in ((0.5, 0.5), (0.9, 0.1)):
        if sorted(index.radius(center, 0.1)) != sorted(truth.radius(center, 0.1)):
            raise AssertionError("a radius query differs from brute force")
        if index.nearest(center, _NEAREST) != truth.nearest(center, _NEAREST):
            raise AssertionError("a nearest query differs from brute force")
