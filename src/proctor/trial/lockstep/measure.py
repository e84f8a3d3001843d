"""Measure lockstep pairs: fresh worker processes that take turns of a fifth of a millisecond on one CPU.

The workers pass the turn among themselves over pipes, so nothing of ours runs between two slots.
"""

from __future__ import annotations

import hashlib
import os
import random
import resource
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from proctor.errors import SideError
from proctor.model.lockstep import Calibration, Pair, ProcessLayout, Schedule, slots_from
from proctor.trial.lockstep.process import Side, Worker, gather
from proctor.trial.noise import look

SLOT_S = 0.0002
"""A slot's CPU time. The machine's speed changes from millisecond to millisecond: the shorter the slots, the
more of that cancels. Below this, handing over the turn would show in the times."""
KEPT = 80
"""Layouts differ by more than the slots of one process do: two short pairs tell more than a long one."""
WARMUP = 8
DEFAULT_TIMEOUT_S = 60.0
_LEAD_S = 0.0005
"""Longer calls get no untimed one before them: it would cost more than it gives."""
_SIDE_S = 0.05
"""What all slots of one worker should take together when single calls are long."""


_ENV_STEP_BYTES, _ENV_STEPS = 16, 256
_LOADING = "loading or its first call"


def turns(schedule: Schedule, workers: int, rng: random.Random) -> list[int]:
    """Who has each turn. Every round gives one to each worker, in an order that is balanced and shuffled."""
    rounds = schedule.warmup + schedule.kept
    ways = [[(first + step) % workers for step in range(workers)] for first in range(workers)]
    ways += [way[::-1] for way in ways] if workers > 2 else []
    orders = [ways[number % len(ways)] for number in range(rounds)]
    rng.shuffle(orders)
    return [worker for order in orders for worker in order]


def plan_slots(call_s: float, loops: int) -> Schedule:
    """Many short slots; when a single call is longer than a slot, fewer of them."""
    lead = int(call_s <= _LEAD_S)
    slot_s = max(call_s * (loops + lead), SLOT_S)
    fewest = min(20, max(5, round(2 * _SIDE_S / slot_s)))
    kept = min(KEPT, max(fewest, round(_SIDE_S / slot_s)))
    return Schedule(loops=loops, warmup=max(1, min(WARMUP, kept // 10)), kept=kept, lead=lead)


def draw_env_bytes(rng: random.Random) -> int:
    """How much the environment of a process is padded: any place in a page for what is on its stack."""
    return _ENV_STEP_BYTES * rng.randrange(_ENV_STEPS)


def draw_layouts(roles: Iterable[str], rng: random.Random) -> dict[str, ProcessLayout]:
    """A layout of its own for each process of a pair, the second A included; the hash seed is the same.

    So what a layout does to the speed differs from pair to pair, and the interval over the pairs contains it.
    """
    hash_seed = rng.randrange(1 << 32)
    return {role: ProcessLayout(hash_seed, draw_env_bytes(rng), rng.randrange(1 << 32)) for role in roles}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedSide:
    """What one process of a side showed before the pairs."""

    side: Side
    """It knows now how its processes start faster."""
    calibration: Calibration
    content: str = ""
    """A digest of the code that ran and the files that it read; empty where not all of that is known."""
    runs_elsewhere: bool = False
    """Whether code was imported from the real folder and not from where both sides see theirs."""


def probe(
    side: Side, *, cpu: int | None, rng: random.Random, timeout_s: float = DEFAULT_TIMEOUT_S
) -> ProbedSide:
    """Start one worker of a side: does it load and run, is it the right code, how long is a call?"""
    (layout,) = draw_layouts(("a",), rng).values()
    with closing(Worker(side, layout, listens=True)) as worker:
        (ready,) = gather([worker], timeout_s=timeout_s, doing=_LOADING)
        orders = {"do": "probe", "cpu": cpu, "gc": side.gc, "slot_ns": round(SLOT_S * 1e9)}
        worker.send(orders | _origins(side))
        (answer,) = gather([worker], timeout_s=timeout_s, doing="execute_once")
    result = answer["result"]
    _refuse_strangers(side, result)
    loops, (wall_ns, cpu_ns, *_) = result["loops"], result["slot"]
    call_s = max(wall_ns - result["slot"][5], cpu_ns) / loops / 1e9
    calibration = Calibration(
        schedule=plan_slots(call_s, loops),
        call_wall_s=wall_ns / loops / 1e9,
        call_cpu_s=cpu_ns / loops / 1e9,
        at_once=result["at_once"],
        notes=tuple(result["notes"]),
    )
    return ProbedSide(
        side=replace(side, recipe=ready["recipe"]),
        calibration=calibration,
        content="" if result["starts_processes"] else _content(side, result),
        runs_elsewhere=side.seen_root != side.root and any(map(side.owns, result["imported"])),
    )


def _content(side: Side, result: Mapping[str, Any]) -> str:
    """A digest of what was imported and read. What is not the side's own is known by its path."""
    found = {}
    for file in {*result["imported"], *result["opened"]}:
        real = side.as_real(file)
        own = side.owns(real)
        name = real[len(side.root) :] if own else file
        try:
            found[name] = hashlib.sha256(Path(real).read_bytes()).hexdigest() if own else ""
        except OSError:
            found[name] = ""
    return hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One pair to measure: its number, its CPU, and whether a second A takes part."""

    number: int
    cpu: int | None
    again: bool = False
    confirms: bool = False


def measure_pair(
    a: Side, b: Side, turn: Turn, calibration: Calibration, *, rng: random.Random, timeout_s: float
) -> Pair:
    """Start fresh workers, let them take turns, and collect every slot."""
    roles = {"a": a, "b": b, **({"c": a.second()} if turn.again else {})}
    layouts = draw_layouts(roles, rng)
    # Who starts first must not be who starts first every time.
    names = rng.sample(sorted(roles), len(roles))
    before, started, spent = Machine.now(), time.perf_counter(), _children_cpu_s()
    order = turns(calibration.schedule, len(names), rng)
    processes = [(roles[name], layouts[name]) for name in names]
    slots, pinned = _run(processes, order, turn, calibration, timeout_s)
    rows = dict(zip(names, slots, strict=True))
    after, cpu_s = Machine.now(), _children_cpu_s() - spent
    return Pair(
        number=turn.number,
        schedule=calibration.schedule,
        a=slots_from(rows["a"]),
        b=slots_from(rows["b"]),
        again=slots_from(rows.get("c", ())),
        order="".join(names[worker] for worker in order),
        cpu=turn.cpu if pinned else None,
        wall_s=time.perf_counter() - started,
        cpu_s=cpu_s,
        steal_s=after.steal_s - before.steal_s,
        pressure_s=after.pressure_s - before.pressure_s,
        others=after.others(before, cpu_s),
        confirms=turn.confirms,
        layouts={name: (layouts[name],) for name in sorted(roles)},
        paths=a.paths,
    )


def _run(
    processes: Sequence[tuple[Side, ProcessLayout]],
    order: list[int],
    turn: Turn,
    calibration: Calibration,
    timeout_s: float,
) -> tuple[list[Any], bool]:
    """The slots of each process, and whether all were pinned."""
    calls = len(order) * calibration.schedule.loops
    limit_s = timeout_s + 20 * calls * max(calibration.call_wall_s, calibration.call_cpu_s)
    with ExitStack() as stack:
        with _pipes(len(processes)) as pipes:
            workers = [
                stack.enter_context(closing(Worker(side, layout, pass_fds=_ring(pipes, number))))
                for number, (side, layout) in enumerate(processes)
            ]
        gather(workers, timeout_s=timeout_s, doing=_LOADING)
        for number, worker in enumerate(workers):
            worker.send(_orders(worker.side, calibration.schedule, turn) | _place(order, pipes, number))
        results = [answer["result"] for answer in gather(workers, timeout_s=limit_s, doing="execute_once")]
    for (side, _), result in zip(processes, results, strict=True):
        _refuse_strangers(side, result)
    return [result["slots"] for result in results], all(result["pinned"] for result in results)


def _orders(side: Side, schedule: Schedule, turn: Turn) -> dict[str, Any]:
    """What a worker does in each of its turns."""
    whole, fraction = divmod(side.slow * schedule.loops, 1)
    return {
        "do": "turns",
        "cpu": turn.cpu,
        "gc": side.gc,
        "warmup": schedule.warmup,
        "loops": schedule.loops,
        "lead": schedule.lead,
        "extra_calls": int(whole),
        "spun_calls": fraction,
        # Only here: these paths are longer on one side than on the other.
        **(_origins(side) if turn.confirms else {}),
    }


def _origins(side: Side) -> dict[str, Any]:
    """Where the code of a side comes from and must not come from, for the worker to check."""
    installed = side.installed
    return {
        "roots": [] if installed else [side.seen_root, side.root],
        "foreign": [] if installed else list(side.foreign),
        "shared": [side.as_seen(folder) for folder in side.shared],
    }


def _place(order: list[int], pipes: Sequence[tuple[int, int]], me: int) -> dict[str, Any]:
    """When a worker has its turns, where it is told so, and whom it tells next."""
    turns_of_others = [writer for _, writer in pipes]
    return {"me": me, "schedule": order, "my_turn": pipes[me][0], "turns": turns_of_others}


@contextmanager
def _pipes(count: int) -> Iterator[list[tuple[int, int]]]:
    """One pipe per worker, over which it is given the turn; ours are closed once the workers have theirs."""
    pipes: list[tuple[int, int]] = []
    try:
        pipes.extend(os.pipe() for _ in range(count))
        yield pipes
    finally:
        for reader, writer in pipes:
            os.close(reader)
            os.close(writer)


def _ring(pipes: Sequence[tuple[int, int]], me: int) -> list[int]:
    """My reading end and the writing ends of the others: when a worker dies, waiting workers notice."""
    return [pipes[me][0], *(writer for number, (_, writer) in enumerate(pipes) if number != me)]


def _refuse_strangers(side: Side, result: Mapping[str, Any]) -> None:
    for name, file in result.get("strangers", ())[:1]:
        raise SideError(
            f"{side.who}: module '{name}' was imported from {file}, which is not this side's code "
            f"in {side.root}. Import the project from its own folder (PYTHONPATH or an editable "
            "install), or compare two environments with python:"
        )


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine's counters since boot, in seconds; 0 where the kernel does not say."""

    steal_s: float = 0.0
    pressure_s: float = 0.0
    busy_s: float = 0.0
    all_s: float = 0.0

    @classmethod
    def now(cls) -> Machine:
        """As they are now."""
        found, second = look(), os.sysconf("SC_CLK_TCK")
        ticks, idle = found.get("ticks", 0.0), found.get("idle_ticks", 0.0)
        return cls(
            steal_s=found.get("steal_ticks", 0.0) / second,
            pressure_s=found.get("waited_us", 0.0) / 1e6,
            busy_s=(ticks - idle) / second,
            all_s=ticks / second,
        )

    def others(self, before: Machine, ours_s: float) -> float:
        """Share of the CPU time since `before` that neither we used nor was idle."""
        all_s = self.all_s - before.all_s
        return max(0.0, self.busy_s - before.busy_s - ours_s) / all_s if all_s > 0 else 0.0
