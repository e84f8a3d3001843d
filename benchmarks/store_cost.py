"""What the store costs: CPU per trial, a large plan, and whether listing depends on the size of the runs.

Run it as `python benchmarks/store_cost.py [--store ADDRESS]`; without an address it uses a SQLite file in a
temporary folder. The address must be of an empty store, which is left with the runs that were made.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from proctor.model.outcome import Outcome
from proctor.model.plan import Plan, PlannedTrial, trial_key
from proctor.model.record import AttemptRecord
from proctor.model.run import RunInfo
from proctor.model.trial import Lease, RunStatus
from proctor.store.open import open_store
from proctor.store.store import Store

ITERATION_ROWS = 5


def plan(size: int) -> Plan:
    return Plan(
        trials=tuple(
            PlannedTrial(
                key=trial_key(subject_digest="d", params={"n": number}),
                index=number,
                kind="experiment",
                subject="noop",
                subject_digest="d" * 64,
                body=0,
                params={"n": number},
            )
            for number in range(size)
        )
    )


def new_run(store: Store, size: int, planned: Plan | None = None) -> str:
    run_id = uuid.uuid4().hex
    info = RunInfo(
        id=run_id, name="cost", kind="experiment", status=RunStatus.RUNNING, created_at=time.time(), seed=0
    )
    store.create_run(info, planned or plan(size))
    return run_id


def record(lease: Lease) -> AttemptRecord:
    now = time.time()
    return AttemptRecord(
        key=lease.key,
        number=lease.attempt,
        outcome=Outcome.PASSED,
        started_at=now,
        ended_at=now,
        phases_s={"setup": 0.001, "work": 0.01},
        metrics={"duration_s": {"count": 5, "mean": 0.01, "p50": 0.01, "p95": 0.011}},
        iterations=({"duration_s": 0.01},) * ITERATION_ROWS,
        worker="bench",
    )


def floor(store: Store, run_id: str, trials: int) -> None:
    """What no store of this kind can beat: one small row, one commit."""
    for _ in range(trials):
        store.set_status(run_id, RunStatus.RUNNING)


def one_by_one(store: Store, run_id: str, trials: int) -> None:
    for _ in range(trials):
        (lease,) = store.claim(run_id, worker="bench", lease_s=30)
        store.begin(lease)
        store.finish(lease, record(lease), counts=True)


def one_commit_per_trial(store: Store, run_id: str, trials: int) -> None:
    """As an engine does it that is never idle: a result and the next claim commit together."""
    held: Lease | None = None
    for _ in range(trials):
        with store.batch():
            if held:
                store.finish(held, record(held), counts=True)
            (held,) = store.claim(run_id, worker="bench", lease_s=30)
            store.begin(held)


def per_trial_us(work: Callable[[Store, str, int], None], store: Store, trials: int, rounds: int) -> float:
    run_id = new_run(store, trials * rounds)
    costs = []
    for _ in range(rounds):
        started = time.process_time()
        work(store, run_id, trials)
        costs.append((time.process_time() - started) / trials)
    return statistics.median(costs) * 1e6


def cpu_ms(work: Callable[[], object], rounds: int = 5) -> float:
    costs = []
    for _ in range(rounds):
        started = time.process_time()
        work()
        costs.append(time.process_time() - started)
    return statistics.median(costs) * 1e3


def measure(store: Store, *, trials: int, rounds: int, large: int) -> None:
    print(f"{store.where}\nCPU of this process; medians of {rounds} rounds of {trials} trials\n")
    for name, work in (
        ("floor: one row changed and one event, one commit", floor),
        ("claim, begin, finish: a commit each", one_by_one),
        ("claim, begin, finish: one commit per trial", one_commit_per_trial),
    ):
        print(f"{name:<52}{per_trial_us(work, store, trials, rounds):>10.0f} µs per trial")
    print(f"{'listing runs, largest so far small':<52}{cpu_ms(store.runs):>10.1f} ms")
    planned = plan(large)
    started = time.process_time()
    run_id = new_run(store, large, planned)
    print(f"{f'a plan of {large} trials':<52}{time.process_time() - started:>10.1f} s")
    one_commit_per_trial(store, run_id, trials)
    print(f"{f'listing runs, one of them of {large} trials':<52}{cpu_ms(store.runs):>10.1f} ms")
    print(f"{'counting its states':<52}{cpu_ms(lambda: store.state_counts(run_id)):>10.1f} ms")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    seen = sum(1 for _ in store.planned(run_id))
    spent = time.process_time() - started
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"{f'reading its {seen} planned trials':<52}{spent:>10.1f} s, {grown:.1f} MB more at the peak")
    print(f"{'removing it':<52}{cpu_ms(lambda: store.delete_run(run_id), 1):>10.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--store", default="", help="address of an empty store")
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--large", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        address = options.store or str(Path(folder) / "proctor.db")
        with open_store(address) as store:
            measure(store, trials=options.trials, rounds=options.rounds, large=options.large)


if __name__ == "__main__":
    main()
