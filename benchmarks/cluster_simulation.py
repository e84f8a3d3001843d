"""Where a cluster bends: 1 to 1,000 workers and up to a million trials, simulated from measured costs.

Costs come from `cluster_costs.json`, each with the command that measures it again. `--check` simulates one
machine of two cores with everything on it, as `many_workers.py` measures; `--what-if` changes one thing at a
time where 1,000 workers are held up.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

from cluster_model import Costs, Result, Shape, Work, simulate

FILE = Path(__file__).with_name("cluster_costs.json")
ORACLE = Work("short: an oracle's, without a model")
AGENT = Work("long: an agent's, ten turns of 2 s", turns=10, think_s=2.0)
CALLS = Work("long: an agent's, ten calls of 2 s", turns=10, think_s=2.0, commands=False)
SLOTS = {ORACLE.name: 4, AGENT.name: 188}
"""Trials in parallel per worker: twice its cores where they compute, as many as fit where they wait."""
MANY_WORKERS, TURNS_TOGETHER = 100, 5
"""From so many workers on, turns are played five at a time: half of the time, and the same answer."""
STATIONS = ("worker's Python", "cores", "coordinator", "its cores", "store", "broker")


def measured() -> Costs:
    """The costs of the file."""
    known = json.loads(FILE.read_text())
    return Costs(**{name: float(each["value"]) for name, each in known.items()})


def trials_for(workers: int, most: int) -> int:
    """Enough that the beginning and the end of a run hardly matter; a million for a thousand workers."""
    return min(most, max(2_000, 1_000 * workers))


def row(title: str, trials: int, found: Result) -> str:
    use = " | ".join(f"{100 * found.use[name]:.0f} %" for name in STATIONS)
    rate = found.per_second(trials)
    times = f"{found.seconds:,.0f} | {found.files_s:,.0f}"
    return f"| {title} | {trials:,} | {rate:,.0f} | {times} | {use} | {found.first or '–'} |"


def head(first: str) -> Iterator[str]:
    titles = [first, "trials", "a second", "seconds", "files, s later", *STATIONS, "held up by"]
    yield f"| {' | '.join(titles)} |"
    yield "|" + "---|" * len(titles)


def shape_of(workers: int, work: Work) -> Shape:
    together = TURNS_TOGETHER if workers >= MANY_WORKERS else 1
    return Shape(workers, SLOTS[work.name], turns_together=together)


def sizes(costs: Costs, workers: list[int], most: int, works: tuple[Work, ...]) -> Iterator[str]:
    """The tables of these kinds of trials."""
    for work in works:
        yield f"\nTrials that are {work.name}\n"
        yield from head("workers")
        for number in workers:
            trials = trials_for(number, most)
            yield row(f"{number:,}", trials, simulate(costs, work, shape_of(number, work), trials))


def what_if(costs: Costs, workers: int, most: int, works: tuple[Work, ...]) -> Iterator[str]:
    """One change at a time, all changes together last."""
    plans = replace(costs, plan_read_ms=0.0, plan_read_store_ms=0.0)
    near = replace(plans, copy_ms=plans.copy_near_ms, copy_wait_ms=0.0, blob_wait_ms=0.0)
    small, large = 4, 32
    steps = (
        ("as it is", costs, small),
        ("workers do not read the whole plan", plans, small),
        ("and the store has 32 cores", plans, large),
        ("and blobs are in a folder that all machines share", near, large),
    )
    for work in works:
        yield f"\n{workers:,} workers; trials that are {work.name}\n"
        yield from head("what")
        for title, changed, cores in steps:
            trials = trials_for(workers, most)
            shape = replace(shape_of(workers, work), store_cores=cores)
            yield row(title, trials, simulate(changed, work, shape, trials))


def paced(costs: Costs, pace: float) -> Costs:
    """The costs on a machine that others use too: everything takes so many times as long."""
    return Costs(**{each.name: getattr(costs, each.name) * pace for each in fields(costs)})


def check(costs: Costs, trials: int, works: tuple[Work, ...]) -> Iterator[str]:
    """One machine of two cores, as where the runs were made: its blobs are in a folder."""
    near_ms = costs.copy_near_ms
    costs = replace(costs, blob_ms=near_ms, blob_wait_ms=0.0, copy_ms=near_ms, copy_wait_ms=0.0)
    for work in works:
        slots = 4 if work is ORACLE else trials
        yield f"\nEverything on one machine of two cores; trials that are {work.name}\n"
        yield from head("workers")
        for number in (1, 2, 4):
            shape = Shape(number, max(1, slots // number), one_host=True)
            yield row(str(number), trials, simulate(costs, work, shape, trials))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 10, 100, 1000])
    parser.add_argument("--trials", type=int, default=1_000_000, help="at most, per run")
    parser.add_argument("--check", type=int, metavar="N", help="N trials on this kind of machine")
    parser.add_argument("--pace", type=float, default=1.0, help="of --check: how much slower it was")
    parser.add_argument("--what-if", action="store_true", help="what would move the limit")
    parser.add_argument("--only", choices=["short", "long"], help="trials of one kind")
    options = parser.parse_args()
    works = tuple(each for each in (ORACLE, AGENT) if each.name.startswith(options.only or ""))
    costs, began = measured(), time.perf_counter()
    if options.check:
        checked = tuple(CALLS if each is AGENT else each for each in works)
        lines = check(paced(costs, options.pace), options.check, checked)
    elif options.what_if:
        lines = what_if(costs, max(options.workers), options.trials, works)
    else:
        lines = sizes(costs, options.workers, options.trials, works)
    for line in lines:
        print(line, flush=True)
    print(f"\nsimulated in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
