"""How many observations a second agents on a grid can make, and what those take in memory.

One call makes the field anew and lets every agent observe at every step, so all calls see the same world.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any, ClassVar

from proctor.experiments.base import Experiment, ExperimentContext, register_experiment
from proctor.experiments.clocks import per_second
from proctor.experiments.simulation.perception import STORAGE_MODES, Field, Perception
from proctor.model.describe import percentile

CHECKED = 5
"""Agents whose last observation is compared with brute force in each call."""
FIELD_PARAMS: dict[str, Any] = {
    "width": {"type": "int", "default": 200, "minimum": 1, "description": "columns of the grid"},
    "height": {"type": "int", "default": 200, "minimum": 1, "description": "rows of the grid"},
    "num_agents": {"type": "int", "default": 200, "minimum": 1, "description": "agents that observe"},
    "steps": {"type": "int", "default": 100, "minimum": 1, "description": "steps per call"},
    "radius": {"type": "int", "default": 6, "minimum": 1, "description": "half the side of an observation"},
    "fov_radius": {
        "type": "int",
        "default": 6,
        "minimum": 1,
        "description": "how far an agent sees; beyond it its observation is empty",
    },
    "move_share": {
        "type": "float",
        "default": 0.25,
        "minimum": 0,
        "maximum": 1,
        "description": "share of the agents that move in a step",
    },
    "device": {"type": "str", "default": "cpu", "choices": ["cpu"], "description": "where it is computed"},
}


@register_experiment(
    "observation_flow",
    summary="Agents on a grid build local observations: throughput, step times, bytes, cache hits",
    tags=("perception", "simulation"),
)
class ObservationFlow(Experiment):
    """Lets all agents observe, step after step."""

    param_schema: ClassVar = {
        **FIELD_PARAMS,
        "storage": {
            "type": "str",
            "default": "hybrid",
            "choices": [*STORAGE_MODES],
            "description": "keep the cells and fill the array when they change, or fill it each time",
        },
        "use_bilinear": {
            "type": "bool",
            "default": False,
            "description": "spread each thing over four cells",
        },
    }

    def setup(self, context: ExperimentContext) -> None:  # noqa: ARG002 - nothing needed of it
        """Import numpy outside the timed calls."""
        import numpy as np  # noqa: F401 - for its side effect of being loaded

    def execute_once(self, context: ExperimentContext) -> dict[str, Any]:
        """A new field, one round of observations to fill the cache, then the steps."""
        p = self.params
        seen = Perception(
            make_field(p, context.seed),
            radius=p["radius"],
            fov_radius=p["fov_radius"],
            storage=p["storage"],
            bilinear=p["use_bilinear"],
        )
        return flow(seen, p["steps"], p["move_share"])


def make_field(params: dict[str, Any], seed: int) -> Field:
    """The field of an experiment's parameters."""
    return Field(
        width=params["width"],
        height=params["height"],
        num_agents=params["num_agents"],
        bucket=float(params["radius"]),
        seed=seed,
    )


def flow(seen: Perception, steps: int, move_share: float) -> dict[str, Any]:
    """Let all agents observe at each step; what came of it."""
    agents = range(len(seen.field.agents))
    for agent in agents:
        seen.observe(agent)
    seen.observes = seen.hits = 0
    times: list[float] = []
    for _ in range(steps):
        seen.field.step(move_share)
        started = perf_counter()
        for agent in agents:
            seen.observe(agent)
        times.append(perf_counter() - started)
    total, hits = seen.observes, seen.hits
    seen.check(agents[:CHECKED])
    dense, sparse = seen.dense_bytes(), seen.sparse_bytes()
    return {
        "total_observes": total,
        "observes_per_sec": per_second(total, sum(times)),
        "mean_step_time_s": sum(times) / steps,
        "p95_step_time_s": percentile(sorted(times), 95),
        "dense_bytes": dense,
        "sparse_bytes": sparse,
        "memory_reduction_percent": 100 * (1 - sparse / dense),
        "cache_hit_rate": hits / total,
        "checked": len(agents[:CHECKED]),
    }
