"""Indexes by name, and the points, questions and walks that experiments draw for them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from proctor.experiments.spatial.base import Move, Point, SpatialIndex

INDEXES = ("kd_tree", "quadtree", "spatial_hash", "scipy_kd_tree", "sklearn_kd_tree")
OWN = ("quadtree", "spatial_hash", "kd_tree")
"""Those that need no library."""
PATTERNS = ("uniform", "clustered", "linear", "random")
SIZES_PARAMS: dict[str, Any] = {
    "algorithms": {
        "type": "list",
        "each": "str",
        "default": [*OWN],
        "choices": [*INDEXES],
        "description": "data structures",
    },
    "agent_counts": {
        "type": "list",
        "each": "int",
        "default": [100, 500, 1000],
        "minimum": 1,
        "description": "numbers of points",
    },
}


def load_index(name: str) -> type[SpatialIndex]:
    """The class behind a name. Only the chosen one is imported: the libraries are heavy."""
    # Import statements, not names of modules as text: the digest of an experiment follows them.
    if name == "kd_tree":
        from proctor.experiments.spatial.kd_tree import KdTree

        return KdTree
    if name == "quadtree":
        from proctor.experiments.spatial.quadtree import Quadtree

        return Quadtree
    if name == "spatial_hash":
        from proctor.experiments.spatial.spatial_hash import SpatialHash

        return SpatialHash
    from proctor.experiments.spatial import libraries

    return {"scipy_kd_tree": libraries.ScipyTree, "sklearn_kd_tree": libraries.SklearnTree}[name]


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


def draw_centers(pick: random.Random, count: int, pattern: str) -> list[Point]:
    """Places to ask about: evenly spaced, where the clusters are, along the diagonal, or anywhere."""
    if pattern == "uniform":
        side = max(1, round(count**0.5))
        return [((i % side + 0.5) / side, (i // side % side + 0.5) / side) for i in range(count)]
    if pattern == "linear":
        return [((i + 0.5) / count, (i + 0.5) / count) for i in range(count)]
    return draw_points(pick, count, "clustered" if pattern == "clustered" else "uniform")


def walk(pick: random.Random, points: Sequence[Point], share: float, reach: float) -> list[Move]:
    """Some points, each moved by at most `reach` and kept in the square."""
    movers = pick.sample(range(len(points)), max(1, round(len(points) * share)))
    return [(number, _step(pick, points[number], reach)) for number in movers]


def _step(pick: random.Random, point: Point, reach: float) -> Point:
    x, y = (min(1.0, max(0.0, each + pick.uniform(-reach, reach))) for each in point)
    return x, y


def _near(pick: random.Random, center: Point) -> Point:
    x, y = (min(1.0, max(0.0, pick.gauss(middle, 0.02))) for middle in center)
    return x, y
