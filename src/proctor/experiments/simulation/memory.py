"""What agents remember: one entry per agent and step, taken from the simulation itself."""

from __future__ import annotations

from typing import NamedTuple

from proctor.experiments.simulation.world import Simulation, SimulationConfig


class Memory(NamedTuple):
    """What one agent keeps of one step."""

    agent_id: int
    step: int
    x: int
    y: int
    energy: int
    action: str


def remembered(num_agents: int, entries: int, seed: int) -> dict[int, list[Memory]]:
    """Exactly `entries` memories of each of `num_agents` agents, oldest first.

    Agents that die leave their number to one born later, so that a long simulation fills every memory.
    """
    found: dict[int, list[Memory]] = {number: [] for number in range(num_agents)}
    round_number = 0
    while any(len(each) < entries for each in found.values()):
        config = SimulationConfig(num_agents=num_agents, num_steps=entries, seed=seed + round_number)
        for log in Simulation(config).run():
            acted = {action.agent_id: action.action for action in log.actions}
            for state in log.states:
                mine = found[state.agent_id % num_agents]
                if len(mine) < entries:
                    action = acted.get(state.agent_id, "born")
                    mine.append(
                        Memory(state.agent_id % num_agents, len(mine), state.x, state.y, state.energy, action)
                    )
        round_number += 1
    return found


def near(memories: list[Memory], x: float, y: float, radius: float) -> list[Memory]:
    """The memories of places within a radius, in order: by looking at all of them."""
    return [each for each in memories if (each.x - x) ** 2 + (each.y - y) ** 2 <= radius * radius]
