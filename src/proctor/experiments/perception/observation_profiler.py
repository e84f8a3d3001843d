"""Where the time of an observation goes: finding what is near, projecting it, filling the array."""

from __future__ import annotations

from typing import Any, ClassVar

from proctor.experiments.base import Experiment, ExperimentContext, register_experiment
from proctor.experiments.clocks import percentiles_us, timed_ns
from proctor.experiments.perception.observation_flow import CHECKED, ObservationFlow, make_field
from proctor.experiments.simulation.perception import Perception

STAGES = ("near", "project", "dense")


@register_experiment(
    "observation_profiler",
    summary="The stages of an observation, each with its share and percentiles",
    tags=("perception", "simulation", "profile"),
)
class ObservationProfiler(Experiment):
    """The work of `observation_flow` with a clock around each stage."""

    param_schema: ClassVar = ObservationFlow.param_schema

    def setup(self, context: ExperimentContext) -> None:  # noqa: ARG002 - nothing needed of it
        """Import numpy outside the timed calls."""
        import numpy as np  # noqa: F401 - for its side effect of being loaded

    def execute_once(self, context: ExperimentContext) -> dict[str, Any]:
        """Every agent observes at every step, stage by stage."""
        p = self.params
        field = make_field(p, context.seed)
        seen = Perception(
            field,
            radius=p["radius"],
            fov_radius=p["fov_radius"],
            storage=p["storage"],
            bilinear=p["use_bilinear"],
        )
        times: dict[str, list[int]] = {stage: [] for stage in STAGES}
        moving: list[int] = []
        agents = range(p["num_agents"])
        for _ in range(p["steps"]):
            timed_ns(moving, field.step, p["move_share"])
            for agent in agents:
                near = timed_ns(times["near"], field.near, agent, seen.reach)
                entries = timed_ns(times["project"], seen.project, near)
                timed_ns(times["dense"], seen.dense, agent, entries)
        hit_rate = seen.hits / seen.observes
        seen.check(agents[:CHECKED])
        total = sum(map(sum, times.values()))
        return {
            "total_observes": p["steps"] * p["num_agents"],
            **{f"{stage}_s": sum(taken) / 1e9 for stage, taken in times.items()},
            **{f"{stage}_share": sum(taken) / total for stage, taken in times.items()},
            **{key: value for stage, taken in times.items() for key, value in _tail(stage, taken).items()},
            "move_s": sum(moving) / 1e9,
            "cache_hit_rate": hit_rate,
        }


def _tail(stage: str, taken: list[int]) -> dict[str, float]:
    return percentiles_us(stage, taken, (50, 95, 99))
