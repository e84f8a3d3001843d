"""What a cluster's parts cost per trial, for `cluster_simulation.py`: CPU of each side of each of them.

It starts a PostgreSQL, a Redis and moto's S3 of its own, and runs trials on the local engine. `--write` puts
what it found into `cluster_costs.json`, where estimates and what other benchmarks measure stand too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
from cluster_trials import trial_costs
from machine_pace import MachinePace
from msgspec.structs import replace
from store_cost import new_run, plan

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.clusters import Redis, postgres
from tests.s3 import s3_server

from proctor.model.plan import Plan
from proctor.model.record import Artifact, AttemptRecord
from proctor.model.trial import Lease, RunStatus
from proctor.runfolder.copies import Copies
from proctor.runfolder.write import RunFolder
from proctor.store.blobs import Blobs, open_blobs
from proctor.store.open import open_store
from proctor.store.steps import Ended
from proctor.store.store import Store

FILE = Path(__file__).with_name("cluster_costs.json")
PAGE = 200
"""Results that a coordinator reads at a time."""
BLOB_BYTES = 1000
"""Of what an oracle's trial leaves: five files of 4.5 kB together."""
COMMAND = "python benchmarks/cluster_costs.py --write"
DURABLE = ("listen_addresses=", "max_connections=100")
CELERY_APP = """
import sys
from celery import Celery
app = Celery(broker=sys.argv.pop(1))
app.conf.update(task_ignore_result=True, task_acks_late=True, worker_prefetch_multiplier=1)
@app.task(name="hint")
def hint(trial):
    pass
app.Worker(pool="threads", concurrency=4, loglevel="ERROR", without_gossip=True, without_mingle=True).start()
"""


def cpu_s(processes: Iterable[psutil.Process]) -> float:
    used = 0.0
    for each in processes:
        for one in (each, *each.children(recursive=True)):
            times = one.cpu_times()
            used += times.user + times.system
    return used


class Meter:
    """CPU of this process and of a server, per unit of what is done."""

    def __init__(self, server: psutil.Process) -> None:
        self.server = server

    def per_unit_ms(self, units: int, work: Callable[[], object]) -> tuple[float, float]:
        before, own = cpu_s([self.server]), time.process_time()
        work()
        own = time.process_time() - own
        return own / units * 1e3, (cpu_s([self.server]) - before) / units * 1e3


def store_costs(
    store: Store, meter: Meter, trials: int, large: int, sample: AttemptRecord
) -> dict[str, float]:
    """Each call that a worker or a coordinator makes for a trial, whose record is like the sample."""
    found: dict[str, float] = {}
    planned = Plan(trials=tuple(replace(each, kind="task") for each in plan(large).trials))
    run_id = ""

    def create() -> None:
        nonlocal run_id
        run_id = new_run(store, large, planned)

    found["plan_ms"], _ = meter.per_unit_ms(large, create)
    own, server = meter.per_unit_ms(large, lambda: list(store.planned(run_id)))
    found |= {"plan_read_ms": own, "plan_read_store_ms": server}
    held: list[Lease] = []

    def exchange(number: int) -> None:
        for _ in range(number):
            ended = [Ended(each, replace(sample, key=each.key, number=each.attempt)) for each in held]
            _, taken = store.exchange(run_id, ended, worker="bench", lease_s=300, limit=1)
            held[:] = [lease for lease, _ in taken.begun]

    exchange(50)
    own, server = meter.per_unit_ms(trials, lambda: exchange(trials))
    found |= {"exchange_worker_ms": own, "exchange_store_ms": server}
    found["commit_wait_ms"] = commit_ms(store, run_id)
    many = [lease for lease, _ in store.take(run_id, worker="bench", lease_s=300, limit=188).begun]
    rounds = 20
    own, server = meter.per_unit_ms(
        rounds * len(many), lambda: [store.renew(many, lease_s=300) for _ in range(rounds)]
    )
    found |= {"renew_worker_ms": own, "renew_store_ms": server}
    return found | look_costs(store, meter, many) | folder_costs(store, meter, run_id)


def look_costs(store: Store, meter: Meter, many: list[Lease], rounds: int = 500) -> dict[str, float]:
    """A look of a worker at its leases: by itself, and for each of them."""
    one, all_ = (
        meter.per_unit_ms(rounds, lambda held=held: [store.lost(held) for _ in range(rounds)])
        for held in (many[:1], many)
    )
    found = {}
    for at, side in enumerate(("worker", "store")):
        each = max(0.0, (all_[at] - one[at]) / (len(many) - 1))
        found |= {f"look_{side}_ms": one[at] - each, f"look_each_{side}_ms": each}
    return found


def commit_ms(store: Store, run_id: str, rounds: int = 300) -> float:
    """The time of a commit of one row while nobody else wants the cores: the fastest tenth."""
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        store.set_status(run_id, RunStatus.RUNNING)
        took.append(time.perf_counter() - began)
    return statistics.quantiles(took, n=10)[0] * 1e3


def folder_costs(store: Store, meter: Meter, run_id: str) -> dict[str, float]:
    """What the coordinator does about a result of another process, without its artifacts."""
    with tempfile.TemporaryDirectory() as name:
        folder = RunFolder(Path(name))
        folder.begin(store.run(run_id), plan(1))
        number = 0

        def write() -> None:
            nonlocal number
            seen = 0
            while found := store.coordination.ended_since(run_id, seen, PAGE):
                rows = store.attempts_of(run_id, *(key for _, key, _ in found))
                folder.append_all(rows)
                number += len(rows)
                seen = found[-1][0]

        own, server = meter.per_unit_ms(1, write)
        folder.close()
    return {"write_ms": own / number, "write_store_ms": server / number}


def blob_costs(folder: Path, blobs: int, bytes_each: int) -> dict[str, float]:
    """A blob put, and copied into a run's folder: on S3, and from a folder. CPU of this process alone."""

    def per_blob_ms(at_once: int, work: Callable[[Any], object], each: Iterable[Any]) -> float:
        before = time.process_time()
        with ThreadPoolExecutor(at_once) as threads:
            list(threads.map(work, each))
        return (time.process_time() - before) / blobs * 1e3

    def copied_ms(place: Blobs, kept: list[Artifact], name: str) -> float:
        copier = Copies(folder / name, place)
        made: set[str] = set()
        targets = [(each, f"trials/{at // 5}/{at % 5}") for at, each in enumerate(kept)]

        def copy(one: tuple[Artifact, str]) -> None:
            copier.copy(*one, made, folder / name / f".{one[0].digest}")

        return per_blob_ms(copier.at_once, copy, targets)

    contents = [os.urandom(bytes_each) for _ in range(blobs)]
    near = open_blobs(folder / "near")
    kept = [near.put_bytes(each, "x") for each in contents]
    # The least of three: it is so little that whatever else the machine does is in it.
    found = {"copy_near_ms": min(copied_ms(near, kept, f"from-near-{number}") for number in range(3))}
    with s3_server(folder / "s3") as (address, environ):
        os.environ.update(environ)
        far = open_blobs(address)
        found["blob_ms"] = per_blob_ms(5, lambda each: far.put_bytes(each, "x"), contents)
        found["copy_ms"] = copied_ms(far, kept, "from-far")
    return found


def broker_costs(folder: Path, messages: int) -> dict[str, float]:
    """A message published, delivered to a Celery worker and acknowledged; the task itself does nothing."""
    from celery import Celery

    with closing(Redis(folder)) as redis:
        app = Celery(broker=redis.url)
        app.conf.task_ignore_result = True
        worker = subprocess.Popen(
            [sys.executable, "-c", CELERY_APP, redis.url],
            cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            asleep = psutil.Process(worker.pid)
            app.send_task("hint", ["run/0"])
            drained(app)
            meter = Meter(psutil.Process(redis.process.pid))
            before = cpu_s([asleep])

            def publish() -> None:
                for number in range(messages):
                    app.send_task("hint", [f"20261117T141207-0a1b2c/{number}"])
                drained(app)

            own, server = meter.per_unit_ms(messages, publish)
            return {
                "publish_ms": own,
                "broker_ms": server,
                "deliver_ms": (cpu_s([asleep]) - before) / messages * 1e3,
            }
        finally:
            worker.kill()
            worker.wait()
            app.close()


def drained(app: Any, within_s: float = 120.0) -> None:
    """Wait until the broker has no message left, neither waiting nor unacknowledged."""
    deadline = time.monotonic() + within_s
    with app.connection_for_write() as connection:
        client = connection.default_channel.client
        while client.llen("celery") or client.hlen("unacked"):
            assert time.monotonic() < deadline, "the worker does not take messages"
            time.sleep(0.02)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--large", type=int, default=20_000, help="trials of the plan")
    parser.add_argument("--rollouts", type=int, default=60, help="trials that are really executed")
    parser.add_argument("--write", action="store_true", help=f"renew {FILE.name}")
    options = parser.parse_args()
    with MachinePace() as pace:
        found, sample = trial_costs(options.rollouts)
        with postgres(DURABLE) as server, open_store(server.address()) as store:
            meter = Meter(psutil.Process(server.process.pid))
            found |= store_costs(store, meter, options.trials, options.large, sample)
        with tempfile.TemporaryDirectory() as folder:
            found |= broker_costs(Path(folder), options.trials)
            found |= blob_costs(Path(folder), options.trials, BLOB_BYTES)
    known: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    print(f"load {os.getloadavg()[0]:.1f}; {pace.text}")
    for name, value in found.items():
        print(f"{name:<24}{value:>9.3f}   before {known.get(name, {}).get('value', '–')}")
        known[name] = {"value": round(value, 4), "command": COMMAND}
    if options.write:
        FILE.write_text(json.dumps(known, indent=2) + "\n")


if __name__ == "__main__":
    main()
