"""A KD-tree with buckets at its leaves: split at the median, by the wider side, until a bucket is small."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappush, heappushpop

from proctor.experiments.spatial.base import Point, SpatialIndex, squared

_BUCKET = 16
_FULL = 2 * _BUCKET


class _Node:
    """A leaf with a bucket of points, or a split with two children."""

    __slots__ = ("at", "axis", "bucket", "high", "low")

    def __init__(self, bucket: list[int]) -> None:
        self.bucket: list[int] | None = bucket
        self.axis = 0
        self.at = 0.0
        self.low: _Node | None = None
        self.high: _Node | None = None


class KdTree(SpatialIndex):
    """A moved point leaves its bucket and enters another, which splits when it is full."""

    def __init__(self, points: Sequence[Point]) -> None:
        super().__init__(points)
        self._root = _Node(list(range(len(self.points))))
        self._split(self._root, _BUCKET)

    def radius(self, center: Point, radius: float) -> list[int]:
        """Visit a side only if the circle reaches it."""
        limit = radius * radius
        points = self.points
        found: list[int] = []
        waiting = [self._root]
        while waiting:
            node = waiting.pop()
            if node.bucket is not None:
                found += [number for number in node.bucket if squared(center, points[number]) <= limit]
                continue
            assert node.low is not None
            assert node.high is not None
            offset = center[node.axis] - node.at
            if offset <= radius:
                waiting.append(node.low)
            if offset >= -radius:
                waiting.append(node.high)
        return found

    def nearest(self, center: Point, count: int) -> list[int]:
        """The near side first, the far side only while it may hold something nearer."""
        best: list[tuple[float, int]] = []
        self._search(self._root, center, count, best)
        return [number for _, number in sorted(best, reverse=True)]

    def move(self, number: int, to: Point) -> None:
        """Out of one bucket, into another."""
        old = self._leaf(self.points[number])
        assert old.bucket is not None
        old.bucket.remove(number)
        self.points[number] = to
        new = self._leaf(to)
        assert new.bucket is not None
        new.bucket.append(number)
        if len(new.bucket) > _FULL:
            self._split(new, _FULL)

    def _leaf(self, point: Point) -> _Node:
        node = self._root
        while node.bucket is None:
            child = node.low if point[node.axis] < node.at else node.high
            assert child is not None
            node = child
        return node

    def _split(self, start: _Node, limit: int) -> None:
        waiting = [start]
        points = self.points
        while waiting:
            node = waiting.pop()
            bucket = node.bucket
            if bucket is None or len(bucket) <= limit:
                continue
            sides = [[points[number][axis] for number in bucket] for axis in (0, 1)]
            axis = 0 if max(sides[0]) - min(sides[0]) >= max(sides[1]) - min(sides[1]) else 1
            at = sorted(sides[axis])[len(bucket) // 2]
            low = [number for number in bucket if points[number][axis] < at]
            if not low:  # half of the points share the lowest coordinate: the bucket stays whole
                continue
            high = [number for number in bucket if points[number][axis] >= at]
            node.axis, node.at, node.bucket = axis, at, None
            node.low, node.high = _Node(low), _Node(high)
            waiting += [node.low, node.high]

    def _search(self, node: _Node, center: Point, count: int, best: list[tuple[float, int]]) -> None:
        """`best` is a heap of (-squared distance, number): its top is the farthest of the nearest."""
        if node.bucket is not None:
            for number in node.bucket:
                entry = (-squared(center, self.points[number]), number)
                if len(best) < count:
                    heappush(best, entry)
                elif entry > best[0]:
                    heappushpop(best, entry)
            return
        assert node.low is not None
        assert node.high is not None
        offset = center[node.axis] - node.at
        near, far = (node.low, node.high) if offset < 0 else (node.high, node.low)
        self._search(near, center, count, best)
        if len(best) < count or offset * offset <= -best[0][0]:
            self._search(far, center, count, best)
