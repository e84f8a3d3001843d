"""`proctor plan`: what a spec would run, how many trials, and how long that took before."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from proctor.cli.spec_options import SpecRequest, show_spec, takes_spec
from proctor.errors import Exit

if TYPE_CHECKING:
    from proctor.model.plan import Plan, PlannedTrial
    from proctor.model.spec import ExperimentBody, Spec, TaskEntry
    from proctor.plan.estimate import Estimate

SHOWN = 40


@click.command("plan")
@takes_spec
@click.option("--all", "everything", is_flag=True, help=f"List every trial, not only the first {SHOWN}.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole plan and the resolved spec as JSON.")
def command(request: SpecRequest, everything: bool, as_json: bool) -> int:
    """Print what a SPEC file, or tasks without one, would run. Nothing is executed and no run is made.

    Exit code 2 when the run would not start: an agent without its model, a service that does not answer or
    does not know the model. A program inside an image is looked for when the run starts.

    The time is estimated from earlier runs of the same experiments or tasks in the store, when there are any.
    """
    from proctor.plan.estimate import estimate
    from proctor.runs.planning import pin_datasets, plan_spec
    from proctor.runs.ready import check_agents, check_gates, check_judges
    from proctor.settings import load_settings
    from proctor.spec.grammar import refuse_unhonoured

    spec = request.spec()
    if request.print_spec:
        show_spec(spec)
        return Exit.OK
    refuse_unhonoured(spec)
    settings = load_settings()
    spec = pin_datasets(spec, settings)
    plan = plan_spec(spec, settings)
    expected = estimate(plan, _history(plan, settings.store_url), parallel=spec.parallel)
    if as_json:
        _print_json(spec, plan, expected)
    else:
        _print_plan(spec, plan, expected, everything=everything)
    check_gates(spec, plan, file=str(request.spec_file or ""))
    if spec.tasks:
        check_agents(spec, plan, settings)
        check_judges(spec, settings)
    return Exit.OK


def _history(plan: Plan, store_url: str) -> Mapping[str, float]:
    """What earlier runs took. A store that cannot be read costs the estimate, not the plan."""
    from proctor.errors import StoreError
    from proctor.store.open import open_store

    try:
        with open_store(store_url, create=False) as store:
            return store.history({trial.subject for trial in plan.trials})
    except StoreError as error:
        print(f"proctor: no estimate: {error}", file=sys.stderr)
        return {}


def _print_json(spec: Spec, plan: Plan, expected: Estimate) -> None:
    from msgspec.structs import asdict

    from proctor.cli.table import print_json

    print_json(
        {
            "name": spec.name,
            "kind": spec.kind,
            "digest": plan.digest,
            "count": len(plan),
            "estimate": expected.to_mapping(),
            "warnings": list(plan.warnings),
            "resolved": spec.to_mapping(),
            "trials": [{"label": trial.label, **asdict(trial)} for trial in plan.trials],
        }
    )


def _print_plan(spec: Spec, plan: Plan, expected: Estimate, *, everything: bool) -> None:
    from proctor.cli.table import bold, print_table, say

    print(bold(f"{spec.name}: {_counted(len(plan), 'trial')}, seed {spec.seed}"))
    for body in spec.experiments:
        say(f"  {body.experiment}: {_measuring(body)}", indent="  ")
    for entry in spec.tasks:
        say(f"  {entry.path}: {_counted(entry.rollouts, 'rollout')} by {_by(entry)}", indent="  ")
    print()
    shown = plan.trials if everything else plan.trials[:SHOWN]
    for line in _fixed(plan):
        say(line, indent="  ")
    print_table(("#", "trial", "key"), _rows(shown, plan), right=(0,), spare=(2,))
    if len(shown) < len(plan):
        print(f"… and {len(plan) - len(shown)} more; --all lists them")
    print()
    for warning in plan.warnings:
        say(f"Note: {warning}.", indent="  ")
    say(_expectation(spec, expected))


def _rows(trials: Sequence[PlannedTrial], plan: Plan) -> list[tuple[Any, ...]]:
    from msgspec.structs import replace

    from proctor.model.arms import arm_of, named

    rows = []
    varying, names = _varying(plan), named(map(arm_of, plan.trials))  # the swept variables stand beside
    alone = len({trial.subject for trial in trials}) == 1
    for trial in trials:
        shown = {name: value for name, value in _values(trial).items() if name in varying[trial.body]}
        if trial.kind == "experiment":
            inside = ", ".join(f"{name}={value}" for name, value in shown.items())
            label = inside if inside and alone else replace(trial, params=shown).label
        else:
            arm = arm_of(trial)
            who = trial.label.replace(f"× {arm.name}", f"× {names[arm]}", 1)
            label = "  ".join((who, *(f"{name}={value}" for name, value in shown.items())))
        rows.append((trial.index + 1, label, trial.key[:12]))
    return rows


def _fixed(plan: Plan) -> list[str]:
    """What is the same in all trials of a body, once."""
    varying = _varying(plan)
    first = {trial.body: trial for trial in reversed(plan.trials)}
    found = []
    for body in sorted(first):
        trial = first[body]
        inside = ", ".join(f"{k}={v}" for k, v in _values(trial).items() if k not in varying[body])
        if inside:
            subject = f"{trial.subject}: " if len(first) > 1 else ""
            found.append(f"fixed: {subject}{inside}")
    return found


def _values(trial: PlannedTrial) -> Mapping[str, Any]:
    """What a sweep can vary: parameters of an experiment, environment variables of a task."""
    from proctor.model.secret import shown

    values = trial.params if trial.kind == "experiment" else trial.overrides.get("environment_variables", {})
    return {name: shown(value) for name, value in values.items()}


def _varying(plan: Plan) -> dict[int, frozenset[str]]:
    """For each body what differs between its trials; the rest would only widen the table."""
    first: dict[int, Mapping[str, Any]] = {}
    varying: dict[int, set[str]] = {}
    for trial in plan.trials:
        values = _values(trial)
        start = first.setdefault(trial.body, values)
        names = varying.setdefault(trial.body, set())
        names.update(name for name, value in values.items() if value != start.get(name))
    return {body: frozenset(names) for body, names in varying.items()}


def _measuring(body: ExperimentBody) -> str:
    each = body.iterations
    warmup = f"{each.warmup} warm-up + " if each.warmup else ""
    until = f" (at most {each.max_time_s:g} s)" if each.measured == "auto" else ""
    instruments = ", ".join(instrument.name for instrument in body.instrumentation) or "no instrument"
    return f"{warmup}{each.measured} measured at each point{until}, with {instruments}"


def _by(entry: TaskEntry) -> str:
    models = ", ".join(model or "no model" for model in entry.models)
    agents = ", ".join(entry.agents)
    return agents if entry.models == (None,) else f"{agents} with {models}"


def _expectation(spec: Spec, expected: Estimate) -> str:
    from proctor.cli.table import seconds

    if not expected.timed:
        return "Estimate: none, because the store has no earlier run of these."
    beside = f", {spec.parallel} at a time" if spec.parallel > 1 else ""
    if expected.complete:
        return f"Estimate: about {seconds(expected.wall_s)}{beside}, based on earlier runs."
    unknown = _counted(expected.trials - expected.timed, "trial")
    return (
        f"Estimate: {seconds(expected.wall_s)}{beside} for {_counted(expected.timed, 'trial')}, "
        f"plus {unknown} that never ran before: {', '.join(expected.untimed)}."
    )


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
