"""Many agents at once, each waiting on a slow model: wall time against the ideal, memory, lost events.

The model's service is a fake one in a process of its own: it answers every request after a fixed time. Each
agent asks it a fixed number of times and runs a command in its sandbox after each answer.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import resource
import time
from multiprocessing.connection import Connection

from scratch import scratch
from task_trials import Silent, make_task, run_job

from proctor.gateway.provider.script import commands
from proctor.gateway.provider.server import FakeProvider
from proctor.runs.running import create
from proctor.settings import Settings
from proctor.spec.load import from_mapping
from proctor.store.open import open_store


def serve(pipe: Connection, latency_s: float, turns: int) -> None:
    """Answer until told to stop."""

    async def go() -> None:
        script = ["echo hello > /app/hello.txt", *["true"] * (turns - 2)]
        provider = FakeProvider(
            commands(*script),
            latency_s=latency_s,
            keep_requests=False,
        )
        async with provider:
            pipe.send(provider.base_url)
            await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
            pipe.send(len(provider.statuses))

    asyncio.run(go())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", type=int, default=750)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--latency-s", type=float, default=2.0)
    options = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    service = multiprocessing.get_context("spawn").Process(
        target=serve, args=(theirs, options.latency_s, options.turns), daemon=True
    )
    service.start()
    url = ours.recv()
    with scratch() as home:
        settings = Settings(
            home=home / ".proctor",
            rollouts_dir=home / "rollouts",
            model_base_url=url,
            model_api_key="x",
        )
        task = make_task(home / "task")
        for count in (1, options.agents):
            entry = {"path": str(task), "agent": "terminal", "model": "fake", "rollouts": count}
            spec = from_mapping(
                {
                    "name": "many",
                    "tasks": [entry],
                    "parallel": count,
                    "sandbox": {"backend": "bubblewrap", "host_root": True},
                }
            )
            job = create(spec, {}, settings)
            ear = Silent()
            began = time.perf_counter()
            asyncio.run(run_job(job, ear))
            wall = time.perf_counter() - began
        with open_store(settings.store_url) as store:
            events, after = 0, 0
            while page := store.events(after=after, run_id=job.info.id, limit=10_000):
                events, after = events + len(page), page[-1].id
    ours.send("stop")
    requests = ours.recv()
    ideal = options.turns * options.latency_s
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{options.agents} agents at once, {options.turns} turns of {options.latency_s:g} s: {ear.outcomes}"
    )
    print(f"wall {wall:.1f} s, ideal {ideal:.1f} s, ratio {wall / ideal:.2f} (target 1.5)")
    print(f"controller peak {memory:.0f} MB (target 250); {requests} requests; {events} events of the run")


if __name__ == "__main__":
    main()
