"""Run the agents of a stored run again, answered from their tapes: a run of its own, without any provider."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from proctor.errors import TaskError, UsageError
from proctor.model.plan import Plan, PlannedTrial
from proctor.model.spec import Spec
from proctor.runfolder.read import RunData
from proctor.runs.inputs import RunInputs
from proctor.runs.models import counted_records, identity, recorded_tapes
from proctor.runs.planning import pin_datasets, plan_spec
from proctor.runs.process_resources import Resources
from proctor.runs.running import ReadyRun, create
from proctor.settings import Settings
from proctor.spec.load import from_mapping
from proctor.store.store import Store

SUFFIX = ".replay"
"""What the name of the new run adds to the name of the first."""


def create_replay(
    run_id: str, resources: Resources, *, trial: PlannedTrial | None = None, recorded_speed: bool = False
) -> ReadyRun:
    """A run of the trials that have a tape, or of one of them, with tasks and agents as they are now.

    Where the project is not on this machine they are as they were: the store and the blobs have them.
    """
    settings = resources.settings
    with resources.stores.borrow() as store:
        info = store.run(run_id)
        planned = Plan(trials=tuple(store.planned(info.id)))
        inputs = RunInputs(resources.blobs, settings.cache_dir, store.inputs.of(info.id))
    if info.kind != "task":
        raise UsageError(f"run {info.id} measured experiments; only runs of agents have tapes")
    spec = from_mapping(info.resolved, file=f"run {info.id}")
    spec = replace(
        spec,
        name=f"{info.name}{SUFFIX}",
        notes=f"replays the tapes of run {info.id}; no provider was asked",
        tags=tuple(dict.fromkeys((*info.tags, "replay"))),
        gates=(),
        tape=info.id,
        tape_speed="recorded" if recorded_speed else "full",
    )
    spec, plan = _here(spec, planned, inputs, settings)
    taped = {name for name, tapes in resources.stores.now(recorded_tapes, info.id).items() if tapes}
    kept = [
        each
        for each in plan.trials
        if identity(each) in taped and (trial is None or identity(each) == identity(trial))
    ]
    if not kept:
        what = (
            f"the trial {trial.label} of run {info.id} has" if trial else f"the trials of run {info.id} have"
        )
        raise UsageError(f"{what} no tape: its agent did not call models through the gateway")
    trials = tuple(structs.replace(each, index=at) for at, each in enumerate(kept))
    written = {"replays": info.id, "spec": dict(info.spec)}
    return create(spec, written, resources, plan=replace(plan, trials=trials))


def _here(spec: Spec, planned: Plan, inputs: RunInputs, settings: Settings) -> tuple[Spec, Plan]:
    """What there is to replay: as the project has it now or, where it is not, as it was stored."""
    try:
        pinned = pin_datasets(spec, settings)
        return pinned, plan_spec(pinned, settings)
    except (UsageError, TaskError):
        if not inputs.stored or Path(spec.base_dir).is_dir():
            raise
    return replace(inputs.spec(spec, planned), output_dir=None), planned


@dataclass(frozen=True, slots=True)
class Repeated:
    """How a trial ended the first time, and in the replay."""

    label: str
    before: float | None
    after: float | None
    divergence: str
    """The first step at which the agent left its tape, with the difference; empty when it did not."""

    @property
    def same(self) -> bool:
        """Whether it came to the same reward without leaving the tape."""
        return not self.divergence and self.before == self.after


def repeated(store: Store, first: str, data: RunData) -> Sequence[Repeated]:
    """Every trial of a replay beside what it was."""
    before = counted_records(store, first)
    found = []
    for trial in data.trials:
        record = trial.counted
        if record is None:
            continue
        diverged = record.failure is not None and record.failure.type == "ReplayDiverged"
        found.append(
            Repeated(
                label=trial.planned.label,
                before=before[identity(trial.planned)].reward,
                after=record.reward,
                divergence=record.failure.message if diverged and record.failure else "",
            )
        )
    return found
