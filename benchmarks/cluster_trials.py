"""What trials cost the machine that executes them: Proctor's Python apart from the rest.

For `cluster_costs.py`. Trials run on the local engine in this process: its own CPU is Proctor's Python, local
store and folder included, and that of its children is sandboxes, agents and verifiers. Costs per turn are
differences between runs with few turns and with many.
"""

from __future__ import annotations

import asyncio
import resource
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from many_agents import AGENTS
from scratch import scratch
from task_trials import Silent, cpu_s, make_task, run_job
from waiting_model import WaitingModel

from proctor.model.record import AttemptRecord
from proctor.runfolder.series import read_series
from proctor.runs.process_resources import Resources
from proctor.runs.running import create
from proctor.settings import Settings
from proctor.spec.load import from_mapping

LATENCY_S = 0.5
FEW, MANY = 4, 14
"""Turns of an agent."""
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Spent:
    """Milliseconds of CPU per trial."""

    own: float
    below: float


def run(
    home: Path, agent: str, trials: int, parallel: int, url: str = "", turns: int = 0
) -> tuple[Spent, Path]:
    """One run after a first trial that makes everything ready; its folder."""
    settings = Settings(
        home=home / ".proctor", rollouts_dir=home / "rollouts", model_base_url=url, model_api_key="x"
    )
    for count in (1, trials):
        entry: dict[str, object] = {"path": str(home / "task"), "agent": agent, "rollouts": count}
        if turns:
            entry["model"] = "fake"
        if agent == AGENTS["chat"]:
            entry["agent_options"] = {"turns": turns}
        root = {"backend": "bubblewrap", "host_root": True}
        spec = from_mapping({"name": "cost", "tasks": [entry], "parallel": parallel, "sandbox": root})
        job, ear = create(spec, {}, Resources(settings)), Silent()
        before = cpu_s(resource.RUSAGE_SELF), cpu_s(resource.RUSAGE_CHILDREN)
        asyncio.run(run_job(job, ear))
        assert ear.outcomes == {"passed": count}, ear.outcomes
    own, below = cpu_s(resource.RUSAGE_SELF) - before[0], cpu_s(resource.RUSAGE_CHILDREN) - before[1]
    return Spent(own / trials * 1e3, below / trials * 1e3), job.folder


def trial_costs(trials: int) -> tuple[dict[str, float], AttemptRecord]:
    """The costs, medians of some rounds, and the record of a trial as an oracle leaves it."""
    found: dict[str, list[float]] = {}
    with scratch() as home:
        make_task(home / "task")
        for _ in range(ROUNDS):
            oracle, folder = run(home, "oracle", trials, 2)
            calls, turns = (per_turn(home, AGENTS[name], trials) for name in ("chat", "terminal"))
            for name, value in {
                "trial_ms": oracle.own,
                "task_ms": oracle.below,
                "call_ms": calls.own,
                "turn_ms": turns.own,
                "command_ms": turns.below,
            }.items():
                found.setdefault(name, []).append(value)
        sample = next(read_series(folder)).record
    return {name: median(values) for name, values in found.items()}, sample


def per_turn(home: Path, agent: str, trials: int) -> Spent:
    """What a turn of an agent costs: the difference between many and few."""
    spent = []
    for turns in (FEW, MANY):
        with WaitingModel(LATENCY_S, turns) as model:
            spent.append(run(home, agent, trials, trials, model.url, turns)[0])
    few, many = spent
    return Spent((many.own - few.own) / (MANY - FEW), (many.below - few.below) / (MANY - FEW))
