"""What the choice of the next trial costs: CPU of a worker and of PostgreSQL per exchange of one trial.

It starts a PostgreSQL of its own. Each line adds a run of 8,000 trials: without memory, with memory and one
worker on the host, with four on the host, and with ten hosts more; the others hold 188 trials each.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import psutil
from cluster_costs import Meter
from msgspec.structs import replace
from store_cost import plan, record

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.clusters import HARD, postgres

from proctor.model.plan import Plan
from proctor.model.run import RunInfo
from proctor.model.trial import Lease, Offers, RunStatus
from proctor.store.choice import Wish
from proctor.store.fleet import WorkerInfo
from proctor.store.open import open_store
from proctor.store.steps import Ended
from proctor.store.store import Store

TRIALS, HELD, MEMORY_MB, HOST_MB = 8000, 188, 64, 1 << 20
CASES = (
    ("no memory asked for", 0, ()),
    ("one worker per host", MEMORY_MB, ()),
    ("four workers per host", MEMORY_MB, ("here",) * 3),
    ("four, and ten other hosts", MEMORY_MB, ("here",) * 3 + tuple(f"host{n}" for n in range(10))),
)


def new_run(store: Store, run_id: str, memory_mb: int) -> None:
    trials = tuple(replace(each, kind="task", subject_digest="d", path="/t") for each in plan(TRIALS).trials)
    info = RunInfo(
        id=run_id, name="cost", kind="task", status=RunStatus.RUNNING, created_at=time.time(), seed=0,
        resolved={"sandbox": {"backend": "auto"}},
    )  # fmt: skip
    store.create_run(info, Plan(trials=trials, memory_bytes={"d": memory_mb << 20}))


def seen(store: Store, name: str, place: str) -> None:
    host = WorkerInfo(name=name, host=place, place=place, version="1", parallel=200, memory_mb=HOST_MB)
    store.fleet.seen(host)


def exchange(store: Store, wish: Wish, held: list[Lease], number: int) -> None:
    for _ in range(number):
        ended = [Ended(lease, record(lease)) for lease in held]
        taken = store.exchange_any(ended, wish, worker="bench", lease_s=300)[2]
        held[:] = [lease for lease, _ in taken.begun]
        assert held, "there is always another trial"


def measure(store: Store, meter: Meter, number: int) -> None:
    for run_id, memory_mb, others in CASES:
        new_run(store, run_id, memory_mb)
        for nth, place in enumerate(others):
            seen(store, f"{run_id}-{nth}", place)
            store.take(run_id, worker=f"{run_id}-{nth}", lease_s=3000, limit=HELD)
        seen(store, "bench", "here")
        with store._db.write() as tx:
            tx.execute("ANALYZE trials")
        held: list[Lease] = []
        wish = Wish(Offers(memory_mb=HOST_MB, cpus=8.0, place="here", runs=(run_id,)), 1)
        exchange(store, wish, held, 100)
        own, server = meter.per_unit_ms(number, lambda w=wish, h=held: exchange(store, w, h, number))
        print(f"{run_id:<28} worker {own:.2f} ms, PostgreSQL {server:.2f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--exchanges", type=int, default=600)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}")
    with postgres(HARD) as server, open_store(server.address()) as store:
        measure(store, Meter(psutil.Process(server.process.pid)), options.exchanges)


if __name__ == "__main__":
    main()
