"""From two sides and a spec to an ordinary plan: pairs side by side, task after task, round after round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from proctor.analysis.sequential import fewest_pairs
from proctor.errors import UsageError
from proctor.model.arms import arm_of, swept_variables
from proctor.model.canonical import derive_seed
from proctor.model.outcome import reward_of
from proctor.model.plan import Plan, PlannedTrial
from proctor.model.run import Execution, written_race
from proctor.model.spec import Spec
from proctor.runfolder.read import RunData
from proctor.runs.planning import pin_datasets, plan_spec
from proctor.runs.process_resources import Resources
from proctor.runs.race.sides import Side, check_limits, entry_of, read_side, secrets_of
from proctor.runs.running import ReadyRun, create
from proctor.verdicts.race.design import RaceDesign, pairs_of

_OF_A_SIDE = {"agent_options", "environment_variables", "overrides", "apply_overrides"}
"""What sides may differ in; whatever else a trial changes about its task must be the same for both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceRequest:
    """What the command is asked for."""

    baseline: str
    candidate: str
    spec: Spec
    written: Mapping[str, Any]
    rollouts: int | None = None
    error: float
    margin: float
    stop_when_no_worse: bool = False
    granted: tuple[str, ...] = ()
    """Variables of this machine that specs may use."""
    name: str | None = None
    change: tuple[Callable[[Spec], Spec], ...] = ()
    """What options of the command change about both sides."""


def create_race(request: RaceRequest, resources: Resources) -> ReadyRun:
    """A run with every pair of the fixed design; the race runs as many of them as it needs."""
    _check_spec(request.spec)
    before = read_side(request.baseline, "baseline", resources, granted=request.granted)
    after = read_side(request.candidate, "candidate", resources, granted=request.granted)
    settings = resources.settings
    spec = pin_datasets(_joined(request, before, after), settings)
    plan = _in_pairs(plan_spec(spec, settings), spec.seed)
    design = RaceDesign(
        baseline=before.label if before.label != after.label else request.baseline,
        candidate=after.label if before.label != after.label else request.candidate,
        error=request.error,
        margin=request.margin,
        stop_when_no_worse=request.stop_when_no_worse,
    )
    if before.run:
        design, plan = _against_run(before, design, plan, resources)
    _check_pairs(design, plan)
    notes = ("the spec's gates are not applied: a race has a verdict of its own",) * bool(request.spec.gates)
    return create(
        spec,
        written_race(design.to_mapping(), request.written),
        resources,
        plan=replace(plan, warnings=(*plan.warnings, *notes)),
        execution=Execution.RACE,
    )


def _check_spec(spec: Spec) -> None:
    if not spec.tasks:
        raise UsageError(
            f"{spec.name}: a race is for tasks; for experiments: 'proctor ab {spec.name} --until-settled'"
        )
    for at, entry in enumerate(spec.tasks):
        if entry.sweep:
            place = spec.place("tasks", at, "sweep") or f"{spec.name}: tasks.{at}"
            raise UsageError(f"{place}: a race compares two sides at one point, so 'sweep' is not possible")


def _joined(request: RaceRequest, before: Side, after: Side) -> Spec:
    """One spec with each entry twice, for the baseline and the candidate; once if the baseline is stored."""
    spec = request.spec
    check_limits(before, "baseline", spec)
    check_limits(after, "candidate", spec)
    entries = []
    for entry in spec.tasks:
        asked = replace(entry, rollouts=request.rollouts) if request.rollouts else entry
        if not before.run:
            entries.append(entry_of(before, "baseline", asked))
        entries.append(entry_of(after, "candidate", asked))
        if len(entries) > 1 and entries[-1] == entries[-2] and not before.run:
            raise UsageError(
                f"baseline and candidate are the same: {before.label}; 'proctor aa' measures the noise of "
                "one side against itself"
            )
    for change in request.change:
        spec = change(spec)
    return replace(
        spec,
        name=request.name or f"race-{spec.name}",
        tasks=tuple(entries),
        gates=(),
        secrets=secrets_of(spec, (before, after)),
    )


def _in_pairs(plan: Plan, seed: int) -> Plan:
    """Round by round; in each the tasks in an order drawn from the seed, both sides next to each other.

    A race that stops in its first round has then seen a random part of the tasks.
    """

    def place(trial: PlannedTrial) -> tuple[int, int, str, int]:
        drawn = derive_seed(seed, "race", trial.subject_digest, trial.rollout)
        return trial.rollout, drawn, trial.subject_digest, trial.body

    return _numbered(plan, sorted(plan.trials, key=place))


def _numbered(plan: Plan, trials: Sequence[PlannedTrial]) -> Plan:
    return replace(plan, trials=tuple(structs.replace(trial, index=at) for at, trial in enumerate(trials)))


def _against_run(
    before: Side, design: RaceDesign, plan: Plan, resources: Resources
) -> tuple[RaceDesign, Plan]:
    """With the rewards of a stored run, and only rollouts that have one of them to be compared with."""
    with resources.stores.borrow() as store:
        data = RunData.from_store(store, before.run, brief=True)
    swept = swept_variables(trial.planned for trial in data.trials)
    arms = {arm_of(trial.planned, swept) for trial in data.trials}
    if data.info.kind != "task" or len(arms) != 1:
        raise UsageError(
            f"baseline {before.label}: a race needs the rollouts of one agent with one model, and this run "
            f"has {'experiments' if data.info.kind != 'task' else f'{len(arms)} of them'}"
        )
    stored: dict[str, list[float]] = {}
    for trial in data.trials:
        record = trial.counted
        if record and (reward := reward_of(record.outcome, record.reward)) is not None:
            stored.setdefault(trial.planned.subject_digest, []).append(reward)
    rewards = {digest: tuple(found) for digest, found in stored.items()}
    used: Counter[str] = Counter()
    kept = []
    for planned in plan.trials:
        used[planned.subject_digest] += 1
        if used[planned.subject_digest] <= len(rewards.get(planned.subject_digest, ())):
            kept.append(planned)
    if not kept:
        raise UsageError(
            f"baseline {before.label}: it has no scored rollout of any task of this spec, as the tasks are "
            "now; a task that was changed is another task"
        )
    notes = [*plan.warnings, *_differences(data, kept)]
    if left := len(plan) - len(kept):
        notes.append(f"{left} rollouts are not run: the stored baseline has no rollout to compare them with")
    return (
        replace(design, stored_run=before.run, stored=rewards),
        _numbered(replace(plan, warnings=tuple(notes)), kept),
    )


def _differences(data: RunData, kept: Sequence[PlannedTrial]) -> list[str]:
    """Limits that the stored rollouts had and these will not have, or the other way."""
    known = {trial.planned.subject_digest: trial.planned.overrides for trial in data.trials}
    names = {
        name
        for trial in kept
        for name in trial.overrides.keys() | known[trial.subject_digest].keys()
        if trial.overrides.get(name) != known[trial.subject_digest].get(name)
    }
    found = sorted(names - _OF_A_SIDE)
    said = ", ".join(found)
    return [f"the stored baseline ran with other settings than the candidate: {said}"] if found else []


def _check_pairs(design: RaceDesign, plan: Plan) -> None:
    pairs, needed = len(pairs_of(plan.trials, design)), fewest_pairs(design.error)
    if pairs < needed:
        raise UsageError(
            f"{pairs} pair{'s' * (pairs != 1)} cannot prove anything: with an error of "
            f"{100 * design.error:g} % a race needs at least {needed}. Raise the rollouts (-n), or add tasks"
        )
