"""Find lasting changes of a line. Shares change by differences, everything else by ratios."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from proctor.verdicts.history.model import Alternating, Line, Move

if TYPE_CHECKING:
    from proctor.analysis.change import ChangeReport

LEAST_RUNS = 8
"""Fewer results than this cannot show a change: each level needs at least four. Needs no numpy."""


def detect(line: Line) -> Line:
    """The same line with its moves and levels."""
    known = line.known
    values = [value.value for value in line.values if value is not None]
    if len(known) < LEAST_RUNS:
        return line
    if line.is_share:
        # In logarithms of these, equal steps are equal differences.
        values = [math.exp(value) for value in values]
    if min(values) <= 0:
        return line
    from proctor.analysis.change import change_points

    found = change_points(values)
    undo = math.log if line.is_share else float
    levels: list[float | None] = [None] * len(line.values)
    for at, level in zip(known, found.levels, strict=True):
        levels[at] = undo(level)
    return replace(
        line,
        moves=_moves(line, known, found),
        levels=tuple(levels),
        alternating=_alternating(found, undo),
        noise=found.sigma if line.is_share else math.expm1(found.sigma),
    )


def _alternating(found: ChangeReport, undo: Callable[[float], float]) -> Alternating | None:
    seen = found.alternation
    if seen is None:
        return None
    low, high = (undo(math.exp(level)) for level in (seen.low, seen.high))
    return Alternating(low=low, high=high, switches=seen.switches)


def _moves(line: Line, known: Sequence[int], found: ChangeReport) -> tuple[Move, ...]:
    undo = math.log if line.is_share else float
    relative = math.log if line.is_share else _minus_one
    return tuple(
        Move(
            at=known[change.index],
            last=known[change.index - 1],
            before=undo(change.before),
            after=undo(change.after),
            change=relative(change.ratio),
            low=relative(change.interval.low),
            high=relative(change.interval.high),
        )
        for change in found.changes
    )


def _minus_one(ratio: float) -> float:
    return ratio - 1
