"""A leaderboard as a document: places as ranges, ties in words, intervals, cost; every pair behind it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from proctor.analysis.claim import Claim
from proctor.model.document import (
    Cell,
    Chart,
    Column,
    Document,
    Section,
    Table,
    filled,
    interval,
    number,
    outcome,
)
from proctor.quantity import MISSING, significant
from proctor.render.charts import rates
from proctor.render.results.cells import amount_cell, rate_cell, share_cell, time_cell
from proctor.verdicts.leaderboard.rank import Duel, Leaderboard, Standing
from proctor.verdicts.leaderboard.words import headline, method, ties

BRIEF = 15
MOST_BARS = 24


def leaderboard(
    board: Leaderboard, *, link: Callable[[str], str] = lambda _: "", folder: Path = Path()
) -> Document:
    """The whole answer. `link`: the address of a run, as seen from `folder`."""
    several = len({each.entrant.run_id for each in board.standings}) > 1
    return Document(
        kind="leaderboard",
        title="Leaderboard",
        headline=headline(board),
        about=(("competitors", str(len(board.standings))), ("pairs", str(len(board.duels)))),
        warnings=board.warnings,
        sections=filled(
            [
                Section(title="Places", blocks=(_places(board, link, several=several),), name="places"),
                Section(title="Pass rates", blocks=(_bars(board),), name="rates", aside=True),
                Section(title="Every pair", blocks=(_pairs(board),) if board.duels else (), name="pairs"),
            ]
        ),
        folder=str(folder),
        footer="Written by 'proctor leaderboard'.",
    )


def _places(board: Leaderboard, link: Callable[[str], str], *, several: bool) -> Table:
    errors = any(each.entrant.errors for each in board.standings)
    money = any(each.entrant.cost_usd is not None for each in board.standings)
    columns = [
        Column("place", "whole"),
        Column("agent × model", "prose"),
        Column("pass rate", "number"),
        Column("95 %", "number"),
        Column("rollouts", "number", spare=True),
        *([Column("errors", "number")] if errors else []),
        Column("median time", "number", spare=True),
        *([Column("cost", "number"), Column("per pass", "number", spare=True)] if money else []),
        *([Column("run", spare=True)] if several else []),
    ]
    rows = []
    for each in board.standings:
        href = link(each.entrant.run_id)
        row = [*_row(each, board.claim, href, errors=errors, money=money)]
        if several:
            row.append(Cell(text=each.entrant.run_name, href=href))
        rows.append(tuple(row))
    return Table(columns=tuple(columns), rows=tuple(rows), caption=method(board))


def _row(each: Standing, claim: Claim, href: str, *, errors: bool, money: bool) -> list[Cell | str]:
    found = each.entrant
    score = found.passes.excluded
    row: list[Cell | str] = [
        Cell(text=each.place, value=float(each.first), low=float(each.first), high=float(each.last)),
        Cell(text=found.label, note=ties(each), strong=each.first == 1, href=href),
        rate_cell(score.value if score else None, strong=True),
        share_cell(score.interval(claim) if score else None),
        number(str(found.scored), found.scored),
    ]
    row += [number(str(found.errors), found.errors)] if errors else []
    row.append(time_cell(found.median_s))
    if money:
        row += [_money(found.cost_usd, found.unknown_cost), _money(found.per_pass_usd, found.unknown_cost)]
    return row


def _money(usd: float | None, unknown: int) -> Cell | str:
    if usd is None:
        return MISSING
    return amount_cell("cost_usd", usd, "at least" if unknown else "")


def _bars(board: Leaderboard) -> Chart:
    bars = [_bar(each) for each in board.standings[:MOST_BARS]]
    caption = "Mark: the pass rate; bars: its 95 % intervals. To see who is ahead, read the places."
    if len(board.standings) > MOST_BARS:
        caption += f" The first {MOST_BARS} of {len(board.standings)} are drawn."
    draw = partial(rates.pass_rates, bars=bars, claim=str(board.claim))
    return Chart(title="Pass rates", draw=draw, caption=caption)


def _bar(each: Standing) -> rates.RateBar:
    passes = each.entrant.passes
    score = passes.excluded
    near, wide = (score.these_tasks, score.tasks_like_these) if score else (None, None)
    zero, best = (passes.as_zero, passes.best_case) if each.entrant.errors else (None, None)
    return rates.RateBar(
        label=each.entrant.label,
        value=score.value if score else None,
        near=(near.low, near.high) if near else None,
        wide=(wide.low, wide.high) if wide else None,
        as_zero=zero.value if zero else None,
        best_case=best.value if best else None,
    )


def _pairs(board: Leaderboard) -> Table:
    ordered = sorted(board.duels, key=lambda duel: (duel.adjusted, duel.a, duel.b))
    return Table(
        columns=(
            Column("pair", "prose"),
            Column("difference", "number"),
            Column("95 %", "number"),
            Column("tasks", "number"),
            Column("p, corrected", "number"),
            Column("order"),
        ),
        rows=tuple(_pair(board, duel) for duel in ordered),
        caption="Percentage points of the first minus the second, over the tasks that both did.",
        brief=BRIEF,
        total=len(ordered),
    )


def _pair(board: Leaderboard, duel: Duel) -> tuple[Cell | str, ...]:
    labels = [board.standings[at].entrant.label for at in (duel.a, duel.b)]
    name = f"{labels[0]} against {labels[1]}"
    scores = duel.scores
    if scores is None:
        return (name, MISSING, MISSING, "0", MISSING, "no common task")
    low, high = scores.interval(duel.claim).low, scores.interval(duel.claim).high
    return (
        name,
        number(_points(-scores.difference), -scores.difference),
        interval(f"{_points(-high)} to {_points(-low)}", -high, -low),
        number(str(scores.tasks), scores.tasks),
        number(significant(duel.adjusted, 2) if duel.adjusted >= 0.001 else "< 0.001", duel.adjusted),
        outcome("certain", "good") if duel.certain else outcome("not known", "warn"),
    )


def _points(share: float) -> str:
    return f"{share * 100:+.1f}".replace("-", "−")


def to_mapping(board: Leaderboard) -> dict[str, Any]:
    """The numbers for a program."""
    return {
        "claim": str(board.claim),
        "headline": headline(board),
        "warnings": list(board.warnings),
        "standings": [_standing(each, board.claim) for each in board.standings],
        "pairs": [
            {
                "a": board.standings[duel.a].entrant.label,
                "b": board.standings[duel.b].entrant.label,
                "difference": -duel.scores.difference if duel.scores else None,
                "tasks": duel.scores.tasks if duel.scores else 0,
                "p_value": duel.p_value,
                "adjusted_p_value": duel.adjusted,
                "certain": duel.certain,
            }
            for duel in board.duels
        ],
    }


def _standing(each: Standing, claim: Claim) -> dict[str, Any]:
    found = each.entrant
    passes, score = found.passes.excluded, found.score.excluded
    ends = passes.interval(claim) if passes else None
    return {
        "place": each.place,
        "first": each.first,
        "last": each.last,
        "label": found.label,
        "agent": found.agent,
        "model": found.model,
        "run_id": found.run_id,
        "run_name": found.run_name,
        "pass_rate": passes.value if passes else None,
        "low": ends.low if ends else None,
        "high": ends.high if ends else None,
        "score": score.value if score else None,
        "scored": found.scored,
        "passed": found.passed,
        "errors": found.errors,
        "median_s": found.median_s,
        "cost_usd": found.cost_usd,
        "unknown_cost": found.unknown_cost,
        "ahead_of": list(each.ahead_of),
        "behind": list(each.behind),
        "tied": list(each.tied),
    }
