"""What a reader of events costs those who write: four writers, with and without a reader that follows them.

Run it as `python benchmarks/event_stream.py [--store ADDRESS]`; without an address it uses a SQLite file in a
temporary folder. Each writer is a process that tells events of a trial, several per commit, at `--rate` a
second in all or as fast as it can. The address must be of an empty store, which keeps the runs
that were made. Writers' CPU is their own; on PostgreSQL that of the server is not in it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import time
import uuid
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from store_cost import plan

from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.store.open import open_store

WRITERS = 4


class Round(NamedTuple):
    """What one round cost and showed."""

    cpu_us: float
    """Of a writer, per commit."""
    wall_s: float
    events: int
    seen: int
    waits: int
    """How often a writer was seen waiting for a lock that a reader held; -1 where it cannot be seen."""


def write(
    url: str, run_id: str, key: str, commits: int, batch: int, pause_s: float, pipe: Connection
) -> None:
    """Take a trial, then tell `batch` events of it in each commit."""
    with open_store(url) as store:
        ((lease, _),), _ = store.take(run_id, worker=key, lease_s=3600, keys=[key])
        pipe.recv()
        began, next_at = time.process_time(), time.monotonic()
        for number in range(commits):
            for _ in range(batch):
                store.note(lease, "attempt.log", {"name": "agent.txt", "bytes": number})
            store.write_notes()
            next_at += pause_s
            time.sleep(max(0.0, next_at - time.monotonic()))
        pipe.send(time.process_time() - began)


def read(url: str, run_id: str, pipe: Connection) -> None:
    """Follow the run from its first event; how many came, when asked to stop and all have been read."""
    seen: list[int] = []
    with open_store(url) as store:
        pipe.send("ready")
        while not pipe.poll():
            after = seen[-1] if seen else 0
            if store.wait_events(after, 0.2, run_id=run_id):
                seen += [event.id for event in store.events(after=after, run_id=run_id, limit=5000)]
        while seen and seen[-1] < store.last_event(run_id):
            seen += [event.id for event in store.events(after=seen[-1], run_id=run_id, limit=5000)]
    assert seen == sorted(set(seen))
    pipe.send(len(seen))


def one_round(url: str, options: argparse.Namespace, *, reader: bool) -> Round:
    """Write the events of a new run with four processes, with a reader beside them or without."""
    run_id = uuid.uuid4().hex
    with open_store(url) as store:
        info = RunInfo(
            id=run_id, name="s", kind="experiment", status=RunStatus.RUNNING, created_at=time.time(), seed=0
        )
        planned = plan(WRITERS)
        store.create_run(info, planned)
    pause_s = options.batch * WRITERS / options.rate if options.rate else 0.0
    commits = options.events // options.batch // WRITERS
    context = multiprocessing.get_context("spawn")
    pipes = []
    for trial in planned.trials:
        ours, theirs = context.Pipe()
        work = (url, run_id, trial.key, commits, options.batch, pause_s, theirs)
        context.Process(target=write, args=work, daemon=True).start()
        pipes.append(ours)
    ours, theirs = context.Pipe()
    if reader:
        context.Process(target=read, args=(url, run_id, theirs), daemon=True).start()
        ours.recv()
    began = time.monotonic()
    for pipe in pipes:
        pipe.send("go")
    waits = watch_locks(url, pipes)
    cpu_s = sum(pipe.recv() for pipe in pipes)
    wall_s = time.monotonic() - began
    seen = 0
    if reader:
        ours.send("stop")
        seen = ours.recv()
    events = 1 + WRITERS * (2 + commits * options.batch)
    return Round(cpu_s / (commits * WRITERS) * 1e6, wall_s, events, seen, waits)


def watch_locks(url: str, pipes: list[Connection]) -> int:
    """Until the writers end: how often one waits for somebody who holds a lock on the events."""
    if not url.startswith("postgresql"):
        return -1
    import psycopg

    found = 0
    with psycopg.connect(url, autocommit=True) as connection:
        while not all(pipe.poll() for pipe in pipes):
            row = connection.execute(
                "SELECT count(*) FROM pg_locks WHERE NOT granted "
                "AND locktype = 'relation' AND relation = 'events'::regclass"
            ).fetchone()
            found += row[0] if row else 0
            time.sleep(0.01)
    return found


def compared(url: str, options: argparse.Namespace, *, first: bool) -> tuple[Round, Round]:
    """One round without a reader, `first` or second, and one with; and a line about them."""
    order = (False, True) if first else (True, False)
    found = {reader: one_round(url, options, reader=reader) for reader in order}
    alone, followed = found[False], found[True]
    print(
        f"alone {alone.cpu_us:.0f} us CPU per commit, {alone.events / alone.wall_s:,.0f} events/s; "
        f"followed {followed.cpu_us:.0f} us, {followed.events / followed.wall_s:,.0f} events/s, "
        f"read {followed.seen:,} of {followed.events:,}, {followed.waits} waits for a lock",
        flush=True,
    )
    return alone, followed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--store", help="address of an empty store")
    parser.add_argument("--events", type=int, default=40_000, help="events per round")
    parser.add_argument("--batch", type=int, default=25, help="events per commit")
    parser.add_argument("--rate", type=float, default=10_000, help="events a second; 0: as many as go")
    parser.add_argument("--rounds", type=int, default=5, help="rounds with and without a reader, in turns")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = options.store or str(Path(folder, "events.db"))
        pairs = [compared(url, options, first=bool(at % 2)) for at in range(options.rounds)]
    ratio = statistics.median(followed.cpu_us / alone.cpu_us for alone, followed in pairs)
    lost = sum(followed.events - followed.seen for _, followed in pairs)
    print(f"a writer's CPU per commit with a reader: {ratio:.3f} times (target 1.05); {lost} events lost")
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()
