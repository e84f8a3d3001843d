"""The trials of a published run: how each ended, what it earned, why it failed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from proctor.model.document import Document, Entries, Entry, Section
from proctor.model.outcome import Outcome
from proctor.model.record import AttemptRecord
from proctor.quantity import metric_title, number, plural, show
from proctor.render import trial_logs
from proctor.render.results.cells import outcome_cell, reward_cell, time_cell
from proctor.runfolder.read import RunData, TrialResult
from proctor.verdicts.rollouts.evidence import changes_text

LOG_LINES = 40
LOG_BYTES = 8_000
_UNSEEN = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[^\t\n\x20-\x7e\xa0-\U0010ffff]")
_SPENT = ("cost_usd", "prompt_tokens", "completion_tokens", "requests")


def trials_document(data: RunData, trials: Sequence[TrialResult], number: int, pages: int) -> Document:
    """One page of trials, in plan order."""
    which = f", page {number + 1} of {pages}" if pages > 1 else ""
    folder = Path(data.info.folder) if data.info.folder else None
    entries = tuple(_entry(trial, folder) for trial in trials)
    return Document(
        kind="trials",
        title=f"Trials of {data.info.name}{which}",
        headline=f"{plural(len(trials), 'trial')} of run {data.info.id}, in planned order.",
        sections=(Section(title="Trials", blocks=(Entries(entries=entries),), name="trials"),),
        folder=data.info.folder,
        footer="Logs are cut to their last lines; the run folder has all of them.",
    )


def _entry(trial: TrialResult, folder: Path | None) -> Entry:
    record = trial.counted
    log = _log(trial, folder) if folder and record and record.outcome is not Outcome.PASSED else ""
    return Entry(
        title=trial.planned.label,
        mark=outcome_cell(trial),
        text="; ".join(_said(trial, record)) if record else "",
        notes=tuple(_notes(record)) if record else (),
        code=log,
        folded="End of its log" if log else "",
        name=f"t{trial.planned.index}",
    )


def _said(trial: TrialResult, record: AttemptRecord) -> Iterator[str]:
    if trial.planned.kind == "task":
        yield f"reward {reward_cell(record.reward).text}"
    elif (median := trial.stat("duration_s", "p50")) is not None:
        yield f"median {show('duration_s', median)}"
    yield f"took {time_cell(record.took_s).text}"
    for name in _SPENT:
        if used := number(record.usage.get(name)):
            yield f"{metric_title(name)} {show(name, used)}"


def _notes(record: AttemptRecord) -> Iterator[str]:
    if record.failure:
        yield f"{record.failure.phase}: {record.failure.type}: {record.failure.message}"[:1000]
    yield from (each[:500] for each in record.notes)
    yield from (each[:1000] for each in changes_text(record))


def _log(trial: TrialResult, folder: Path) -> str:
    assert trial.counted is not None
    logs = trial_logs.logs_in(trial_logs.folder_of(folder, trial.planned, trial.counted.number))
    if not logs:
        return ""
    end = b"".join(trial_logs.read(logs[-1], tail=LOG_LINES))[-LOG_BYTES:]
    return _UNSEEN.sub("", end.decode("utf-8", "replace")).strip()
