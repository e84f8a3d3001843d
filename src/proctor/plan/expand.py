"""Expand a spec into trials. Pure: same spec, same experiments or tasks, same keys on any machine.

What enters a trial's key, besides what `trial_key` names: everything in `overrides`, which holds what the
spec changes about how the subject is run. For an experiment that is how it is measured (iterations,
instruments, isolation, loops, gc) where it differs from the default; for a task its environment variables,
overrides, agent options, sandbox limits, the names in `pass_env`, what an attempt may spend on models and a
judge whose score is the reward; for both the time limit. Of a secret its name enters the key, never its
value. Paths, names, tags, notes, the engine, the sandbox's back end, `parallel`, `retries`, the budgets of
the run, its tape and a judge beside the tests never enter it.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from msgspec.structs import replace

from proctor.errors import NotFoundError, SpecError, UsageError
from proctor.model.canonical import canonical_json, derive_seed
from proctor.model.plan import Plan, PlannedTrial, trial_key
from proctor.model.spec import ExperimentBody, Spec, TaskEntry
from proctor.model.subject import ExperimentInfo
from proctor.spec.node import nearest
from proctor.spec.sweep import expand_points

MAX_TRIALS = 100_000
MAX_PLAN_BYTES = 64 << 20
"""Of parameters and overrides, which every trial has a copy of in the store and in the run folder."""
_SHOWN_REPEATS = 20
_MEASURING = ("iterations", "instrumentation", "isolation", "loops", "gc")
_ATTEMPT_BUDGETS = ("attempt_budget_usd", "attempt_budget_tokens", "attempt_budget_requests")
_JUDGING = ("model", "rubrics", "votes", "max_bytes")
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class TaskLike(Protocol):
    """What a plan needs to know of a task."""

    @property
    def name(self) -> str:
        """How people call it."""

    @property
    def digest(self) -> str:
        """Changes when its content does."""

    @property
    def path(self) -> Path:
        """Where it is on this machine."""


def expand(
    spec: Spec,
    *,
    experiments: Mapping[str, ExperimentInfo] = _NOTHING,
    tasks: Sequence[Sequence[TaskLike]] = (),
    agent_versions: Sequence[Mapping[str, str]] = (),
) -> Plan:
    """Every trial of a spec, in order. `tasks[i]` are the tasks of entry `i`.

    `agent_versions[i]` are the versions of its agents, which their options may change.
    """
    warnings: list[str] = []
    if spec.kind == "experiment":
        found = _experiment_trials(spec, experiments, warnings)
    else:
        found = _task_trials(spec, tasks, agent_versions, warnings)
    return Plan(trials=_distinct(spec, found, warnings), warnings=tuple(warnings))


def _distinct(spec: Spec, found: Iterator[PlannedTrial], warnings: list[str]) -> tuple[PlannedTrial, ...]:
    """Each key once, numbered in order: a run answers one question once."""
    kept: dict[str, PlannedTrial] = {}
    repeated: Counter[int] = Counter()
    for trial in found:
        if trial.key in kept:
            repeated[trial.body] += 1
        elif len(kept) == MAX_TRIALS:
            raise SpecError(f"the plan has more than {MAX_TRIALS:,} trials; split it, or sweep fewer values")
        else:
            kept[trial.key] = replace(trial, index=len(kept))
    advice = "" if spec.kind == "experiment" else "; for more of the same, raise 'rollouts'"
    for body, count in sorted(repeated.items())[:_SHOWN_REPEATS]:
        entry = spec.place(f"{spec.kind}s", body) or f"{spec.kind}s.{body}"
        warnings.append(f"{entry}: {count} of its trials repeat earlier ones and run only once{advice}")
    if len(repeated) > _SHOWN_REPEATS:
        warnings.append(f"{len(repeated) - _SHOWN_REPEATS} more entries repeat earlier trials")
    return tuple(kept.values())


class _Weight:
    """What the parameters of a plan weigh so far."""

    def __init__(self) -> None:
        self.bytes = 0

    def add(self, size: int) -> None:
        """Refuse a plan that would fill memory and disk with copies of large values."""
        self.bytes += size
        if self.bytes > MAX_PLAN_BYTES:
            raise SpecError(
                f"the parameters of all trials together are larger than {MAX_PLAN_BYTES >> 20} MiB; "
                "put large values into files and pass their names, or plan fewer trials"
            )


def _experiment_trials(
    spec: Spec, experiments: Mapping[str, ExperimentInfo], warnings: list[str]
) -> Iterator[PlannedTrial]:
    weight = _Weight()
    for at, body in enumerate(spec.experiments):
        info = _info(spec, at, body.experiment, experiments)
        found, known = expand_points(body, info, spec.seed, place=partial(_param_place, spec, at))
        warnings += known
        overrides = _measuring(spec, body)
        for params in found:
            written = canonical_json(params)
            weight.add(len(written))
            seed = derive_seed(spec.seed, "experiment", info.slug, written)
            yield PlannedTrial(
                key=trial_key(subject_digest=info.digest, params=params, overrides=overrides, seed=seed),
                index=0,
                kind="experiment",
                subject=info.slug,
                subject_digest=info.digest,
                body=at,
                params=params,
                seed=seed,
                overrides=overrides,
            )


def _info(spec: Spec, at: int, slug: str, experiments: Mapping[str, ExperimentInfo]) -> ExperimentInfo:
    if slug not in experiments:
        place = spec.place("experiments", at, "experiment")
        hint = nearest(slug, experiments) or "; no experiments are known here"
        raise NotFoundError(f"{place}{': ' if place else ''}'{slug}' is not an experiment{hint}")
    return experiments[slug]


def _param_place(spec: Spec, at: int, name: str) -> str:
    """Where a parameter was written, under `sweep` or `params`; where the experiment was, for no name."""
    for key in ("sweep", "params"):
        if name in getattr(spec.experiments[at], key):
            return spec.place("experiments", at, key, name)
    return spec.place("experiments", at, "experiment")


def _measuring(spec: Spec, body: ExperimentBody) -> dict[str, Any]:
    """How the spec has the experiment measured. Defaults stay out: a new setting must not move old keys."""
    asked, usual = asdict(body), asdict(ExperimentBody(experiment=body.experiment))
    changed = {key: asked[key] for key in _MEASURING if asked[key] != usual[key]}
    if "iterations" in changed:
        changed["iterations"] = {
            key: value for key, value in asked["iterations"].items() if value != usual["iterations"][key]
        }
    return _as_stored(changed if spec.timeout_s is None else {**changed, "timeout_s": spec.timeout_s})


def _as_stored(changed: dict[str, Any]) -> dict[str, Any]:
    """With lists for tuples, as a store would give it back."""
    stored: dict[str, Any] = json.loads(canonical_json(changed))
    return stored


def _task_trials(
    spec: Spec,
    tasks: Sequence[Sequence[TaskLike]],
    agent_versions: Sequence[Mapping[str, str]],
    warnings: list[str],
) -> Iterator[PlannedTrial]:
    """First rollouts first: a run stopped early has judged every task and agent about equally often."""
    if len(tasks) != len(spec.tasks):
        raise UsageError(f"the spec has {len(spec.tasks)} task entries, but tasks of {len(tasks)} were read")
    warnings += _namesakes(tasks)
    weight = _Weight()
    overrides = [list(_task_overrides(spec, at, warnings, weight)) for at in range(len(tasks))]
    sizes = [[len(canonical_json(each)) for each in entry] for entry in overrides]
    for rollout in range(max(entry.rollouts for entry in spec.tasks)):
        for at, entry in enumerate(spec.tasks):
            if rollout >= entry.rollouts:
                continue
            weighed = zip(overrides[at], sizes[at], strict=True)
            cells = itertools.product(tasks[at], weighed, entry.agents, entry.models)
            versions = agent_versions[at] if agent_versions else _NOTHING
            for task, (changed, size), agent, model in cells:
                weight.add(size)
                yield _task_trial(spec, at, task, changed, (agent, versions.get(agent), model), rollout)


def _task_trial(
    spec: Spec,
    at: int,
    task: TaskLike,
    overrides: Mapping[str, Any],
    who: tuple[str, str | None, str | None],
    rollout: int,
) -> PlannedTrial:
    agent, version, model = who
    # Every agent and model meets the same seed on the same rollout, so that they can be compared.
    seed = derive_seed(spec.seed, "task", task.digest, rollout)
    key = trial_key(
        subject_digest=task.digest,
        agent=agent,
        agent_version=version,
        model=model,
        overrides=overrides,
        seed=seed,
        rollout=rollout,
    )
    return PlannedTrial(
        key=key,
        index=0,
        kind="task",
        subject=task.name,
        subject_digest=task.digest,
        body=at,
        seed=seed,
        agent=agent,
        agent_version=version,
        model=model,
        overrides=overrides,
        rollout=rollout,
        path=str(task.path),
    )


def _task_overrides(spec: Spec, at: int, warnings: list[str], weight: _Weight) -> Iterator[dict[str, Any]]:
    """What the spec changes about the tasks of one entry, once for each point of its sweep."""
    entry = spec.tasks[at]
    hidden = sorted(entry.environment_variables.keys() & entry.sweep.keys())
    if hidden:
        place = spec.place("tasks", at, "sweep") or f"tasks.{at}"
        names = ", ".join(hidden)
        warnings.append(
            f"{place}: 'sweep' varies {names}, so the value in 'environment_variables' is not used"
        )
    size = math.prod(len(values) for values in entry.sweep.values())
    if size > MAX_TRIALS:
        raise SpecError(f"{spec.place('tasks', at)}: the sweep has {size:,} points; sweep fewer values")
    fixed = _fixed_overrides(spec, entry)
    for values in itertools.product(*entry.sweep.values()):
        variables = {**entry.environment_variables, **dict(zip(entry.sweep, values, strict=True))}
        weight.add(8 * len(variables))
        yield {**fixed, "environment_variables": variables} if variables else fixed


def _fixed_overrides(spec: Spec, entry: TaskEntry) -> dict[str, Any]:
    limits = {key: value for key, value in asdict(spec.sandbox).items() if key != "backend" and value}
    changed = {
        "overrides": entry.overrides if entry.apply_overrides else None,
        "apply_overrides": None if entry.apply_overrides else False,
        "agent_options": dict(entry.agent_options) or None,
        "sandbox": limits or None,
        "pass_env": sorted(spec.pass_env) or None,
        "timeout_s": spec.timeout_s,
        **{name: getattr(spec, name) for name in _ATTEMPT_BUDGETS},
        "judge": _deciding(entry),
    }
    return _as_stored({key: value for key, value in changed.items() if value is not None})


def _deciding(entry: TaskEntry) -> dict[str, Any] | None:
    """The judge whose score is the reward. One that stands beside the tests changes nothing about a trial."""
    if entry.judge is None or entry.judge.reward != "judge":
        return None
    return {name: value for name, value in asdict(entry.judge).items() if name in _JUDGING}


def _namesakes(tasks: Sequence[Sequence[TaskLike]]) -> list[str]:
    """Different tasks of one name would be mixed in every table."""
    seen: dict[str, TaskLike] = {}
    found: dict[str, str] = {}
    for task in itertools.chain.from_iterable(tasks):
        first = seen.setdefault(task.name, task)
        if first.digest != task.digest:
            found[task.name] = f"two different tasks are named '{task.name}': {first.path} and {task.path}"
    return list(found.values())
