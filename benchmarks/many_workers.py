"""A run over several worker processes: oracle trials beside the local engine, and many agents that wait.

`oracle`: the same trials by `proctor run` alone and by 1, 2 and 4 workers, in turns: trials a second, and CPU
per trial of all processes. `agents`: so many agents at once over the workers, ten turns of 2 s each, against
the time their model takes; memory of all Proctor processes. PostgreSQL, Redis and the model's service are
processes of the benchmark on loopback; blobs are in a shared folder, or with `--s3` in moto's server. Python
keeps what it compiled, as it does for an installed package; the workers' start is over before a run begins.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from machine_pace import MachinePace
from many_agents import AGENTS
from scratch import scratch
from task_trials import make_task
from waiting_model import WaitingModel

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.clusters import Redis, postgres
from tests.s3 import s3_server

from proctor.store.open import open_store

DURABLE = ("listen_addresses=", "max_connections=200")
PROCTOR = [sys.executable, "-m", "proctor.cli.main"]
START_S = 120.0
QUIET_S = 0.02
"""CPU in a second, of a worker that has nothing to do."""


@dataclass(frozen=True, slots=True)
class Found:
    """What one run cost."""

    seconds: float
    """From the first trial's begin to the last one's end."""
    whole_s: float
    """Of the command."""
    cpu_ms: float
    """Per trial, of coordinator and workers with all that they started; not the workers' own start."""
    outcomes: dict[str, int]
    memory_mb: float
    """The most that coordinator and workers had together."""


@dataclass(slots=True)
class Place:
    """Where runs are made: a folder, and the settings of all processes."""

    folder: Path
    environ: dict[str, str]

    def start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        home = self.folder / name
        home.mkdir(parents=True, exist_ok=True)
        own = {"PROCTOR_HOME": str(home / ".proctor"), "PROCTOR_ROLLOUTS_DIR": str(home / "rollouts")}
        with (home / "output.txt").open("ab") as output:
            return subprocess.Popen(
                [*PROCTOR, *arguments], cwd=home, env={**self.environ, **own}, stdout=output, stderr=output
            )


def write_spec(folder: Path, agent: str, rollouts: int, parallel: int) -> Path:
    """Rollouts of one task with one line of work, on this machine's own system."""
    task = make_task(folder / "task")
    entry: dict[str, object] = {"path": str(task), "agent": agent, "rollouts": rollouts}
    if agent != "oracle":
        entry["model"] = "fake"
    document = {
        "name": "many",
        "tasks": [entry],
        "parallel": parallel,
        "sandbox": {"backend": "bubblewrap", "host_root": True},
    }
    file = folder / f"{agent}-{rollouts}-{parallel}.json"
    file.write_text(json.dumps(document))
    return file


class Memory:
    """The most memory that some processes have together, with their Python children and keepers."""

    def __init__(self, processes: list[subprocess.Popen[bytes]]) -> None:
        self.most = 0
        self._of = [psutil.Process(each.pid) for each in processes]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(1.0):
            self.most = max(self.most, sum(_rss(each) for each in self._of))

    def close(self) -> None:
        self._over.set()
        self._thread.join()


def _rss(process: psutil.Process) -> int:
    try:
        own = [each for each in process.children() if each.name().startswith(("python", "keeper"))]
        return sum(each.memory_info().rss for each in (process, *own))
    except psutil.Error:
        return 0


def ended(process: subprocess.Popen[bytes]) -> float:
    """Wait for its end; CPU seconds of it and of all it started and waited for."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, process.args
    return usage.ru_utime + usage.ru_stime


def so_far(process: subprocess.Popen[bytes]) -> float:
    """CPU seconds of a process until now, and of what it has waited for."""
    used = psutil.Process(process.pid).cpu_times()
    return float(used.user + used.system + used.children_user + used.children_system)


def settled(process: subprocess.Popen[bytes]) -> float:
    """As `so_far`, when it has come to rest: a worker registers before it listens to the broker."""
    before, now = -1.0, so_far(process)
    while now - before > QUIET_S:
        time.sleep(1.0)
        before, now = now, so_far(process)
    return now


def execute(place: Place, spec: Path, workers: int, slots: int, *, local: bool) -> Found:
    """One run: by `proctor run` alone, or by so many workers."""
    helping = [
        place.start(f"w{number}", "worker", "--parallel", str(slots))
        for number in range(0 if local else workers)
    ]
    ready(place, len(helping))
    started_s = sum(settled(worker) for worker in helping)
    began = time.perf_counter()
    engine = "local" if local else "celery"
    leading = place.start("local" if local else "leading", "run", str(spec), "--engine", engine)
    with closing(Memory([leading, *helping])) as memory:
        cpu_s = ended(leading)
        whole_s = time.perf_counter() - began
    for worker in helping:
        worker.send_signal(signal.SIGTERM)
    cpu_s += sum(ended(worker) for worker in helping) - started_s
    home = place.folder / ("local" if local else "leading")
    address = str(home / ".proctor/proctor.db") if local else place.environ["PROCTOR_STORE"]
    with open_store(address) as store:
        run = store.run("latest")
        records = [row.record for row in store.attempts(run.id)]
    seconds = max(each.ended_at for each in records) - min(each.started_at for each in records)
    outcomes = {str(each): number for each, number in run.counts.items()}
    return Found(seconds, whole_s, cpu_s / len(records) * 1e3, outcomes, memory.most / (1 << 20))


def ready(place: Place, workers: int) -> None:
    """Wait until so many workers have registered."""
    deadline = time.monotonic() + START_S
    while workers:
        with open_store(place.environ["PROCTOR_STORE"]) as store:
            if len(store.fleet.live()) >= workers:
                return
        assert time.monotonic() < deadline, "the workers do not start"
        time.sleep(0.2)


@contextmanager
def cluster(folder: Path, *, s3: bool, **more: str) -> Iterator[Place]:
    with ExitStack() as stack:
        store = stack.enter_context(postgres(DURABLE))
        redis = stack.enter_context(closing(Redis(folder / "redis")))
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PROCTOR_")}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        environ |= {"PROCTOR_STORE": store.address(), "PROCTOR_BROKER": redis.url, **more}
        environ["PROCTOR_BLOBS"] = str(folder / "blobs")
        if s3:
            environ["PROCTOR_BLOBS"], credentials = stack.enter_context(s3_server(folder / "s3"))
            environ |= credentials
        yield Place(folder, environ)


def show(title: str, trials: int, found: Found) -> None:
    rate = trials / found.seconds
    print(
        f"{title:<22}{rate:>9.1f}{found.seconds:>9.1f}{found.whole_s:>9.1f}"
        f"{found.cpu_ms:>10.1f}{found.memory_mb:>8.0f}   {found.outcomes}",
        flush=True,
    )


def head() -> None:
    titles = f"{'':<22}{'trials/s':>9}{'s':>9}{'whole s':>9}{'CPU ms':>10}{'MB':>8}"
    print(f"{titles}   (load {os.getloadavg()[0]:.1f})")


def oracle(options: argparse.Namespace) -> None:
    """Local and cluster in turns."""
    rates: dict[int, list[float]] = {}
    more: dict[int, list[float]] = {}
    with MachinePace() as pace, scratch() as home, cluster(home, s3=options.s3) as place:
        spec = write_spec(home, "oracle", options.trials, options.slots)
        local = Place(home, {k: v for k, v in place.environ.items() if not k.startswith("PROCTOR_")})
        head()
        for _ in range(options.rounds):
            alone = execute(local, spec, 0, 0, local=True)
            show("local", options.trials, alone)
            for workers in options.workers:
                slots = max(1, options.slots // workers)
                found = execute(place, spec, workers, slots, local=False)
                show(f"{workers} workers of {slots}", options.trials, found)
                rates.setdefault(workers, []).append(alone.seconds / found.seconds)
                more.setdefault(workers, []).append(found.cpu_ms - alone.cpu_ms)
    for workers in options.workers:
        share, cost = statistics.median(rates[workers]), statistics.median(more[workers])
        print(
            f"{workers} workers: {share:.0%} of the local throughput (target 60 %), {cost:+.1f} ms CPU (10)"
        )
    print(pace.text)


def agents(options: argparse.Namespace) -> None:
    """As many agents at once as there are trials."""
    ideal_s = options.turns * options.latency_s
    with MachinePace() as pace, WaitingModel(options.latency_s, options.turns) as model, scratch() as home:
        started_s = model.cpu_s
        more = {"PROCTOR_MODEL_BASE_URL": model.url, "PROCTOR_MODEL_API_KEY": "x"}
        paths = (os.environ.get("PYTHONPATH", ""), str(Path(__file__).parent))
        more["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        with cluster(home, s3=options.s3, **more) as place:
            head()
            for workers in options.workers:
                slots = -(-options.trials // workers)
                spec = write_spec(home, AGENTS[options.agent], options.trials, slots)
                found = execute(place, spec, workers, slots, local=False)
                show(f"{workers} workers of {slots}", options.trials, found)
                ratio = found.seconds / ideal_s
                print(f"ideal {ideal_s:g} s, ratio {ratio:.2f} (target 1.7); 1,500 MB at most")
        service_ms = (model.cpu_s - started_s) / options.trials / len(options.workers) * 1e3
        print(f"{model.requests} requests; the model's service: {service_ms:.1f} ms CPU per trial")
    print(pace.text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["oracle", "agents"])
    parser.add_argument("--trials", type=int, default=750)
    parser.add_argument("--workers", type=int, nargs="+", help="1 2 4; 4 for agents")
    parser.add_argument("--slots", type=int, default=4, help="oracle trials in parallel, over all workers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--latency-s", type=float, default=2.0)
    parser.add_argument("--agent", choices=AGENTS, default="terminal", help="of `agents`")
    parser.add_argument("--s3", action="store_true", help="blobs on moto's server")
    options = parser.parse_args()
    options.workers = options.workers or ([1, 2, 4] if options.what == "oracle" else [4])
    (oracle if options.what == "oracle" else agents)(options)


if __name__ == "__main__":
    main()
