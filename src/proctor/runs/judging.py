"""Judge the stored trials of a run again, as a run of its own: neither agents nor tests run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from proctor.errors import UsageError
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.run import Execution, written_judging
from proctor.model.spec import JudgeSpec, Spec, TaskEntry
from proctor.runs.models import counted_records, identity
from proctor.runs.process_resources import Resources
from proctor.runs.regrade import original
from proctor.runs.running import ReadyRun, create, refuse_imported
from proctor.spec.load import from_mapping
from proctor.trial.judge.stored import StoredAttempt, by_tests
from proctor.trial.judge.work import LOG, MOST_BYTES

SUFFIX = ".judged"
"""What the name of the new run adds to the name of the first."""


def create_judging(
    run_id: str, resources: Resources, model: str = "", changes: Mapping[str, Any] | None = None
) -> ReadyRun:
    """A run in which a judge scores what the agents of an earlier one left.

    `model` and `changes` go before what the spec says of its judge.
    """
    with resources.stores.borrow() as store:
        info = original(store, store.run(run_id))
    if info.kind != "task":
        raise UsageError(f"run {info.id} measured experiments; only work of agents on tasks can be judged")
    refuse_imported(info)
    spec = from_mapping(info.resolved, file=f"run {info.id}")
    said = f"judges the work of run {info.id}; neither agents nor tests ran"
    spec = replace(
        _with_judges(spec, model, changes or {}, info.id),
        name=f"{info.name}{SUFFIX}",
        notes=f"{said}. {info.notes}".rstrip(". ") + ".",
        tags=tuple(dict.fromkeys((*info.tags, "judged"))),
        tape=None,
    )
    written = written_judging(info.id, info.spec)
    return create(spec, written, resources, execution=Execution.JUDGE)


def _with_judges(spec: Spec, model: str, changes: Mapping[str, Any], run_id: str) -> Spec:
    given = {name: value for name, value in changes.items() if value is not None}

    def judged(entry: TaskEntry) -> TaskEntry:
        if entry.judge is None and not model:
            raise UsageError(f"the spec of run {run_id} names no judge: give its model with --judge MODEL")
        judge = entry.judge or JudgeSpec(model=model)
        return replace(entry, judge=replace(judge, model=model or judge.model, **given))

    return replace(spec, tasks=tuple(map(judged, spec.tasks)))


class StoredTrials:
    """The results of a run with their files, found by what a trial was rather than by its key."""

    def __init__(self, run_id: str, resources: Resources) -> None:
        self.run_id = run_id
        self.blobs = resources.blobs
        self._records = resources.stores.now(counted_records, run_id)

    def of(self, trial: PlannedTrial) -> StoredAttempt | str:
        """What to judge for a trial, or why there is nothing."""
        record = self._records.get(identity(trial))
        if record is None:
            return f"run {self.run_id} has no result for this trial"
        outcome, _ = by_tests(record)
        if not outcome.scored:
            return f"run {self.run_id} has no work to judge for this trial: {outcome.value.replace('_', ' ')}"
        return StoredAttempt(self.run_id, record, lambda name: self._read(record, name))

    def _read(self, record: AttemptRecord, name: str) -> bytes:
        found = next((each for each in record.artifacts if each.name == name), None)
        if found is None or not self.blobs.has(found.digest):
            return b""
        with self.blobs.open(found.digest) as file:
            if name == LOG and found.size_bytes > MOST_BYTES:
                file.seek(found.size_bytes - MOST_BYTES)
            return bytes(file.read(MOST_BYTES))
