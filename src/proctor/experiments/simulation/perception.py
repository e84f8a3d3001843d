"""What agents see: a field of agents and food, and each agent's observation of what is around it.

An observation is made in three stages: find what is near, project it onto the cells of a square around the
agent, and fill a dense array with it. `hybrid` keeps the projected cells alone and fills the array only when
they changed; `dense` fills it each time. numpy is imported by whoever makes a `Perception`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

CHANNELS = ("agents", "food", "visible")
STORAGE_MODES = ("hybrid", "dense")
Position = tuple[float, float]
Entry = tuple[int, int, int, float]
"""Channel, row and column of a cell, and its value."""
_FOOD_PER_CELL = 0.04
_REACH = 1.0
"""How far an agent moves in one step, at most."""


class Field:
    """Agents and food at places that are not whole numbers, in buckets for finding what is near."""

    def __init__(self, *, width: int, height: int, num_agents: int, bucket: float, seed: int) -> None:
        self.width, self.height, self.bucket = width, height, bucket
        self._random = random.Random(seed)  # noqa: S311 - repeatable, no secret
        self.agents = [self._anywhere() for _ in range(num_agents)]
        self.food = [self._anywhere() for _ in range(round(width * height * _FOOD_PER_CELL))]
        self._food_in = self._buckets(self.food)
        self._agents_in = self._buckets(self.agents)

    def step(self, move_share: float) -> None:
        """Let that share of the agents move."""
        draw = self._random
        for number, (x, y) in enumerate(self.agents):
            if draw.random() < move_share:
                self.agents[number] = (
                    min(self.width - 1e-6, max(0.0, x + draw.uniform(-_REACH, _REACH))),
                    min(self.height - 1e-6, max(0.0, y + draw.uniform(-_REACH, _REACH))),
                )
        self._agents_in = self._buckets(self.agents)

    def place(self, agents: list[Position], food: list[Position]) -> None:
        """Put these in the place of all that was here."""
        self.agents, self.food = agents, food
        self._agents_in, self._food_in = self._buckets(agents), self._buckets(food)

    def near(self, agent: int, reach: float) -> list[tuple[int, float, float]]:
        """Channel and offset of everything within reach of an agent, itself left out."""
        x, y = self.agents[agent]
        size, limit = self.bucket, reach * reach
        rows = range(int((y - reach) // size), int((y + reach) // size) + 1)
        columns = range(int((x - reach) // size), int((x + reach) // size) + 1)
        found = []
        for channel, (places, buckets) in enumerate(
            ((self.agents, self._agents_in), (self.food, self._food_in))
        ):
            for row in rows:
                for column in columns:
                    for number in buckets.get((row, column), ()):
                        dx, dy = places[number][0] - x, places[number][1] - y
                        if dx * dx + dy * dy <= limit and (channel or number != agent):
                            found.append((channel, dx, dy))
        return found

    def _anywhere(self) -> Position:
        return self._random.random() * self.width, self._random.random() * self.height

    def _buckets(self, places: Iterable[Position]) -> dict[tuple[int, int], list[int]]:
        found: dict[tuple[int, int], list[int]] = {}
        for number, (x, y) in enumerate(places):
            found.setdefault((int(y // self.bucket), int(x // self.bucket)), []).append(number)
        return found


def project(near: Iterable[tuple[int, float, float]], radius: int, *, bilinear: bool) -> list[Entry]:
    """The cells that things fall on: the nearest one, or the four around in proportion."""
    size = 2 * radius + 1
    cells: dict[tuple[int, int, int], float] = {}
    for channel, dx, dy in near:
        x, y = dx + radius, dy + radius
        if bilinear:
            left, top = math.floor(x), math.floor(y)
            right, below = x - left, y - top
            parts: tuple[tuple[int, int, float], ...] = (
                (top, left, (1 - below) * (1 - right)),
                (top, left + 1, (1 - below) * right),
                (top + 1, left, below * (1 - right)),
                (top + 1, left + 1, below * right),
            )
        else:
            parts = ((round(y), round(x), 1.0),)
        for row, column, value in parts:
            if value and 0 <= row < size and 0 <= column < size:
                cell = (channel, row, column)
                cells[cell] = cells.get(cell, 0.0) + value
    return sorted((*cell, value) for cell, value in cells.items())


@dataclass(slots=True)
class Kept:
    """The last observation of one agent."""

    entries: list[Entry] | None = None
    dense: Any = None


class Perception:
    """The observations of all agents of a field."""

    def __init__(
        self, field: Field, *, radius: int, fov_radius: int, storage: str = "hybrid", bilinear: bool = False
    ) -> None:
        import numpy as np

        self._np = np
        self.field, self.radius, self.storage, self.bilinear = field, radius, storage, bilinear
        self.reach = min(radius, fov_radius)
        size = 2 * radius + 1
        rows, columns = np.ogrid[-radius : radius + 1, -radius : radius + 1]
        self._empty = np.zeros((len(CHANNELS), size, size), dtype=np.float32)
        self._empty[2] = rows * rows + columns * columns <= fov_radius * fov_radius
        self.kept: dict[int, Kept] = {}
        self.observes = self.hits = 0

    def observe(self, agent: int) -> Any:
        """The dense array of what an agent sees now."""
        return self.dense(agent, self.project(self.field.near(agent, self.reach)))

    def project(self, near: Iterable[tuple[int, float, float]]) -> list[Entry]:
        """The second stage, with this perception's radius and interpolation."""
        return project(near, self.radius, bilinear=self.bilinear)

    def dense(self, agent: int, entries: list[Entry]) -> Any:
        """The third stage: the array, from the last one where nothing changed and the storage allows it."""
        kept = self.kept.setdefault(agent, Kept())
        self.observes += 1
        if self.storage == "hybrid" and kept.entries == entries:
            self.hits += 1
            return kept.dense
        kept.entries, kept.dense = entries, self.fill(entries)
        return kept.dense

    def fill(self, entries: list[Entry]) -> Any:
        """A new array with these cells."""
        array = self._empty.copy()
        for channel, row, column, value in entries:
            array[channel, row, column] = value
        return array

    def dense_bytes(self) -> int:
        """What the arrays of all agents take."""
        return int(self._empty.nbytes) * len(self.field.agents)

    def sparse_bytes(self) -> int:
        """What the cells of all agents take as arrays, two bytes per index and four per value; one mask."""
        cells = sum(len(kept.entries or ()) for kept in self.kept.values())
        return cells * (3 * 2 + 4) + int(self._empty[2].nbytes)

    def check(self, agents: Iterable[int]) -> None:
        """Fail unless the observation kept of each agent is what the field says now."""
        for agent in agents:
            wanted = self.fill(self.project(_all_near(self.field, agent, self.reach)))
            if not self._np.allclose(wanted, self.observe(agent), atol=1e-6):
                raise AssertionError(f"agent {agent} does not see what is around it")


def _all_near(field: Field, agent: int, reach: float) -> list[tuple[int, float, float]]:
    """Like `Field.near`, by looking at everything."""
    x, y = field.agents[agent]
    return [
        (channel, px - x, py - y)
        for channel, places in enumerate((field.agents, field.food))
        for number, (px, py) in enumerate(places)
        if (channel or number != agent) and (px - x) ** 2 + (py - y) ** 2 <= reach * reach
    ]
