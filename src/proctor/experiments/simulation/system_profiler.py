"""A whole simulation: agents act, look around and are logged. Each stage has its own clock."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from proctor.experiments.base import Experiment, ExperimentContext, register_experiment
from proctor.experiments.clocks import timed
from proctor.experiments.simulation.log import count_rows, create_tables, write_steps
from proctor.experiments.simulation.monitor import Monitor
from proctor.experiments.simulation.perception import Field, Perception
from proctor.experiments.simulation.world import Simulation, SimulationConfig
from proctor.model.describe import percentile

_RADIUS = 5


@register_experiment(
    "system_profiler",
    summary="A whole simulation: steps a second, stages, memory per step, scaling with agents",
    tags=("system", "simulation", "profile"),
)
class SystemProfiler(Experiment):
    """Runs one simulation per number of agents and call."""

    param_schema: ClassVar = {
        "num_agents": {"type": "int", "default": 100, "minimum": 1, "description": "agents at the start"},
        "steps": {"type": "int", "default": 50, "minimum": 3, "description": "steps per simulation"},
        "agent_counts": {
            "type": "list",
            "each": "int",
            "default": None,
            "minimum": 1,
            "description": "more simulations, for a better scaling exponent",
        },
        "use_in_memory_db": {"type": "bool", "default": True, "description": "keep the log in memory"},
        "persist_db_on_completion": {
            "type": "bool",
            "default": False,
            "description": "copy a log in memory to a file at the end",
        },
        "monitor_cpu": {"type": "bool", "default": True, "description": "CPU seconds of the process"},
        "monitor_memory": {"type": "bool", "default": True, "description": "resident memory at every sample"},
        "monitor_disk": {"type": "bool", "default": True, "description": "bytes the process wrote and read"},
        "monitor_network": {"type": "bool", "default": False, "description": "bytes of all interfaces"},
        "sampling_interval": {
            "type": "float",
            "default": 0.0,
            "minimum": 0,
            "description": "seconds between samples, taken between steps; 0: after every step",
        },
    }

    def setup(self, context: ExperimentContext) -> None:
        """Import what the timed calls need."""
        import numpy as np  # noqa: F401 - for its side effect of being loaded

        import proctor.analysis.scaling  # noqa: F401 - the same

        self.file = Path(context.run_dir) / "system_profiler.db"

    def execute_once(self, context: ExperimentContext) -> dict[str, Any]:
        """Simulate with the given number of agents, and with the others for the exponent."""
        found, steps = self._simulate(self.params["num_agents"], context.seed)
        for count in dict.fromkeys(self.params.get("agent_counts") or ()):
            if count != self.params["num_agents"]:
                steps += self._simulate(count, context.seed)[1]
        return found | _exponent(steps)

    def teardown(self, context: ExperimentContext) -> None:
        """Remove the file."""
        for path in Path(context.run_dir).glob("system_profiler.db*"):
            path.unlink(missing_ok=True)

    def _simulate(self, num_agents: int, seed: int) -> tuple[dict[str, Any], list[Step]]:
        p = self.params
        config = SimulationConfig(num_agents=num_agents, num_steps=p["steps"], seed=seed)
        monitor = Monitor(p)
        connection = self._open()
        try:
            create_tables(connection)
            stages, steps, rows = _run(Simulation(config), connection, monitor)
            persist_s = timed(self._persist, connection)[1] if self._persists else 0.0
            if count_rows(connection) != rows:
                raise AssertionError("rows of the log are missing")
        finally:
            connection.close()
        times = [step.seconds for step in steps]
        total = sum(times)
        found = {
            "steps_per_s": p["steps"] / total,
            "mean_step_time_s": total / p["steps"],
            "p95_step_time_s": percentile(sorted(times), 95),
            **{f"{stage}_s": seconds for stage, seconds in stages.items()},
            **{f"{stage}_share": seconds / total for stage, seconds in stages.items()},
            "persist_s": persist_s,
            "rows": rows,
            **monitor.metrics(),
        }
        return found, steps

    def _open(self) -> sqlite3.Connection:
        self.file.unlink(missing_ok=True)
        place = ":memory:" if self.params["use_in_memory_db"] else self.file
        return sqlite3.connect(place, isolation_level=None)

    @property
    def _persists(self) -> bool:
        return bool(self.params["use_in_memory_db"] and self.params["persist_db_on_completion"])

    def _persist(self, connection: sqlite3.Connection) -> None:
        target = sqlite3.connect(self.file)
        try:
            connection.backup(target)
        finally:
            target.close()


class Step(NamedTuple):
    """How many agents lived after a step, and how long it took."""

    agents: int
    seconds: float


def _run(
    simulation: Simulation, connection: sqlite3.Connection, monitor: Monitor
) -> tuple[dict[str, float], list[Step], int]:
    """Seconds of each stage, all steps, and the rows written."""
    stages = {"act": 0.0, "observe": 0.0, "log": 0.0}
    steps: list[Step] = []
    rows = 0
    config = simulation.config
    field = Field(width=config.width, height=config.height, num_agents=0, bucket=float(_RADIUS), seed=0)
    seen = Perception(field, radius=_RADIUS, fov_radius=_RADIUS)
    monitor.start()
    for number in range(config.num_steps):
        log, act_s = timed(simulation.step)
        _, observe_s = timed(_observe, simulation, seen)
        written, log_s = timed(write_steps, connection, [log])
        rows += written
        for stage, seconds in (("act", act_s), ("observe", observe_s), ("log", log_s)):
            stages[stage] += seconds
        steps.append(Step(len(simulation.agents), act_s + observe_s + log_s))
        monitor.sample(number + 1)
    return stages, steps, rows


def _observe(simulation: Simulation, seen: Perception) -> None:
    """Every living agent looks around."""
    seen.field.place([(each.x, each.y) for each in simulation.agents], simulation.food())
    for agent in range(len(simulation.agents)):
        seen.observe(agent)


def _exponent(steps: list[Step]) -> dict[str, float]:
    """How a step's time grows with the agents alive; nothing when that never changes."""
    from proctor.analysis.scaling import scaling_exponent

    some = [step for step in steps if step.agents]
    if len({step.agents for step in some}) < 2:
        return {}
    found = scaling_exponent([step.agents for step in some], [step.seconds for step in some])
    return found.metrics("step_time_exponent")
