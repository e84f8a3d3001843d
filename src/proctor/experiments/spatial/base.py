"""What every spatial index can do, and the brute force that all are checked against."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

Point = tuple[float, float]
Move = tuple[int, Point]
"""Moves: point number and new position."""


class SpatialIndex(ABC):
    """Points in the unit square, known by their number. Built once, then asked and updated."""

    def __init__(self, points: Sequence[Point]) -> None:
        self.points = list(points)

    @abstractmethod
    def radius(self, center: Point, radius: float) -> list[int]:
        """All points at most `radius` away, in any order."""

    @abstractmethod
    def nearest(self, center: Point, count: int) -> list[int]:
        """The `count` nearest points, nearest first."""

    @abstractmethod
    def move(self, number: int, to: Point) -> None:
        """Move one point; the next answer knows."""

    def radius_many(self, centers: Sequence[Point], radius: float) -> list[list[int]]:
        """Many radius queries; libraries answer them in one call."""
        return [self.radius(center, radius) for center in centers]

    def nearest_many(self, centers: Sequence[Point], count: int) -> list[list[int]]:
        """Many nearest queries; libraries answer them in one call."""
        return [self.nearest(center, count) for center in centers]

    def move_many(self, moves: Sequence[Move]) -> None:
        """Move many points before the next query, in the cheapest way."""
        for number, to in moves:
            self.move(number, to)


class BruteForce(SpatialIndex):
    """Looks at every point for every question: slow, and right by inspection."""

    def radius(self, center: Point, radius: float) -> list[int]:
        """Compare all distances."""
        limit = radius * radius
        return [number for number, point in enumerate(self.points) if squared(center, point) <= limit]

    def nearest(self, center: Point, count: int) -> list[int]:
        """Sort all distances."""
        order = sorted(range(len(self.points)), key=lambda number: squared(center, self.points[number]))
        return order[:count]

    def move(self, number: int, to: Point) -> None:
        """Nothing else to keep up to date."""
        self.points[number] = to


def squared(one: Point, other: Point) -> float:
    """The square of the distance: enough to compare by."""
    dx = one[0] - other[0]
    dy = one[1] - other[1]
    return dx * dx + dy * dy
