"""What agent counts, radii, storage and interpolation do to observations: every combination in one call.

The field grows with the agents, so that the density stays the same and the exponent tells the price of the
number alone.
"""

from __future__ import annotations

from itertools import product
from typing import Any, ClassVar

from proctor.experiments.base import Experiment, ExperimentContext, register_experiment
from proctor.experiments.perception.observation_flow import flow
from proctor.experiments.simulation.perception import STORAGE_MODES, Field, Perception

_CELLS_PER_AGENT = 200
_MOVE_SHARE = 0.25


@register_experiment(
    "perception_metrics",
    summary="Observations by agent count, radius, storage and interpolation, with the scaling exponent",
    tags=("perception", "simulation"),
)
class PerceptionMetrics(Experiment):
    """Runs `observation_flow`'s work for every combination of its lists."""

    param_schema: ClassVar = {
        "agent_counts": {
            "type": "list",
            "each": "int",
            "default": [100, 1000, 10000],
            "minimum": 1,
            "description": "numbers of agents",
        },
        "radii": {
            "type": "list",
            "each": "int",
            "default": [5, 8, 10],
            "minimum": 1,
            "description": "radii of the observations",
        },
        "storage_modes": {
            "type": "list",
            "each": "str",
            "default": [*STORAGE_MODES],
            "choices": [*STORAGE_MODES],
            "description": "how observations are kept",
        },
        "use_bilinear_list": {
            "type": "list",
            "each": "bool",
            "default": [True, False],
            "description": "with and without interpolation",
        },
        "steps": {"type": "int", "default": 10, "minimum": 1, "description": "steps of each combination"},
        "device": {
            "type": "str",
            "default": "cpu",
            "choices": ["cpu"],
            "description": "where it is computed",
        },
    }

    def setup(self, context: ExperimentContext) -> None:  # noqa: ARG002 - nothing needed of it
        """Import what the timed calls need."""
        import numpy as np  # noqa: F401 - for its side effect of being loaded

        import proctor.analysis.scaling  # noqa: F401 - the same

    def execute_once(self, context: ExperimentContext) -> dict[str, Any]:
        """All combinations, and what they say together."""
        p = self.params
        rows = [
            {
                "agents": count,
                "radius": radius,
                "storage_mode": mode,
                "use_bilinear": bilinear,
                **self._observe(count, radius, mode, bilinear, context.seed),
            }
            for count, radius, mode, bilinear in product(
                p["agent_counts"], p["radii"], p["storage_modes"], p["use_bilinear_list"]
            )
        ]
        total = sum(row["total_observes"] for row in rows)
        seconds = sum(row["mean_step_time_s"] * p["steps"] for row in rows)
        return {
            "combinations": len(rows),
            "total_observes": total,
            "observes_per_sec": total / seconds,
            **_by("storage_mode", "storage", rows),
            **_by("use_bilinear", "bilinear", rows),
            **_growth(rows),
            "rows": rows,
        }

    def _observe(self, count: int, radius: int, mode: str, bilinear: bool, seed: int) -> dict[str, Any]:
        side = max(2 * radius, round((count * _CELLS_PER_AGENT) ** 0.5))
        field = Field(width=side, height=side, num_agents=count, bucket=float(radius), seed=seed)
        seen = Perception(field, radius=radius, fov_radius=radius, storage=mode, bilinear=bilinear)
        return flow(seen, self.params["steps"], _MOVE_SHARE)


def _by(column: str, name: str, rows: list[dict[str, Any]]) -> dict[str, float]:
    """The throughput of each value of one column, over everything else."""
    found = {}
    for value in dict.fromkeys(row[column] for row in rows):
        some = [row for row in rows if row[column] == value]
        seconds = sum(row["total_observes"] / row["observes_per_sec"] for row in some)
        found[f"{name}_{str(value).lower()}_observes_per_sec"] = (
            sum(row["total_observes"] for row in some) / seconds
        )
    return found


def _growth(rows: list[dict[str, Any]]) -> dict[str, float]:
    """How a step's time grows with the number of agents; the other parameters may shift it."""
    from proctor.analysis.scaling import scaling_exponent

    if len({row["agents"] for row in rows}) < 2:
        return {}
    return scaling_exponent(
        [row["agents"] for row in rows],
        [row["mean_step_time_s"] for row in rows],
        [(row["radius"], row["storage_mode"], row["use_bilinear"]) for row in rows],
    ).metrics("step_time_exponent")
