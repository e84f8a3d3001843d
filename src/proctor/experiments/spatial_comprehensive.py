"""Which spatial index suits agents that look around and move: three of our own against two libraries.

One call builds the index, asks it, moves points and asks again. Each phase has its own clock; the answers
to a sample of the questions are compared with brute force, which was done in `setup`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from importlib import import_module
from time import perf_counter
from typing import Any, ClassVar, NamedTuple, TypeVar

from proctor.experiments.base import Experiment, ExperimentContext, register_experiment
from proctor.experiments.spatial.base import BruteForce, Move, Point, SpatialIndex

INDEXES = {
    "kd_tree": ("proctor.experiments.spatial.kd_tree", "KdTree"),
    "quadtree": ("proctor.experiments.spatial.quadtree", "Quadtree"),
    "spatial_hash": ("proctor.experiments.spatial.spatial_hash", "SpatialHash"),
    "scipy_kd_tree": ("proctor.experiments.spatial.libraries", "ScipyTree"),
    "sklearn_kd_tree": ("proctor.experiments.spatial.libraries", "SklearnTree"),
}
_SAMPLE = 20
T = TypeVar("T")


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
            "description": "data structure",
        },
        "points": {"type": "int", "default": 2000, "minimum": 1, "description": "points in the index"},
        "queries": {"type": "int", "default": 200, "minimum": 1, "description": "queries of each kind"},
        "radius": {
            "type": "float",
            "default": 0.05,
            "minimum": 0,
            "description": ("radius of the radius queries"),
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
        self.points = draw_points(pick, p["points"], p["distribution"])
        self.centers = draw_points(pick, p["queries"], p["distribution"])
        movers = pick.sample(range(p["points"]), min(p["updates"], p["points"]))
        self.moves: list[Move] = list(
            zip(movers, draw_points(pick, len(movers), p["distribution"]), strict=True)
        )
        truth = BruteForce(self.points)
        self.before = self._answers(truth)
        truth.move_many(self.moves)
        self.after = self._answers(truth)
        self.index_class(self.points[:2])

    def execute_once(self, context: ExperimentContext) -> dict[str, Any]:  # noqa: ARG002 - nothing needed of it
        """All phases once, from the same points."""
        p = self.params
        index, build_s = _timed(lambda: self.index_class(self.points))
        single = p["query_mode"] == "single"
        by_radius, radius_s = _timed(
            lambda: (
                [index.radius(center, p["radius"]) for center in self.centers]
                if single
                else index.radius_many(self.centers, p["radius"])
            )
        )
        by_count, nearest_s = _timed(
            lambda: (
                [index.nearest(center, p["nearest"]) for center in self.centers]
                if single
                else index.nearest_many(self.centers, p["nearest"])
            )
        )
        check(self.before, by_radius, by_count, "before any move")
        _, update_s = _timed(lambda: self._update(index))
        later = self.centers[:_SAMPLE]
        check(
            self.after,
            index.radius_many(later, p["radius"]),
            index.nearest_many(later, p["nearest"]),
            "after the moves",
        )
        return {
            "build_s": build_s,
            "radius_us": radius_s / len(self.centers) * 1e6,
            "nearest_us": nearest_s / len(self.centers) * 1e6,
            "update_us": update_s / len(self.moves) * 1e6,
            "queries_per_s": 2 * len(self.centers) / (radius_s + nearest_s),
            "found_per_radius_query": sum(map(len, by_radius)) / len(by_radius),
            "checked": 4 * len(later),
        }

    def _answers(self, truth: BruteForce) -> Answers:
        sample = self.centers[:_SAMPLE]
        return Answers(
            [set(found) for found in truth.radius_many(sample, self.params["radius"])],
            truth.nearest_many(sample, self.params["nearest"]),
        )

    def _update(self, index: SpatialIndex) -> None:
        if self.params["update_mode"] == "batched":
            index.move_many(self.moves)
        else:
            for number, to in self.moves:
                index.move(number, to)


def load_index(name: str) -> type[SpatialIndex]:
    """The class behind a name. Only the chosen one is imported: the libraries are heavy."""
    module, attribute = INDEXES[name]
    loaded: type[SpatialIndex] = getattr(import_module(module), attribute)
    return loaded


def draw_points(pick: random.Random, count: int, distribution: str) -> list[Point]:
    """Points in the unit square: spread evenly, or nine tenths of them in ten small clusters."""
    if distribution == "uniform":
        return [(pick.random(), pick.random()) for _ in range(count)]
    # The clusters lie where no draw can move them, so that points, questions and moves share them.
    centers = [(0.05 + 0.9 * ((7 * i) % 10) / 9, 0.05 + 0.9 * ((3 * i + 1) % 10) / 9) for i in range(10)]
    return [
        (pick.random(), pick.random()) if pick.random() < 0.1 else _near(pick, pick.choice(centers))
        for _ in range(count)
    ]


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


def _near(pick: random.Random, center: Point) -> Point:
    x, y = (min(1.0, max(0.0, pick.gauss(middle, 0.02))) for middle in center)
    return x, y


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    started = perf_counter()
    result = work()
    return result, perf_counter() - started
