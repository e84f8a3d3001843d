"""A quadtree: every full cell of the plane is cut into four equal ones."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import count as counter

from proctor.experiments.spatial.base import Point, SpatialIndex, squared

_BUCKET = 16
_DEEPEST = 24
"""Equal points cannot be separated; a cell of this depth holds all of its points."""


class _Cell:
    """A square with a bucket of points, or with four smaller squares."""

    __slots__ = ("bucket", "children", "depth", "size", "x", "y")

    def __init__(self, x: float, y: float, size: float, depth: int) -> None:
        self.x = x
        self.y = y
        self.size = size
        self.depth = depth
        self.bucket: list[int] = []
        self.children: tuple[_Cell, _Cell, _Cell, _Cell] | None = None

    def child(self, point: Point) -> _Cell:
        """The quarter in which a point lies."""
        assert self.children is not None
        half = self.size / 2
        return self.children[(point[0] >= self.x + half) + 2 * (point[1] >= self.y + half)]

    def squared_distance(self, point: Point) -> float:
        """From a point to the nearest place in this square; 0 inside."""
        dx = max(self.x - point[0], 0.0, point[0] - self.x - self.size)
        dy = max(self.y - point[1], 0.0, point[1] - self.y - self.size)
        return dx * dx + dy * dy


class Quadtree(SpatialIndex):
    """The root covers the points it is built with; one that leaves it makes the root grow by rebuilding."""

    def __init__(self, points: Sequence[Point]) -> None:
        super().__init__(points)
        self._build()

    def radius(self, center: Point, radius: float) -> list[int]:
        """Visit only cells that the circle touches."""
        limit = radius * radius
        points = self.points
        found: list[int] = []
        waiting = [self._root]
        while waiting:
            cell = waiting.pop()
            if cell.squared_distance(center) > limit:
                continue
            if cell.children is not None:
                waiting += cell.children
            else:
                found += [number for number in cell.bucket if squared(center, points[number]) <= limit]
        return found

    def nearest(self, center: Point, count: int) -> list[int]:
        """Cells and points leave one queue in order of distance; points that leave it are the answer."""
        tie = counter()
        waiting: list[tuple[float, int, _Cell | int]] = [(0.0, next(tie), self._root)]
        found: list[int] = []
        while waiting and len(found) < count:
            _, _, nearest = heappop(waiting)
            if isinstance(nearest, int):
                found.append(nearest)
            elif nearest.children is not None:
                for child in nearest.children:
                    heappush(waiting, (child.squared_distance(center), next(tie), child))
            else:
                for number in nearest.bucket:
                    heappush(waiting, (squared(center, self.points[number]), next(tie), number))
        return found

    def move(self, number: int, to: Point) -> None:
        """Out of one cell, into another."""
        self._leaf(self.points[number]).bucket.remove(number)
        self.points[number] = to
        if self._root.squared_distance(to) > 0:
            self._build()
        else:
            self._insert(number)

    def _build(self) -> None:
        xs, ys = [x for x, _ in self.points] or [0.0], [y for _, y in self.points] or [0.0]
        low_x, low_y = min(xs), min(ys)
        self._root = _Cell(low_x, low_y, max(max(xs) - low_x, max(ys) - low_y, 1e-9), 0)
        for number in range(len(self.points)):
            self._insert(number)

    def _leaf(self, point: Point) -> _Cell:
        cell = self._root
        while cell.children is not None:
            cell = cell.child(point)
        return cell

    def _insert(self, number: int) -> None:
        cell = self._leaf(self.points[number])
        cell.bucket.append(number)
        while len(cell.bucket) > _BUCKET and cell.depth < _DEEPEST:
            half, depth = cell.size / 2, cell.depth + 1
            cell.children = (
                _Cell(cell.x, cell.y, half, depth),
                _Cell(cell.x + half, cell.y, half, depth),
                _Cell(cell.x, cell.y + half, half, depth),
                _Cell(cell.x + half, cell.y + half, half, depth),
            )
            for each in cell.bucket:
                cell.child(self.points[each]).bucket.append(each)
            cell.bucket = []
            cell = max(cell.children, key=lambda child: len(child.bucket))
