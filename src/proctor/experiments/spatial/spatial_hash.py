"""A spatial hash: the plane in equal cells, each with a list of its points."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from proctor.experiments.spatial.base import Point, SpatialIndex, squared

_PER_CELL = 4
"""Points per cell, on average, when they are spread evenly."""

Cell = tuple[int, int]


class SpatialHash(SpatialIndex):
    """Cheap to build and to update; its answers are cheap while the points are spread evenly."""

    def __init__(self, points: Sequence[Point]) -> None:
        super().__init__(points)
        xs, ys = [x for x, _ in self.points] or [0.0], [y for _, y in self.points] or [0.0]
        side = max(max(xs) - min(xs), max(ys) - min(ys)) or 1.0
        self._cell_size = side / max(1.0, math.sqrt(len(self.points) / _PER_CELL))
        self._cells: dict[Cell, list[int]] = {}
        for number, point in enumerate(self.points):
            self._cells.setdefault(self._cell(point), []).append(number)

    def radius(self, center: Point, radius: float) -> list[int]:
        """Look into every cell that the circle's square touches."""
        limit = radius * radius
        points, cells = self.points, self._cells
        low_x, low_y = self._cell((center[0] - radius, center[1] - radius))
        high_x, high_y = self._cell((center[0] + radius, center[1] + radius))
        found: list[int] = []
        for x in range(low_x, high_x + 1):
            for y in range(low_y, high_y + 1):
                bucket = cells.get((x, y))
                if bucket:
                    found += [number for number in bucket if squared(center, points[number]) <= limit]
        return found

    def nearest(self, center: Point, count: int) -> list[int]:
        """Ring by ring outwards, until no farther ring can hold anything nearer."""
        count = min(count, len(self.points))
        found: list[tuple[float, int]] = []
        home = self._cell(center)
        # Far from all points, walking the rings would cost more than looking at every point.
        for ring in range(2 + math.isqrt(4 * len(self._cells))):
            for cell in _ring(home, ring):
                found += self._distances(center, self._cells.get(cell, ()))
            if len(found) >= count:
                found = sorted(found)[:count]
                # Everything nearer than this lies in the rings already seen.
                if not found or found[-1][0] <= (ring * self._cell_size) ** 2:
                    return [number for _, number in found]
        everything = sorted(self._distances(center, range(len(self.points))))
        return [number for _, number in everything[:count]]

    def move(self, number: int, to: Point) -> None:
        """Out of one cell, into another."""
        old, new = self._cell(self.points[number]), self._cell(to)
        self.points[number] = to
        if old != new:
            bucket = self._cells[old]
            bucket.remove(number)
            if not bucket:
                del self._cells[old]
            self._cells.setdefault(new, []).append(number)

    def _distances(self, center: Point, numbers: Sequence[int]) -> list[tuple[float, int]]:
        return [(squared(center, self.points[number]), number) for number in numbers]

    def _cell(self, point: Point) -> Cell:
        return math.floor(point[0] / self._cell_size), math.floor(point[1] / self._cell_size)


def _ring(home: Cell, ring: int) -> Iterator[Cell]:
    """The cells exactly `ring` steps away, diagonals included."""
    x, y = home
    if ring == 0:
        yield home
        return
    for dx in range(-ring, ring + 1):
        yield x + dx, y - ring
        yield x + dx, y + ring
    for dy in range(-ring + 1, ring):
        yield x - ring, y + dy
        yield x + ring, y + dy
