"""Where the time of a spatial index goes while agents walk: building, moving, three kinds of questions."""

from __future__ import annotations

import random
from typing import Any, ClassVar

from proctor.experiments.base import Experiment, ExperimentContext, register_experiment
from proctor.experiments.clocks import percentiles_us, timed_ns
from proctor.experiments.spatial.base import BruteForce, Point, SpatialIndex
from proctor.experiments.spatial.indexes import SIZES_PARAMS, draw_points, load_index, walk

QUERY_TYPES = ("range", "nearest", "intersection")
_NEAREST = 8
_MOVED_SHARE = 0.1
_STEP = 1.0
"""How far an agent walks in a step, in units of the world."""


@register_experiment(
    "spatial_index_profiler",
    summary="Build, move and query times of spatial indexes while agents walk, with percentiles",
    tags=("spatial", "profile"),
)
class SpatialIndexProfiler(Experiment):
    """Walks the same agents through every index at every size."""

    param_schema: ClassVar = {
        **SIZES_PARAMS,
        "world_size": {
            "type": "float",
            "default": 200.0,
            "exclusiveMinimum": 0,
            "description": "side of the square",
        },
        "query_types": {
            "type": "list",
            "each": "str",
            "default": [*QUERY_TYPES],
            "choices": [*QUERY_TYPES],
            "description": "kinds of questions",
        },
        "query_radius": {
            "type": "float",
            "default": 25.0,
            "minimum": 0,
            "description": "radius of a range, half the side of a box, in units of the world",
        },
        "steps": {
            "type": "int",
            "default": 100,
            "minimum": 1,
            "description": "rounds: some agents walk, then one question of each kind",
        },
    }

    def setup(self, context: ExperimentContext) -> None:
        """Load the indexes outside the timed calls."""
        self.radius = self.params["query_radius"] / self.params["world_size"]
        self.classes = {name: load_index(name) for name in self.params["algorithms"]}
        for each in self.classes.values():
            each(draw_points(random.Random(context.seed), 2, "uniform"))  # noqa: S311 - repeatable, no secret

    def execute_once(self, context: ExperimentContext) -> dict[str, Any]:
        """Every index at every size."""
        rows = [
            {"algorithm": name, "agents": count, **self._profile(name, count, context.seed)}
            for name in self.params["algorithms"]
            for count in self.params["agent_counts"]
        ]
        largest = max(self.params["agent_counts"])
        found: dict[str, Any] = {}
        for row in rows:
            if row["agents"] == largest:
                found |= {
                    f"{row['algorithm']}_{key}": value
                    for key, value in row.items()
                    if key.endswith(("_s", "_p50_us", "_p95_us"))
                }
        return {**found, "checked": sum(row["checked"] for row in rows), "rows": rows}

    def _profile(self, name: str, count: int, seed: int) -> dict[str, Any]:
        pick = random.Random(seed)  # noqa: S311 - repeatable, no secret
        points = draw_points(pick, count, "uniform")
        times: dict[str, list[int]] = {"build": [], "update": []}
        index = timed_ns(times["build"], self.classes[name], points)
        for _ in range(self.params["steps"]):
            moves = walk(pick, index.points, _MOVED_SHARE, _STEP / self.params["world_size"])
            timed_ns(times["update"], index.move_many, moves)
            center = pick.choice(index.points)
            for kind in self.params["query_types"]:
                timed_ns(times.setdefault(kind, []), ask, index, kind, center, self.radius)
        return {
            **{f"{key}_s": sum(taken) / 1e9 for key, taken in times.items()},
            **{k: v for key, taken in times.items() for k, v in percentiles_us(key, taken).items()},
            "checked": self._check(index, pick),
        }

    def _check(self, index: SpatialIndex, pick: random.Random) -> int:
        """The answers after all moves, against brute force; how many were compared."""
        truth = BruteForce(index.points)
        for kind in self.params["query_types"]:
            center = pick.choice(index.points)
            found, wanted = ask(index, kind, center, self.radius), ask(truth, kind, center, self.radius)
            if sorted(found) != sorted(wanted):
                raise AssertionError(f"{kind} query: {len(found)} points instead of {len(wanted)}")
        return len(self.params["query_types"])


def ask(index: SpatialIndex, kind: str, center: Point, radius: float) -> list[int]:
    """One question. A box is asked for as the circle around it, and what lies outside the box is left out."""
    if kind == "range":
        return index.radius(center, radius)
    if kind == "nearest":
        return index.nearest(center, _NEAREST)
    x, y = center
    return [
        number
        for number in index.radius(center, radius * 2**0.5 * (1 + 1e-12))
        if abs(index.points[number][0] - x) <= radius and abs(index.points[number][1] - y) <= radius
    ]
