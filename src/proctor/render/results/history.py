"""A series of runs as a document: the verdict, the lines with their changes, every run, what was left out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from proctor.model.document import (
    Cell,
    Chart,
    Column,
    Document,
    Section,
    Table,
    Text,
    Tone,
    filled,
    interval,
    number,
    outcome,
)
from proctor.quantity import MISSING, metric_title
from proctor.render.labels import apart
from proctor.render.results.cells import address
from proctor.verdicts.history.model import History, Line, Move, Ran, Value
from proctor.verdicts.history.words import (
    NAMES,
    captions,
    change_span,
    change_text,
    date_text,
    differences,
    interval_text,
    left_out,
    line_title,
    sentence,
    sparkline,
    value_text,
)

MOST_CHARTS = 16
"""Lines that are drawn: the main ones, then those that changed most."""
MOST_ROWS = 200
MOST_RUNS = 60
MOST_LINES = 40
"""Rows of runs and of lines in a terminal."""
MOST_SPARKS = 60
"""Characters of a sparkline: the newest runs."""
MOST_MAIN = 4
_READ = (
    "One mark per run with its 95 % interval; grey line: typical level; dashed line: lasting change. "
    "Crosses on the axis: runs without a value; yellow crosses: runs left out of the statistics."
)


def history(found: History, *, folder: Path = Path()) -> Document:
    """The whole series. `folder`: where the document will be; links to reports are relative to it."""
    first = (found.main or list(found.lines))[:MOST_MAIN]
    runs, last = found.runs, found.runs[-1]
    said = f"{len(runs)}, {len(found.counted)} of them in the statistics"
    return Document(
        kind="history",
        title=f"{found.name} over time",
        headline=sentence(found),
        about=(
            ("metric", found.metric),
            ("runs", said),
            ("from", f"{date_text(runs[0].at)} to {date_text(last.at)} UTC"),
        ),
        warnings=(*left_out(found), *differences(found), *found.notes),
        sections=filled(
            [_charts(found), _moves(found), _runs(found, first, folder), _lines(found), _method(found)]
        ),
        folder=str(folder),
        footer="Written by 'proctor history' from a store of runs.",
    )


def _charts(found: History) -> Section:
    telling = [line for line in found.lines if line.main or line.moves or line.metric != found.metric]
    chosen = telling if found.main else found.lines
    lines = [line for line in chosen if line.known][:MOST_CHARTS]
    charts = tuple(_chart(found, line, first=not at) for at, line in enumerate(lines))
    return Section(title="Over time", blocks=charts, name="charts")


def _chart(found: History, line: Line, *, first: bool) -> Chart:
    return Chart(
        title=line_title(found, line),
        draw=lambda: _timeline(found, line),
        caption=_READ if first else _said_of(line),
        text=(f"{sparkline(line)[-MOST_SPARKS:]}  {line_title(found, line)}",) if line.main else (),
    )


def _timeline(found: History, line: Line) -> partial[str]:
    from proctor.render.charts.timeline import Spot, Step, timeline

    levels: Sequence[float | None] = line.levels or (None,) * len(line.values)
    spots = [
        Spot(
            value=value.value if value else None,
            low=value.low if value else None,
            high=value.high if value else None,
            level=level,
            tooltip=_tooltip(line, run, value),
            under=(_day(run, found), run.version),
            left_out=bool(run.left_out),
        )
        for run, value, level in zip(found.runs, line.values, levels, strict=True)
    ]
    return partial(
        timeline,
        spots=spots,
        steps=[Step(last=move.last, at=move.at, label=change_text(line, move)) for move in line.moves],
        name=NAMES.get(line.metric, metric_title(line.metric)),
        metric=line.metric,
        share=line.is_share and all(0 <= value.value <= 1 for value in line.values if value),
        series=0 if line.main else 4,
    )


def _said_of(line: Line) -> str:
    if not line.moves:
        return f"{len(line.known)} runs; no lasting change."
    said = ", ".join(f"{change_text(line, move)} ({change_span(line, move)})" for move in line.moves)
    return f"{len(line.known)} runs; {said}."


def _tooltip(line: Line, run: Ran, value: Value | None) -> str:
    said = value_text(line, value) if value else run.left_out or "no value"
    if value and value.low is not None:
        said += f", 95 % interval {interval_text(line, value)}, n={value.n}"
    version = f", commit {run.version}" if run.version else ""
    return f"{run.id}, {date_text(run.at)}{version}: {said}"


def _day(run: Ran, found: History) -> str:
    """A date, or the time of day where all runs are of few days."""
    if date_text(run.at) == MISSING:
        return ""
    short = found.runs[-1].at - found.runs[0].at < 3 * 86_400
    return time.strftime("%d %b %H:%M" if short else "%Y-%m-%d", time.gmtime(run.at))


def _lines(found: History) -> Section:
    """Every line in a row: the main ones, then those that moved most."""
    if not found.lines:
        return Section()
    lines = found.lines[:MOST_ROWS]
    points = [line for line in lines if not line.main]
    shared, own = apart([line.name for line in points])
    names = dict(zip((line.name for line in points), own, strict=True))
    rows = tuple(
        (
            line_title(found, line, names.get(line.name, "")),
            Cell(text=sparkline(line)[-MOST_SPARKS:], code=True),
            number(value_text(line, line.latest), line.latest.value if line.latest else None),
            _interval(line, line.latest),
            number(str(len(line.known)), len(line.known)),
            ", ".join(f"{change_text(line, move)} at {found.runs[move.at].id}" for move in line.moves)
            or MISSING,
        )
        for line in lines
    )
    table = Table(
        columns=(
            Column("line", "prose"),
            Column("over the runs", "whole"),
            Column("newest", "number"),
            Column("95 % interval", "number"),
            Column("runs", "number"),
            Column("changes", "prose"),
        ),
        rows=rows,
        brief=MOST_LINES,
        total=len(found.lines),
        rest="--point TEXT picks, --json lists all of them",
        caption=f"Fixed: {shared}." if "=" in shared else "",
    )
    return Section(title="Every line", blocks=(table,), name="lines")


def _interval(line: Line, value: Value | None) -> Cell:
    return interval(interval_text(line, value), value.low if value else None, value.high if value else None)


def _moves(found: History) -> Section:
    every = [(line, move) for line in found.lines for move in line.moves]
    if not every:
        return Section()
    table = Table(
        columns=(
            Column("line", "prose"),
            Column("change", "number"),
            Column("95 % interval", "number"),
            Column("level", "whole"),
            Column("after run", "whole", spare=True),
            Column("at run", "whole"),
        ),
        rows=tuple(_move(found, line, move) for line, move in every[:MOST_ROWS]),
        brief=MOST_LINES,
        total=len(every),
    )
    return Section(title="Lasting changes", blocks=(table,), name="changes")


def _move(found: History, line: Line, move: Move) -> tuple[Cell | str, ...]:
    before, after = (value_text(line, Value(value=each)) for each in (move.before, move.after))
    return (
        line_title(found, line),
        number(change_text(line, move), move.change, strong=True),
        interval(change_span(line, move), move.low, move.high),
        f"{before} → {after}",
        *(
            Cell(text=run.id, note=run.version, code=True)
            for run in (found.runs[move.last], found.runs[move.at])
        ),
    )


def _runs(found: History, lines: Sequence[Line], folder: Path) -> Section:
    """Newest first: what people look for is at the top. Of a single line with its interval in a column."""
    single = len(lines) == 1
    titles = ("value", "95 % interval", "n") if single else tuple(line.name for line in lines)
    rows = tuple(
        (
            Cell(text=run.id, code=True, href=address(run.folder, "report.html", folder)),
            date_text(run.at),
            run.version or MISSING,
            *(cell for line in lines for cell in _values(line, line.values[at], single=single)),
            f"{run.ended}/{run.trials}",
            _note(run, lines, at),
        )
        for at, run in reversed(list(enumerate(found.runs)))
    )
    table = Table(
        columns=(
            Column("run", "whole"),
            Column("date, UTC", "whole"),
            Column("commit", spare=True),
            *(Column(title, "number") for title in titles),
            Column("trials", "number"),
            Column("", "prose"),
        ),
        rows=rows[:MOST_ROWS],
        brief=MOST_RUNS,
        total=len(rows),
    )
    return Section(title="Runs", blocks=(table,), name="runs")


def _values(line: Line, value: Value | None, *, single: bool) -> tuple[Cell, ...]:
    shown, ends = value_text(line, value), _interval(line, value)
    if single:
        return (
            number(shown, value.value if value else None),
            ends,
            Cell(text=str(value.n) if value else MISSING),
        )
    if value is None:
        return (Cell(text=MISSING),)
    return (Cell(text=f"{shown} ({ends.text})", value=value.value, low=value.low, high=value.high),)


def _note(run: Ran, lines: Sequence[Line], at: int) -> Cell | str:
    """Notes on one run: why it does not count, that a level changed here, what differs."""
    if run.left_out:
        return outcome("left out", "warn", run.left_out)
    said = [
        f"◀{f' {line.name}' if len(lines) > 1 else ''} {change_text(line, move)} ({change_span(line, move)})"
        for line in lines
        for move in line.moves
        if move.at == at
    ]
    tone: Tone = ""
    return outcome("; ".join(said), tone, run.differs) if said else run.differs


def _method(found: History) -> Section:
    blocks = tuple(Text(text=each, quiet=True) for each in captions(found))
    return Section(title="What was tested", blocks=blocks, name="method")
