"""The first page of a site: its series, comparisons and runs, with a search over their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from proctor.model.document import Cell, Column, Document, Section, Table, Tone, filled, number, outcome
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.quantity import MISSING, duration, moment, plural
from proctor.render.publish.relink import run_page, series_page

SEARCH = (
    "const t=[...document.querySelectorAll('tbody tr')],b=document.createElement('input'),"
    "l=document.createElement('label');b.type='search';l.className='find';l.append('Find a name ',b);"
    "document.querySelector('header').append(l);"
    "b.oninput=()=>{const w=b.value.toLowerCase().split(/\\s+/);"
    "t.forEach(r=>r.hidden=!w.every(x=>r.textContent.toLowerCase().includes(x)))}"
)
"""Hides the rows that do not have every word. Without scripts the page is whole, and has no field."""


class Seen(NamedTuple):
    """A series in one row of the index."""

    name: str
    kind: str
    runs: int
    newest: str
    """The id of its newest run."""
    at: float
    changes: int | None
    """How many lasting changes it has; None when it is too short to tell."""


class Compared(NamedTuple):
    """A comparison in one row of the index."""

    title: str
    page: str
    verdict: str
    tone: Tone
    sentence: str


def index_document(
    title: str, runs: Sequence[RunInfo], series: Sequence[Seen], compared: Sequence[Compared]
) -> Document:
    """Newest first."""
    many = f"{plural(len(runs), 'run')} in {len(series)} series"
    return Document(
        kind="site",
        title=title,
        headline=f"{many}, the newest of {moment(runs[0].created_at)}." if runs else "No runs.",
        sections=filled([_series(series), _compared(compared), _runs(runs)]),
        footer="Written by 'proctor publish'.",
    )


def _series(series: Sequence[Seen]) -> Section:
    rows = tuple(
        (
            Cell(text=each.name, href=series_page(each.name)),
            each.kind,
            number(str(each.runs), each.runs),
            moment(each.at),
            "too few runs to tell" if each.changes is None else _changes(each.changes),
        )
        for each in series
    )
    columns = (
        Column("series", "prose"),
        Column("of"),
        Column("runs", "number"),
        Column("newest", "whole"),
        Column("lasting changes", "whole"),
    )
    return Section(title="Series", blocks=(Table(columns=columns, rows=rows),) if rows else (), name="series")


def _changes(count: int) -> Cell:
    return outcome(str(count), "warn") if count else Cell(text="none")


def _compared(compared: Sequence[Compared]) -> Section:
    rows = tuple(
        (Cell(text=each.title, href=each.page), outcome(each.verdict, each.tone), each.sentence)
        for each in compared
    )
    columns = (Column("comparison", "prose"), Column("verdict", "whole"), Column("", "prose"))
    table = Table(columns=columns, rows=rows)
    return Section(title="Comparisons", blocks=(table,) if rows else (), name="comparisons")


def _runs(runs: Sequence[RunInfo]) -> Section:
    rows = tuple(
        (
            Cell(text=run.id, code=True, href=run_page(run.id)),
            Cell(text=run.name, href=series_page(run.name)),
            _status(run),
            number(f"{run.done}/{run.total}", run.done),
            _outcomes(run.counts),
            moment(run.started_at or run.created_at),
            _took(run),
        )
        for run in runs
    )
    columns = (
        Column("run", "whole"),
        Column("series", "prose"),
        Column("status", "whole"),
        Column("trials", "number"),
        Column("outcomes", "prose"),
        Column("started", "whole"),
        Column("took", "number"),
    )
    return Section(title="Runs", blocks=(Table(columns=columns, rows=rows),) if rows else (), name="runs")


def _status(run: RunInfo) -> Cell:
    return Cell(text="done") if run.status is RunStatus.DONE else outcome(run.status.value, "warn")


def _outcomes(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in ordered) or MISSING


def _took(run: RunInfo) -> Cell:
    if run.started_at is None or run.finished_at is None:
        return Cell(text=MISSING)
    return number(duration(run.finished_at - run.started_at), run.finished_at - run.started_at)
