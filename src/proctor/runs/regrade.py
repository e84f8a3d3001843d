"""Grade the stored workspaces of a run again, as a run of its own: the first result is never touched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from proctor.errors import UsageError
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.run import Execution, RunInfo, written_regrade
from proctor.model.spec import Spec
from proctor.runs.models import counted_records, identity
from proctor.runs.process_resources import Resources
from proctor.runs.running import ReadyRun, create, refuse_imported
from proctor.spec.load import from_mapping
from proctor.store.blobs import local_file
from proctor.store.store import Store
from proctor.trial.regrade import STATE, EarlierAttempt

SUFFIX = ".eval"
"""What the name of the new run adds to the name of the first."""


def create_regrade(run_id: str, resources: Resources) -> ReadyRun:
    """A run that judges what the agents of an earlier one left, with the tasks as they are now."""
    with resources.stores.borrow() as store:
        info = original(store, store.run(run_id))
    if info.kind != "task":
        raise UsageError(
            f"run {info.id} measured experiments; only runs of agents on tasks can be graded again"
        )
    refuse_imported(info)
    spec = from_mapping(info.resolved, file=f"run {info.id}")
    said = f"grades the workspaces of run {info.id} again; no agent ran"
    spec = replace(
        spec,
        name=f"{info.name}{SUFFIX}",
        notes=f"{said}. {info.notes}".rstrip(". ") + ".",
        tags=tuple(dict.fromkeys((*info.tags, "eval"))),
    )
    spec = _without_judges(spec, info.id)
    written = written_regrade(info.id, info.spec)
    return create(spec, written, resources, execution=Execution.REGRADE)


def original(store: Store, info: RunInfo) -> RunInfo:
    """A run that graded or judged again stored no workspaces; the one it began with did."""
    while info.graded_run:
        info = store.run(info.graded_run)
    return info


def _without_judges(spec: Spec, run_id: str) -> Spec:
    """Tests alone grade again; a judge has a run of its own."""
    if any(entry.judge and entry.judge.reward == "judge" for entry in spec.tasks):
        raise UsageError(
            f"the rewards of run {run_id} are its judge's, which tests cannot give again: use --judge"
        )
    return replace(spec, tasks=tuple(replace(entry, judge=None) for entry in spec.tasks))


class Workspaces:
    """The stored workspaces of a run, found by what a trial was rather than by its key.

    A key changes when the task does, and people grade again because they fixed a task.
    """

    def __init__(self, run_id: str, resources: Resources) -> None:
        self.run_id = run_id
        self.blobs = resources.blobs
        self.scratch = resources.settings.cache_dir / "blobs"
        self._records = resources.stores.now(counted_records, run_id)

    def of(self, trial: PlannedTrial) -> EarlierAttempt | str:
        """What to judge for a trial, or why there is nothing."""
        record = self._records.get(identity(trial))
        if record is None:
            return f"run {self.run_id} has no result for this trial"
        state = self._state(record)
        if state is None:
            ended = record.outcome.value.replace("_", " ")
            return f"run {self.run_id} stored no workspace for this trial, which ended as {ended}"
        return EarlierAttempt(self.run_id, record, state)

    def _state(self, record: AttemptRecord) -> Path | None:
        found = next((each for each in record.artifacts if each.name == STATE), None)
        if found is None or not self.blobs.has(found.digest):
            return None
        return local_file(self.blobs, found.digest, self.scratch)
