"""What every report says of single trials: how they ended, what failed, what was tried, their files."""

from __future__ import annotations

from collections.abc import Iterator

from proctor.model.document import Cell, Column, Entries, Entry, Fold, Section, Table, Text, Tone, outcome
from proctor.model.outcome import Blame, Outcome
from proctor.model.place import attempt_folder, trial_folder
from proctor.model.plan import PlannedTrial
from proctor.quantity import show
from proctor.runfolder.read import RunData, TrialResult
from proctor.runfolder.result import artifact_paths
from proctor.verdicts.run.survey import MOST_FILES, survey

BRIEF = 5
"""Failures and attempts in a terminal."""


def outcome_cell(trial: TrialResult) -> Cell:
    """How a trial ended, and after how many attempts."""
    tries = f"{len(trial.attempts)} attempts" if len(trial.attempts) > 1 else ""
    return outcome_of(trial.outcome, tries)


def outcome_of(ended: Outcome | None, note: str = "") -> Cell:
    """An outcome as a badge. Red is for what somebody has to repair, or an agent did not do."""
    if ended is None:
        return outcome("no result", "", note)
    tone: Tone = "bad" if ended.blame in {Blame.AGENT, Blame.TASK, Blame.AUTHOR} else "warn"
    known: dict[Outcome, Tone] = {Outcome.PASSED: "good", Outcome.PARTIAL: "warn"}
    return outcome(ended.value.replace("_", " "), known.get(ended, tone), note)


def result_of(planned: PlannedTrial, number: int) -> str:
    """Where the result of an attempt is, inside the run folder."""
    folder = attempt_folder(planned, number) if planned.kind == "task" else trial_folder(planned)
    return f"{folder}/result.json"


def linked(text: str, trial: TrialResult) -> Cell:
    """A text that leads to the trial's result, if there is one."""
    return Cell(text=text, href=result_of(trial.planned, trial.counted.number) if trial.counted else "")


def failures(data: RunData) -> Section:
    """What went wrong, alike failures together."""
    seen = survey(data)
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
                mark=outcome_of(trials[0].outcome, f"{alike.count}×"),
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


def attempts(data: RunData) -> Section:
    """Attempts that do not count, and why: they are kept, never hidden."""
    seen = survey(data)
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


def files(data: RunData) -> Section:
    """Profiles and other files, linked beside this page."""
    seen = survey(data)
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
        size = Cell(text=show("size_bytes", artifact.size_bytes), value=artifact.size_bytes)
        yield Cell(text=artifact.name, href=path), trial.planned.label, size
