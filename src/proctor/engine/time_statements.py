"""Time Python statements: calibrated loops in fresh processes, in lockstep pairs when there are several."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from proctor.engine.ab import Asked, Order, Progress
from proctor.engine.ab_run import Comparison, Contest, opened, run
from proctor.errors import CommandFailedError, SideError, UsageError
from proctor.experiments.statement import check
from proctor.model.lockstep import Pair
from proctor.spec.load import from_mapping
from proctor.trial.lockstep.sides import SideRequest

CALL_S = 50e-6
"""A call is made this long by repeating the statement: calling it then costs a few per mille."""
LONGEST_CALL_S = 1e-3
"""… unless that would make a much slower second statement take longer than this."""
PAIRS_ALONE = 10
_FEWEST = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """What is timed."""

    statements: tuple[str, ...]
    names: tuple[str, ...]
    setup: str = "pass"
    pin: bool = True
    budget_s: float | None = None
    pairs: int | None = None
    """How many pairs exactly; each is two fresh processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedStatements:
    """What came of it; times are of one execution of the statement."""

    asked: Statements
    number: int
    """How often a call repeated the statement."""
    wall_s: tuple[tuple[float, ...], ...]
    cpu_s: tuple[tuple[float, ...], ...]
    """For each statement, one value per process: the median of its slots."""
    comparisons: tuple[Comparison, ...] = ()
    took_s: float = 0.0


def time_statements(
    asked: Statements,
    rules: Asked,
    *,
    on_progress: Callable[[Progress], None] = lambda _: None,
    rng: random.Random | None = None,
) -> TimedStatements:
    """Check every statement, fit the loops to them, measure."""
    for statement in asked.statements:
        _check(statement, asked.setup)
    began = time.monotonic()
    try:
        number = _number(asked, rng)
        if len(asked.statements) == 1:
            pairs = _alone(asked, number, on_progress, rng)
            walls, cpus = ([_per_statement(pairs, name, number, ("a", "b"))] for name in ("wall", "cpu"))
            found: list[Comparison] = []
        else:
            found = _compared(asked, number, rules, on_progress, rng)
            walls, cpus = (_of_each(found, name, number) for name in ("wall", "cpu"))
    except SideError as error:
        raise CommandFailedError(str(error)) from error
    return TimedStatements(
        asked=asked,
        number=number,
        wall_s=tuple(walls),
        cpu_s=tuple(cpus),
        comparisons=tuple(found),
        took_s=time.monotonic() - began,
    )


def _check(statement: str, setup: str) -> None:
    try:
        check(statement, setup)
    except (SyntaxError, ValueError) as error:
        where = getattr(error, "filename", "") or "<statement>"
        text = setup if where == "<setup>" else statement
        what = "setup" if where == "<setup>" else "statement"
        raise UsageError(f"{what} {text!r} is not valid Python: {getattr(error, 'msg', error)}") from None


def _contest(asked: Statements, a: str, b: str, number: int) -> Contest:
    spec = from_mapping(
        {"name": "time", "experiment": "statement", "params": {"setup": asked.setup, "number": number}},
        base_dir=os.getcwd(),  # noqa: PTH109 - text in, text out
    )
    sides = (SideRequest(folder=".", params={"statement": each}) for each in (a, b))
    return Contest(spec=spec, sources=(), a=next(sides), b=next(sides), pin=asked.pin)


def _number(asked: Statements, rng: random.Random | None) -> int:
    """How often a call should repeat the statement: fitted to the first, bounded by the slowest."""
    calls_s = [_call_s(asked, statement, 1, rng) for statement in asked.statements]
    number = math.ceil(CALL_S / calls_s[0])
    if number > 1:  # the first look saw mostly the call itself
        number = math.ceil(CALL_S * number / _call_s(asked, asked.statements[0], number, rng))
    return max(1, min(number, math.floor(LONGEST_CALL_S / max(calls_s))))


def _call_s(asked: Statements, statement: str, number: int, rng: random.Random | None) -> float:
    with opened(_contest(asked, statement, statement, number), rng) as (bench, _):
        found = bench.calibrate(0).calibration
    assert found is not None
    return max(found.call_wall_s, found.call_cpu_s)


def _alone(
    asked: Statements, number: int, on_progress: Callable[[Progress], None], rng: random.Random | None
) -> list[Pair]:
    """Pairs of the statement with itself: twice as many fresh processes, and nothing is compared."""
    only, most = asked.statements[0], asked.pairs or PAIRS_ALONE
    began, pairs = time.monotonic(), list[Pair]()
    with opened(_contest(asked, only, only, number), rng) as (bench, _):
        bench.calibrate(0)
        while len(pairs) < most:
            if asked.budget_s and len(pairs) >= _FEWEST and time.monotonic() - began > asked.budget_s:
                break
            on_progress(Progress(point=0, points=1, label=asked.names[0], pairs=len(pairs), most=most))
            pairs.append(bench.measure(Order(point=0, number=len(pairs))))
    return pairs


def _compared(
    asked: Statements,
    number: int,
    rules: Asked,
    on_progress: Callable[[Progress], None],
    rng: random.Random | None,
) -> list[Comparison]:
    """The first against each of the others; the chance of a false verdict is shared among them."""
    first, *others = asked.statements
    shared = replace(rules, rules=replace(rules.rules, error=rules.rules.error / len(others)))
    if asked.budget_s:
        shared = replace(shared, time_budget_s=asked.budget_s / len(others))
    found = []
    for place, other in enumerate(others):

        def tell(progress: Progress, place: int = place) -> None:
            where = replace(progress, point=place, points=len(others), label=asked.names[place + 1])
            on_progress(where)

        found.append(run(_contest(asked, first, other, number), shared, on_progress=tell, rng=rng))
    return found


def _of_each(found: Sequence[Comparison], clock: str, number: int) -> list[tuple[float, ...]]:
    """The first statement's times from all comparisons, then each other's from its own."""
    pairs = [comparison.results[0].pairs for comparison in found]
    first = [value for each in pairs for value in _per_statement(each, clock, number, ("a",))]
    return [tuple(first), *(_per_statement(each, clock, number, ("b",)) for each in pairs)]


def _per_statement(pairs: Sequence[Pair], clock: str, number: int, sides: Sequence[str]) -> tuple[float, ...]:
    return tuple(
        float(median(getattr(slot, f"{clock}_ns") for slot in getattr(pair, side)[pair.schedule.warmup :]))
        / pair.schedule.loops
        / number
        / 1e9
        for pair in pairs
        for side in sides
    )
