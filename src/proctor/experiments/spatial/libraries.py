"""SciPy's and scikit-learn's trees behind the same interface. Neither can be changed: a move is a rebuild."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from proctor.errors import MissingExtraError
from proctor.experiments.spatial.base import Move, Point, SpatialIndex


class _Rebuilt(SpatialIndex):
    """Built again after every change, or after a whole batch of them, from an array made once."""

    def __init__(self, points: Sequence[Point]) -> None:
        import numpy as np

        super().__init__(points)
        self._array = np.array(self.points)
        self._rebuild()

    def move(self, number: int, to: Point) -> None:
        """One rebuild per move."""
        self._array[number] = to
        self._rebuild()

    def move_many(self, moves: Sequence[Move]) -> None:
        """One rebuild for all of them."""
        for number, to in moves:
            self._array[number] = to
        self._rebuild()

    @abstractmethod
    def _rebuild(self) -> None:
        """Make the tree from the array."""


class ScipyTree(_Rebuilt):
    """`scipy.spatial.cKDTree`."""

    def radius(self, center: Point, radius: float) -> list[int]:
        """One query."""
        found: list[int] = self._tree.query_ball_point(center, radius)
        return found

    def nearest(self, center: Point, count: int) -> list[int]:
        """One query."""
        return self.nearest_many([center], count)[0]

    def radius_many(self, centers: Sequence[Point], radius: float) -> list[list[int]]:
        """All in one call."""
        return list(self._tree.query_ball_point(centers, radius))

    def nearest_many(self, centers: Sequence[Point], count: int) -> list[list[int]]:
        """All in one call."""
        _, numbers = self._tree.query(centers, k=range(1, min(count, len(self.points)) + 1))
        found: list[list[int]] = numbers.tolist()
        return found

    def _rebuild(self) -> None:
        self._tree: Any = _scipy_tree()(self._array)


class SklearnTree(_Rebuilt):
    """`sklearn.neighbors.KDTree`."""

    def radius(self, center: Point, radius: float) -> list[int]:
        """One query."""
        return self.radius_many([center], radius)[0]

    def nearest(self, center: Point, count: int) -> list[int]:
        """One query."""
        return self.nearest_many([center], count)[0]

    def radius_many(self, centers: Sequence[Point], radius: float) -> list[list[int]]:
        """All in one call."""
        return [found.tolist() for found in self._tree.query_radius(centers, radius)]

    def nearest_many(self, centers: Sequence[Point], count: int) -> list[list[int]]:
        """All in one call."""
        found: list[list[int]] = self._tree.query(
            centers, k=min(count, len(self.points)), return_distance=False
        ).tolist()
        return found

    def _rebuild(self) -> None:
        self._tree: Any = _sklearn_tree()(self._array)


def _scipy_tree() -> Any:
    try:
        from scipy.spatial import cKDTree
    except ImportError:
        raise MissingExtraError("scipy", "spatial", "index 'scipy_kd_tree'") from None
    return cKDTree


def _sklearn_tree() -> Any:
    try:
        from sklearn.neighbors import KDTree
    except ImportError:
        raise MissingExtraError("scikit-learn", "spatial", "index 'sklearn_kd_tree'") from None
    return KDTree
