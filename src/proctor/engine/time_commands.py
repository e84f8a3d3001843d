"""Time whole commands: one alone, or the first against each of the others in lockstep pairs.

Every run is a fresh process, so a pair is a few runs of each command in turns; the driver, the looks and the
verdicts are those of `proctor ab`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from statistics import median

from proctor.analysis.both_clocks import judge, self_check
from proctor.analysis.lockstep import FEWEST_PAIRS
from proctor.engine.ab import Asked, Order, PointResult, Progress, Subpoint, compare, without_difference
from proctor.errors import Interrupted
from proctor.model.lockstep import Pair, ProcessLayout, Schedule
from proctor.processes import allowed_cpus, without_collections
from proctor.trial.lockstep.command import Command, Execution, execute
from proctor.trial.lockstep.measure import Machine, draw_env_bytes, turns

SIDE_S = 0.1
"""What the runs of one command in a pair should take together when single runs are short."""
MOST_PER_PAIR = 10
FEWEST_RUNS = 10
USUAL_S = 3.0
"""One command alone is run at least this often and this long, unless a number is given."""
MOST_RUNS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What is timed, and what happens around it."""

    commands: tuple[Command, ...]
    warmup: int = 1
    """Runs of each command that are not counted."""
    runs: int | None = None
    """Exactly this many runs of each command."""
    budget_s: float | None = None
    pin: bool = False
    prepare: Command | None = None
    """Runs before every timed run."""
    setup: Command | None = None
    """Runs once, before everything."""
    cleanup: Command | None = None
    """Runs once, after everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """What came of it. `results` are of the second command and those after it, each against the first."""

    study: Study
    executions: tuple[tuple[Execution, ...], ...]
    """Of each command, those that count."""
    results: tuple[PointResult, ...] = ()
    shell_s: float | None = None
    """What starting the shell takes; it is part of every time."""
    wall_s: float = 0.0
    interrupted: bool = False


@dataclass(slots=True)
class Bench:
    """Runs commands and remembers what each run took."""

    study: Study
    rng: random.Random
    on_run: Callable[[str, int], None] = lambda _name, _count: None
    seen: list[list[Execution]] = field(default_factory=list)
    pairs: list[list[Pair]] = field(default_factory=list)
    kept: int = 1
    cpus: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.seen = [[] for _ in self.study.commands]
        self.pairs = [[] for _ in self.study.commands[1:]]
        self.cpus = allowed_cpus() if self.study.pin else ()

    def once(self, number: int, *, cpu: int | None = None) -> Execution:
        """One run that counts."""
        found = self._run(number, cpu, f"run {len(self.seen[number]) + 1}")
        self.seen[number].append(found)
        return found

    def _run(self, number: int, cpu: int | None, doing: str) -> Execution:
        command = self.study.commands[number]
        self.on_run(command.name, len(self.seen[number]))
        if self.study.prepare:
            execute(self.study.prepare, doing="--prepare")
        layout = ProcessLayout(env_bytes=draw_env_bytes(self.rng), heap_seed=self.rng.randrange(1 << 32))
        return execute(command, cpu=cpu, doing=doing, layout=layout)

    def warm_up(self) -> None:
        """Fill caches, see that every command works, and learn how often a pair should run them."""
        fastest_s = float("inf")
        for number in range(len(self.study.commands)):
            for turn in range(self.study.warmup):
                found = self._run(number, None, f"warm-up {turn + 1}")
                fastest_s = min(fastest_s, found.wall_ns / 1e9)
        if not self.study.runs and not self.study.prepare and fastest_s < SIDE_S:
            self.kept = min(MOST_PER_PAIR, round(SIDE_S / max(fastest_s, 1e-4)))

    def measure(self, order: Order) -> Pair:
        """One pair: the first command and the one of this point, in a balanced and shuffled order."""
        cpu = self.cpus[order.number % len(self.cpus)] if self.cpus else None
        again = order.again and not self.study.runs
        schedule = Schedule(loops=1, warmup=0, kept=self.kept)
        sides = [0, order.point + 1, *([0] if again else [])]
        order_of_runs = turns(schedule, len(sides), self.rng)
        rows: list[list[Execution]] = [[] for _ in sides]
        began, before = time.perf_counter(), Machine.now()
        for side in order_of_runs:
            rows[side].append(self.once(sides[side], cpu=cpu))
        cpu_s = sum(each.cpu_ns for row in rows for each in row) / 1e9
        pair = Pair(
            number=order.number,
            schedule=schedule,
            a=tuple(rows[0]),
            b=tuple(rows[1]),
            again=tuple(rows[2]) if again else (),
            order="".join("abc"[side] for side in order_of_runs),
            cpu=cpu,
            wall_s=time.perf_counter() - began,
            cpu_s=cpu_s,
            others=Machine.now().others(before, cpu_s),
            confirms=order.confirms,
            layouts={"abc"[side]: tuple(run.layout for run in row) for side, row in enumerate(rows)},
        )
        self.pairs[order.point].append(pair)
        return pair


def time_commands(
    study: Study,
    asked: Asked,
    *,
    on_run: Callable[[str, int], None] = lambda _name, _count: None,
    on_progress: Callable[[Progress], None] = lambda _: None,
    rng: random.Random | None = None,
) -> Timed:
    """Set up, warm up, measure, clean up. When a person stops it, what is known by then is returned."""
    bench = Bench(study, rng or random.SystemRandom(), on_run)
    began = time.monotonic()
    interrupted = False
    results: list[PointResult] = []
    with _around(study), without_collections():
        try:
            bench.warm_up()
            if len(study.commands) == 1:
                _alone(bench)
            else:
                results = compare(_points(study), asked, bench.measure, on_progress=on_progress)
        except Interrupted:
            interrupted = True
            results = _partial(bench, asked)
    return Timed(
        study=study,
        executions=tuple(map(tuple, bench.seen)),
        results=tuple(results),
        shell_s=None if interrupted else _shell_s(study),
        wall_s=time.monotonic() - began,
        interrupted=interrupted,
    )


def _points(study: Study) -> list[Subpoint]:
    first, *others = study.commands
    return [
        Subpoint(label=command.name, identical=replace(command, name=first.name) == first)
        for command in others
    ]


def _alone(bench: Bench) -> None:
    study, deadline = bench.study, time.monotonic() + (bench.study.budget_s or USUAL_S)
    wanted = study.runs or MOST_RUNS
    while len(bench.seen[0]) < wanted:
        if bench.seen[0] and study.budget_s and time.monotonic() > deadline:
            return
        if not study.runs and len(bench.seen[0]) >= FEWEST_RUNS and time.monotonic() > deadline:
            return
        cpu = bench.cpus[len(bench.seen[0]) % len(bench.cpus)] if bench.cpus else None
        bench.once(0, cpu=cpu)


def _partial(bench: Bench, asked: Asked) -> list[PointResult]:
    """What the pairs say that were whole when a person stopped it."""
    found = []
    rules = replace(asked.rules, points=max(1, len(bench.pairs)))
    for point, pairs in zip(_points(bench.study), bench.pairs, strict=True):
        if len(pairs) < FEWEST_PAIRS:
            continue
        finding = judge(pairs, rules, final=True)
        result = PointResult(
            label=point.label,
            params={},
            finding=replace(finding, reason=finding.reason or "stopped before the end"),
            check=self_check(pairs, finding, rules),
            pairs=tuple(pairs),
            identical=point.identical,
        )
        found.append(without_difference(result))
    return found


def _shell_s(study: Study) -> float | None:
    """The median of five starts of a shell that does nothing."""
    if not study.commands[0].shell:
        return None
    nothing = replace(study.commands[0], text=":", name=":", output="/dev/null", stdin="/dev/null")
    return median(execute(nothing).wall_ns for _ in range(5)) / 1e9


@contextmanager
def _around(study: Study) -> Iterator[None]:
    """Setup before, cleanup after, also after a failure."""
    try:
        if study.setup:
            execute(study.setup, doing="--setup")
        yield
    finally:
        if study.cleanup:
            execute(study.cleanup, doing="--cleanup")
