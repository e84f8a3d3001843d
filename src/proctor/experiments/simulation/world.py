"""A small agent simulation: agents on a grid eat, move, share, multiply and die, and every step is logged.

It is the workload of several experiments. Plain Python and one random stream: the same configuration gives
the same log on any machine.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationConfig:
    """What is simulated."""

    num_agents: int = 100
    num_steps: int = 50
    width: int = 60
    height: int = 60
    food_share: float = 0.3
    """Cells that hold food at the start, and towards which it regrows."""
    max_agents: int = 0
    """Births stop at this many; 0: twice the agents at the start."""
    seed: int = 0


@dataclass(slots=True)
class Agent:
    """One inhabitant."""

    id: int
    x: int
    y: int
    energy: int
    age: int = 0


class State(NamedTuple):
    """One agent at the end of one step."""

    step: int
    agent_id: int
    x: int
    y: int
    energy: int
    age: int


class Action(NamedTuple):
    """What one agent did in one step, and to whom."""

    step: int
    agent_id: int
    action: str
    target_id: int | None
    energy_delta: int


class StepLog(NamedTuple):
    """Everything that one step leaves behind."""

    step: int
    states: list[State]
    actions: list[Action]


_FOOD_ENERGY = 12
_MOVE_COST = 2
_REST_COST = 1
_BIRTH_ENERGY = 60
_SHARE = 5


class Simulation:
    """A world and its agents; `run` yields the log of each step."""

    def __init__(self, config: SimulationConfig) -> None:
        self.config = config
        self._random = random.Random(config.seed)  # noqa: S311 - repeatable, no secret
        cells = [(x, y) for x in range(config.width) for y in range(config.height)]
        self._food = set(self._random.sample(cells, round(len(cells) * config.food_share)))
        self._food_limit = len(self._food)
        self.agents = [
            Agent(number, self._random.randrange(config.width), self._random.randrange(config.height), 30)
            for number in range(config.num_agents)
        ]
        self._next_id = config.num_agents
        self._max_agents = config.max_agents or 2 * config.num_agents
        self.step_number = 0

    def run(self) -> Iterator[StepLog]:
        """All steps, one log each."""
        for _ in range(self.config.num_steps):
            yield self.step()

    def food(self) -> list[tuple[float, float]]:
        """The cells with food."""
        return sorted(self._food)

    def step(self) -> StepLog:
        """Let every agent act once, in a new random order."""
        step = self.step_number
        actions: list[Action] = []
        where: dict[tuple[int, int], Agent] = {(agent.x, agent.y): agent for agent in self.agents}
        order = list(self.agents)
        self._random.shuffle(order)
        for agent in order:
            name, target, delta = self._act(agent, where)
            agent.energy += delta
            agent.age += 1
            actions.append(Action(step, agent.id, name, target, delta))
        self.agents = [agent for agent in self.agents if agent.energy > 0]
        self._regrow()
        self.step_number += 1
        states = [State(step, each.id, each.x, each.y, each.energy, each.age) for each in self.agents]
        return StepLog(step, states, actions)

    def _act(self, agent: Agent, where: dict[tuple[int, int], Agent]) -> tuple[str, int | None, int]:
        """Eat, multiply, share, rest or move; the first that is possible and chosen."""
        if (agent.x, agent.y) in self._food and agent.energy < _BIRTH_ENERGY:
            self._food.discard((agent.x, agent.y))
            return "gather", None, _FOOD_ENERGY
        if agent.energy >= _BIRTH_ENERGY and len(self.agents) < self._max_agents:
            return "reproduce", self._bear(agent), -(_BIRTH_ENERGY // 2)
        neighbour = where.get((agent.x, agent.y))
        if neighbour is not None and neighbour is not agent and agent.energy > neighbour.energy + _SHARE:
            neighbour.energy += _SHARE
            return "share", neighbour.id, -_SHARE
        if self._random.random() < 0.1:
            return "rest", None, -_REST_COST
        agent.x = (agent.x + self._random.randrange(-1, 2)) % self.config.width
        agent.y = (agent.y + self._random.randrange(-1, 2)) % self.config.height
        return "move", None, -_MOVE_COST

    def _bear(self, parent: Agent) -> int:
        child = Agent(self._next_id, parent.x, parent.y, _BIRTH_ENERGY // 2)
        self._next_id += 1
        self.agents.append(child)
        return child.id

    def _regrow(self) -> None:
        missing = self._food_limit - len(self._food)
        for _ in range(missing // 10):
            self._food.add(
                (self._random.randrange(self.config.width), self._random.randrange(self.config.height))
            )


def log_digest(steps: Iterable[tuple[Iterable[tuple[object, ...]], Iterable[tuple[object, ...]]]]) -> str:
    """One digest over (states, actions) of all steps: equal for equal content, wherever it was kept."""
    import hashlib

    whole = hashlib.sha256()
    for states, actions in steps:
        for row in states:
            whole.update(repr(tuple(row)).encode())
        for row in actions:
            whole.update(repr(tuple(row)).encode())
    return whole.hexdigest()
