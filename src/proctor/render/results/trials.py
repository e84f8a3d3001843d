"""What every report says of single trials: what failed, what was tried again, and their files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from proctor.model.document import Cell, Column, Entries, Entry, Fold, Section, Table, Text
from proctor.render.results.cells import amount_cell, linked, outcome_cell, outcome_of
from proctor.runfolder.read import RunData, TrialResult
from proctor.runfolder.result import artifact_paths
from proctor.verdicts.run.survey import MOST_FILES, Survey

BRIEF = 5
"""Failures and attempts in a terminal."""


def failures(data: RunData, seen: Survey) -> Section:
    """What went wrong, alike failures together."""
    entries = []
    for (_, phase, kind, message), alike in seen.failures.items():
        trials = [data.trials[place] for place in alike.first]
        labels = [seen.group_of(place).label(trial) for place, trial in zip(alike.first, trials, strict=True)]
        if len(seen.groups) > 1 and data.info.kind == "experiment":
            labels = [
                f"{seen.group_of(place).subject}: {each}"
                for place, each in zip(alike.first, labels, strict=True)
            ]
        items = [linked(label, trial) for label, trial in zip(labels, trials, strict=True)]
        more = alike.count - len(items)
        record = trials[0].counted
        traceback = record.failure.traceback if record and record.failure else ""
        entries.append(
            Entry(
                title=f"{kind}: {message}" if kind else "no details were recorded",
                mark=replace(outcome_cell(trials[0]), note=f"{alike.count}×"),
                text=f"in {phase}" if phase else "",
                items=(*items, *([f"and {more} more"] if more else [])),
                code=traceback,
                folded="Traceback",
            )
        )
    others = len(seen.other_failures)
    said = f"{others} other kinds of failure are in series.jsonl." if others else ""
    blocks = (Entries(entries=tuple(entries), brief=BRIEF),) if entries else ()
    aside = data.info.kind == "task"  # reasons and logs are named before
    return Section(title="Failures", blocks=blocks, note=said, name="failures", aside=aside)


def attempts(data: RunData, seen: Survey) -> Section:
    """Attempts that do not count, and why: they are kept, never hidden."""
    rows = []
    for place, record in seen.uncounted:
        planned = data.trials[place].planned
        said = f"{record.failure.type}: {record.failure.message}" if record.failure else ""
        number = Cell(text=str(record.number), value=record.number)
        rows.append((planned.label, number, outcome_of(record.outcome), said))
    table = Table(
        columns=(Column("trial"), Column("attempt", "number"), Column("outcome"), Column("why", "prose")),
        rows=tuple(rows),
        brief=BRIEF,
        total=seen.attempts - seen.finished,
        rest="series.jsonl lists all of them",
    )
    return Section(title="Attempts that do not count", blocks=(table,) if rows else (), name="attempts")


def files(data: RunData, seen: Survey) -> Section:
    """Profiles and other files, linked beside this page."""
    rows = [row for place in seen.files for row in _files(data.trials[place])]
    if not rows:
        return Section()
    columns = (Column("file"), Column("trial"), Column("size", "number"))
    table = Table(columns=columns, rows=tuple(rows[:MOST_FILES]))
    more = (Text(text="More files are under trials/.", quiet=True),) if len(rows) > MOST_FILES else ()
    fold = Fold(title="Profiles and other artifacts", blocks=(table, *more))
    return Section(title="Files", blocks=(fold,), name="files", aside=True)


def _files(trial: TrialResult) -> Iterator[tuple[Cell | str, ...]]:
    record = trial.counted
    if record is None:
        return
    for artifact, path in zip(record.artifacts, artifact_paths(trial.planned, record), strict=True):
        size = amount_cell("size_bytes", artifact.size_bytes)
        yield Cell(text=artifact.name, href=path), trial.planned.label, size
