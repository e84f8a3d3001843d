"""Which spatial index suits agents that look around and move: three of our own against two libraries.

One call builds the index, asks it, moves points and asks again. Each phase has its own clock; the answers
to a sample of the questions are compared with brute force, which was done in `setup`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from proctor.experiments.base import Experiment, ExperimentContext, register_experiment
from proctor.experiments.clocks import timed
from proctor.experiments.spatial.base import BruteForce, Move, SpatialIndex
from proctor.experiments.spatial.indexes import INDEXES, draw_points, load_index

_SAMPLE = 20


class Answers(NamedTuple):
    """What the sampled questions must be answered with."""

    radius: list[set[int]]
    nearest: list[list[int]]


@register_experiment(
    "spatial_comprehensive",
    summary="KD-tree, quadtree and spatial hash against SciPy and scikit-learn",
    tags=("spatial",),
)
class SpatialComprehensive(Experiment):
    """Builds, asks and updates one index over points in the unit square."""

    param_schema: ClassVar = {
        "index": {
            "type": "str",
            "default": "kd_tree",
            "choices": [*INDEXES],
            "aliases": ["algorithms"],
            "description": "data structure",
        },
        "points": {
            "type": "int",
            "default": 2000,
            "minimum": 1,
            "aliases": ["agent_counts"],
            "description": "points in the index",
        },
        "steps": {
            "type": "int",
            "default": 1,
            "minimum": 1,
            "description": "rounds of queries and moves after the index was built",
        },
        "world_size": {
            "type": "float",
            "default": 1.0,
            "exclusiveMinimum": 0,
            "aliases": ["world_sizes"],
            "description": "side of the square that the radius is measured in",
        },
        "queries": {"type": "int", "default": 200, "minimum": 1, "description": "queries of each kind"},
        "radius": {
            "type": "float",
            "default": 0.05,
            "minimum": 0,
            "aliases": ["query_radii"],
            "description": "radius of the radius queries",
        },
        "nearest": {"type": "int", "default": 8, "minimum": 1, "description": "neighbours per nearest query"},
        "updates": {"type": "int", "default": 50, "minimum": 1, "description": "points that move"},
        "update_mode": {
            "type": "str",
            "default": "batched",
            "choices": ["immediate", "batched"],
            "description": "move one point at a time, or all before the next query",
        },
        "query_mode": {
            "type": "str",
            "default": "single",
            "choices": ["single", "bulk"],
            "description": "one query at a time, or all in one call",
        },
        "distribution": {
            "type": "str",
            "default": "uniform",
            "choices": ["uniform", "clustered"],
            "description": "distribution of the points",
        },
    }

    def setup(self, context: ExperimentContext) -> None:
        """Draw points, questions and moves, and answer a sample of the questions by brute force."""
        p = self.params
        pick = random.Random(context.seed)  # noqa: S311 - repeatable, no secret
        self.index_class = load_index(p["index"])
        # The indexes are made for the unit square; only the radius relative to the world counts.
        self.radius = p["radius"] / p["world_size"]
        self.points = draw_points(pick, p["points"], p["distribution"])
        self.centers = draw_points(pick, p["queries"], p["distribution"])
        self.moves = [self._draw_moves(pick) for _ in range(p["steps"])]
        truth = BruteForce(self.points)
        self.before = self._answers(truth)
        for moves in self.moves:
            truth.move_many(moves)
        self.after = self._answers(truth)
        self.index_class(self.points[:2])

    def execute_once(self, context: ExperimentContext) -> dict[str, Any]:  # noqa: ARG002 - nothing needed of it
        """All phases once, from the same points."""
        index, build_s = timed(self.index_class, self.points)
        radius_s = nearest_s = update_s = 0.0
        found = 0
        for number, moves in enumerate(self.moves):
            by_radius, seconds = timed(self._by_radius, index)
            radius_s += seconds
            found += sum(map(len, by_radius))
            by_count, seconds = timed(self._by_count, index)
            nearest_s += seconds
            if number == 0:
                check(self.before, by_radius, by_count, "before any move")
            update_s += timed(self._update, index, moves)[1]
        later = self.centers[:_SAMPLE]
        check(
            self.after,
            index.radius_many(later, self.radius),
            index.nearest_many(later, self.params["nearest"]),
            "after the moves",
        )
        asked, moved = len(self.centers) * len(self.moves), sum(map(len, self.moves))
        return {
            "build_s": build_s,
            "radius_us": radius_s / asked * 1e6,
            "nearest_us": nearest_s / asked * 1e6,
            "update_us": update_s / moved * 1e6,
            "queries_per_s": 2 * asked / (radius_s + nearest_s),
            "found_per_radius_query": found / asked,
            "checked": 4 * len(later),
        }

    def _draw_moves(self, pick: random.Random) -> list[Move]:
        p = self.params
        movers = pick.sample(range(p["points"]), min(p["updates"], p["points"]))
        return list(zip(movers, draw_points(pick, len(movers), p["distribution"]), strict=True))

    def _answers(self, truth: BruteForce) -> Answers:
        sample = self.centers[:_SAMPLE]
        return Answers(
            [set(found) for found in truth.radius_many(sample, self.radius)],
            truth.nearest_many(sample, self.params["nearest"]),
        )

    def _by_radius(self, index: SpatialIndex) -> list[list[int]]:
        if self.params["query_mode"] == "bulk":
            return index.radius_many(self.centers, self.radius)
        return [index.radius(center, self.radius) for center in self.centers]

    def _by_count(self, index: SpatialIndex) -> list[list[int]]:
        count = self.params["nearest"]
        if self.params["query_mode"] == "bulk":
            return index.nearest_many(self.centers, count)
        return [index.nearest(center, count) for center in self.centers]

    def _update(self, index: SpatialIndex, moves: list[Move]) -> None:
        if self.params["update_mode"] == "batched":
            index.move_many(moves)
        else:
            for number, to in moves:
                index.move(number, to)


def check(
    expected: Answers, by_radius: Sequence[list[int]], by_count: Sequence[list[int]], when: str
) -> None:
    """Fail unless the sampled answers are those of brute force."""
    for number, (wanted, found) in enumerate(zip(expected.radius, by_radius, strict=False)):
        if len(found) != len(wanted) or set(found) != wanted:
            raise AssertionError(
                f"radius query {number} {when}: {len(found)} points instead of {len(wanted)}"
            )
    for number, (nearest, found) in enumerate(zip(expected.nearest, by_count, strict=False)):
        if list(found) != nearest:
            raise AssertionError(f"nearest query {number} {when}: {list(found)} instead of {nearest}")
