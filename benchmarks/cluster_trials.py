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

from many_agents import AGENTS
from scratch import scratch
from task_trials import Silent, cpu_s, make_task, run_job
from waiting_model import WaitingModel

from proctor.model.record import AttemptRecord
from proctor.runfolder.series import read_series
from proctor.runs.running import create
from proctor.settings import Settings
from proctor.spec.load import from_mapping

LATENCY_S = 0.5
FEW, MANY = 4, 14
"""Turns of an agent."""


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
        job, ear = create(spec, {}, settings), Silent()
        before = cpu_s(resource.RUSAGE_SELF), cpu_s(resource.RUSAGE_CHILDREN)
        asyncio.run(run_job(job, ear))
        assert ear.outcomes == {"passed": count}, ear.outcomes
    own, below = cpu_s(resource.RUSAGE_SELF) - before[0], cpu_s(resource.RUSAGE_CHILDREN) - before[1]
    return Spent(own / trials * 1e3, below / trials * 1e3), job.folder


def trial_costs(trials: int) -> tuple[dict[str, float], AttemptRecord]:
    """The costs, and the record of a trial as an oracle leaves it."""
    with scratch() as home:
        make_task(home / "task")
        oracle, folder = run(home, "oracle", trials, 2)
        sample = next(read_series(folder)).record
        found = {"trial_ms": oracle.own, "task_ms": oracle.below}
        per_turn = {}
        for name, agent in AGENTS.items():
            spent = []
            for turns in (FEW, MANY):
                with WaitingModel(LATENCY_S, turns) as model:
                    spent.append(run(home, agent, trials, trials, model.url, turns)[0])
            few, many = spent
            per_turn[name] = Spent(
                (many.own - few.own) / (MANY - FEW), (many.below - few.below) / (MANY - FEW)
            )
    found["call_ms"] = per_turn["chat"].own
    found["turn_ms"] = per_turn["terminal"].own - per_turn["chat"].own
    found["command_ms"] = per_turn["terminal"].below
    return found, sample
