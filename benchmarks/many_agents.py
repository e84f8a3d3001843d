"""Many agents at once on the local engine, each waiting on a slow model: wall time, CPU, memory, events.

The model's service is a fake one in a process of its own: it answers every request after a fixed time. The
`terminal` agent runs a command in its sandbox after each answer; `chat` only calls, and runs one at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import time
from pathlib import Path

from machine_pace import MachinePace
from scratch import scratch
from task_trials import Silent, cpu_s, make_task, run_job
from waiting_model import WaitingModel

from proctor.runs.process_resources import Resources
from proctor.runs.running import create
from proctor.settings import Settings
from proctor.spec.load import from_mapping
from proctor.store.open import open_store

AGENTS = {"terminal": "terminal", "chat": "chat_agent:Calls"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agent", choices=AGENTS, default="terminal")
    parser.add_argument("--agents", type=int, default=750)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--latency-s", type=float, default=2.0)
    options = parser.parse_args()
    with MachinePace() as pace, WaitingModel(options.latency_s, options.turns) as model, scratch() as home:
        measure(options, model, home)
    print(pace.text)


def measure(options: argparse.Namespace, model: WaitingModel, home: Path) -> None:
    settings = Settings(
        home=home / ".proctor", rollouts_dir=home / "rollouts", model_base_url=model.url, model_api_key="x"
    )
    task = make_task(home / "task")
    for count in (1, options.agents):
        entry = {"path": str(task), "agent": AGENTS[options.agent], "model": "fake", "rollouts": count}
        if options.agent == "chat":
            entry["agent_options"] = {"turns": options.turns}
        root = {"backend": "bubblewrap", "host_root": True}
        spec = from_mapping({"name": "many", "tasks": [entry], "parallel": count, "sandbox": root})
        job = create(spec, {}, Resources(settings))
        ear = Silent()
        before, began = used(model), time.perf_counter()
        asyncio.run(run_job(job, ear))
        wall = time.perf_counter() - began
        own, below, service = (
            (after - then) / count * 1e3 for after, then in zip(used(model), before, strict=True)
        )
    with open_store(settings.store_url) as store:
        events, after = 0, 0
        while page := store.events(after=after, run_id=job.info.id, limit=10_000):
            events, after = events + len(page), page[-1].id
    ideal = options.turns * options.latency_s
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{options.agents} agents at once, {options.turns} turns of {options.latency_s:g} s: {ear.outcomes}"
    )
    print(f"wall {wall:.1f} s, ideal {ideal:.1f} s, ratio {wall / ideal:.2f} (target 1.5)")
    print(
        f"CPU per trial: engine {own:.1f} ms, sandboxes {below:.1f} ms; the model's service {service:.1f} ms"
    )
    print(
        f"controller peak {memory:.0f} MB (target 250); {model.requests} requests; {events} events of the run"
    )


def used(model: WaitingModel) -> tuple[float, float, float]:
    """CPU seconds so far: of this process, of what it started and waited for, and of the model's service."""
    return cpu_s(resource.RUSAGE_SELF), cpu_s(resource.RUSAGE_CHILDREN), model.cpu_s


if __name__ == "__main__":
    main()
