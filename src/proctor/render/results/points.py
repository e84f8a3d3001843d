"""The results of experiments: key numbers for one point, a table and charts for many, other metrics after."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence

from proctor.model.document import (
    Block,
    Cell,
    Column,
    Document,
    Facts,
    Fold,
    Section,
    Table,
    Text,
    as_cell,
    interval,
    number,
)
from proctor.model.outcome import Outcome
from proctor.quantity import MISSING, metric_title, span
from proctor.render.results.cells import amount_cell, linked, outcome_cell
from proctor.render.results.figures import Axis, axes_of, spread_charts, sweep_charts
from proctor.runfolder.read import RunData, TrialResult
from proctor.verdicts.run.story import HEADERS, headline, numbers, ratio_text
from proctor.verdicts.run.survey import Group, run_clock, short, survey

MOST_ROWS = 200
BRIEF = 30
"""Rows in a terminal."""
MOST_GROUPS = 30
MOST_METRICS = 12
_STATS = ("p50", "mean", "p95", "min", "max")
_REST = "metrics.json lists all of them"


def results(data: RunData) -> list[Section]:
    """A section per group: what was measured, what came out, pictures of it."""
    groups, metric = survey(data).groups, run_clock(data).metric
    found = [
        Section(
            title=group.subject if len(groups) > 1 else "Results",
            blocks=tuple(_blocks(group, metric)),
            name=f"results-{at}",
        )
        for at, group in enumerate(groups[:MOST_GROUPS], 1)
    ]
    if len(groups) > MOST_GROUPS:
        said = f"{len(groups) - MOST_GROUPS} more subjects are in metrics.json beside this page."
        found.append(Section(blocks=(Text(text=said, quiet=True),)))
    return found


def _blocks(group: Group, metric: str) -> Iterable[Block]:
    if group.fixed:
        fixed = ", ".join(f"{name}={short(value)}" for name, value in group.fixed.items())
        yield Text(text=f"fixed: {fixed}", quiet=True)
    if len(group.trials) == 1:
        yield _tiles(group.trials[0], metric)
    else:
        yield _table(group, metric)
    axes = axes_of(group)
    yield from sweep_charts(group, metric, axes)
    yield from spread_charts(group, metric)
    yield from _others(group, metric, axes)


def _tiles(trial: TrialResult, metric: str) -> Facts:
    middle = trial.stat(metric, "p50")
    told = [("outcome", outcome_cell(trial))] if trial.outcome is not Outcome.PASSED else []
    if middle is None:
        return Facts(pairs=tuple(told), tiles=True)
    ends = trial.interval_of(metric)
    low, high = trial.stat(metric, "min"), trial.stat(metric, "max")
    extremes = span(metric, low, high) if low is not None and high is not None else MISSING
    count = int(trial.stat(metric, "count") or 0)
    return Facts(
        pairs=(
            ("median", amount_cell(metric, middle)),
            ("95 % interval", interval(span(metric, *ends), *ends) if ends else MISSING),
            *((name, _stat(trial, metric, name)) for name in ("mean", "p95")),
            ("min – max", interval(extremes, low, high)),
            ("iterations", number(f"{count:,}".replace(",", "\u202f"), count)),
            *told,
        ),
        tiles=True,
    )


def _stat(trial: TrialResult, metric: str, name: str) -> Cell:
    return amount_cell(metric, trial.stat(metric, name))


def _table(group: Group, metric: str) -> Table:
    shown = group.trials[:MOST_ROWS]
    outcomes = group.outcomes[Outcome.PASSED] < len(group.trials)
    return Table(
        columns=(
            *(_column(name, shown) for name in group.varying or ("trial",)),
            *((Column("outcome"),) if outcomes else ()),
            *(Column(name, "number") for name in HEADERS),
        ),
        rows=tuple(
            (*_labels(group, trial), *([outcome_cell(trial)] if outcomes else []), *_numbers(trial, metric))
            for trial in shown
        ),
        brief=BRIEF,
        total=len(group.trials),
        rest=_REST,
    )


def _column(name: str, shown: Iterable[TrialResult]) -> Column:
    plain = all(isinstance(trial.planned.params.get(name), int | float) for trial in shown)
    return Column(name, "number" if plain else "text")


def _labels(group: Group, trial: TrialResult) -> list[Cell | str]:
    """What sets a point apart; the first leads to its result."""
    params = trial.planned.params
    first, *rest = [short(params.get(name), 60) for name in group.varying] or [group.label(trial)]
    return [linked(first, trial), *rest]


def _numbers(trial: TrialResult, metric: str) -> list[Cell]:
    found, ends = numbers(trial, metric), trial.interval_of(metric) or (None, None)
    around = f"±{found.half:.1%}" if found.half is not None else ""
    median, between, mean, p95, count = found.cells
    return [
        number(median, trial.stat(metric, "p50"), strong=True),
        Cell(text=between, low=ends[0], high=ends[1], note=around),
        *(number(text, trial.stat(metric, name)) for text, name in ((mean, "mean"), (p95, "p95"))),
        as_cell(count),
    ]


def _others(group: Group, metric: str, axes: Sequence[Axis]) -> Iterable[Block]:
    """What `execute_once` returned and the instruments added, folded away."""
    names: dict[str, None] = {}
    for trial in group.trials:
        for name in trial.counted.metrics if trial.counted else ():
            if name not in names and name != metric and trial.stat(name, "p50") is not None:
                names[name] = None
    shown = list(names)[:MOST_METRICS]
    if not shown:
        return
    if len(group.trials) == 1:
        only = group.trials[0]
        yield Table(
            title="Other metrics",
            columns=(Column("metric"), *(Column(stat.replace("p50", "median"), "number") for stat in _STATS)),
            rows=tuple((name, *(_stat(only, name, stat) for stat in _STATS)) for name in names),
        )
        return
    table = Table(
        columns=(Column("median of"), *(Column(name, "number") for name in shown)),
        rows=tuple(
            (group.label(trial), *(_stat(trial, name, "p50") for name in shown))
            for trial in group.trials[:MOST_ROWS]
        ),
        total=len(group.trials),
        rest=_REST,
    )
    blocks: list[Block] = [table]
    for name in shown[:4]:
        blocks += sweep_charts(group, name, axes)
    if len(names) > len(shown):
        said = f"{len(names) - len(shown)} more metrics are in metrics.json."
        blocks.append(Text(text=said, quiet=True))
    titles = ", ".join(metric_title(name) for name in shown)
    yield Fold(title=f"Other metrics: {titles}", blocks=tuple(blocks))


def sweep_summary(data: RunData) -> Document:
    """Every parameter point, fastest first. A ratio is given only where the 95 % intervals lie apart."""
    metric = run_clock(data).metric
    return Document(
        kind="sweep",
        title=f"Sweep: {data.info.name}",
        headline=headline(data),
        sections=tuple(
            Section(title=group.subject, blocks=(_ranked(group, metric),)) for group in survey(data).groups
        ),
        links=(Cell(text="report.html", href="report.html"),),
    )


def _ranked(group: Group, metric: str) -> Table:
    def rank(at: int) -> float:
        return math.inf if math.isnan(group.medians[at]) else group.medians[at]

    first = heapq.nsmallest(MOST_ROWS, range(len(group.trials)), key=rank)
    best = group.trials[first[0]]
    rows: list[tuple[Cell | str, ...]] = []
    for trial in map(group.trials.__getitem__, first):
        label = linked(group.label(trial), trial)
        rows.append((label, outcome_cell(trial), *_numbers(trial, metric), ratio_text(trial, best, metric)))
    return Table(
        columns=(
            Column("point"),
            Column("outcome"),
            *(Column(name, "number") for name in (*HEADERS, "against the fastest")),
        ),
        rows=tuple(rows),
        total=len(group.trials),
        rest=_REST,
    )
