"""Expand a spec with what is installed and discoverable here. Light: `proctor plan` needs nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.errors import NotFoundError, TaskError, UsageError
from proctor.model.plan import Plan
from proctor.model.secret import without_values
from proctor.model.spec import Spec, TaskEntry
from proctor.model.task import Network
from proctor.plan.expand import expand
from proctor.settings import Settings, load_settings

if TYPE_CHECKING:
    from proctor.agents.base import Agent
    from proctor.tasks.dataset import Found


Find = Callable[[TaskEntry, Path, Path, tuple[str, ...]], "Found"]
"""As `tasks.dataset.find_tasks`."""


def plan_spec(
    spec: Spec,
    settings: Settings | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    find: Find | None = None,
) -> Plan:
    """Expand a spec with what is installed and discoverable here. `find`: where tasks are known already."""
    from proctor.runs.secrets import with_advice

    settings = settings or load_settings()
    plan = _plan_tasks(spec, settings, environ, find) if spec.tasks else _plan_experiments(spec)
    return with_advice(plan, spec, environ)


def _plan_experiments(spec: Spec) -> Plan:
    from proctor.experiments.describe import info
    from proctor.experiments.discover import find, shadowed
    from proctor.instruments.base import resolve

    experiments = {}
    notes: dict[str, None] = {}
    for at, body in enumerate(spec.experiments):
        with named(spec, "experiments", at, "experiment"):
            if body.experiment not in experiments:
                found = find(body.experiment, experiment_sources(spec))
                experiments[body.experiment] = info(found)
                notes |= dict.fromkeys(shadowed(found))
        with named(spec, "experiments", at, "instrumentation"):
            resolve(body.instrumentation)
    plan = expand(spec, experiments=experiments)
    better = {slug: known.better for slug, known in experiments.items() if known.better}
    return replace(plan, warnings=(*notes, *plan.warnings), better=better)


def with_declared_directions(spec: Spec, plan: Plan) -> Spec:
    """The spec with what the classes of its experiments declare to be better; what the spec says wins."""
    bodies = (
        replace(body, better={**plan.better.get(body.experiment, {}), **body.better})
        for body in spec.experiments
    )
    return replace(spec, experiments=tuple(bodies)) if plan.better else spec


@contextmanager
def named(spec: Spec, *keys: str | int) -> Iterator[None]:
    """Errors about a part of the spec begin with the place where it was written."""
    try:
        yield
    except (NotFoundError, UsageError) as error:
        place = spec.place(*keys)
        raise type(error)(f"{place}: {error}" if place else str(error)) from error


def _plan_tasks(spec: Spec, settings: Settings, environ: Mapping[str, str], find: Find | None) -> Plan:
    """Agents are made here once, so that a wrong name or option stops the run before it starts."""
    from proctor.agents.registry import make_agent
    from proctor.tasks.dataset import find_tasks
    from proctor.trial.task.prepare import with_content

    network_allow(spec, settings)
    base = Path(spec.base_dir)
    registries = settings.dataset_registries
    find = find or find_tasks
    found = [find(entry, base, settings.cache_dir, registries) for entry in spec.tasks]
    agents = [
        {name: make_agent(name, without_values(entry.agent_options)) for name in entry.agents}
        for entry in spec.tasks
    ]
    versions = [{name: agent.version for name, agent in each.items()} for each in agents]
    _refuse_nothing_but_broken(found)
    for made, each in zip(agents, found, strict=True):
        _refuse_other_kinds(made, each)
    _refuse_forced_variables(spec, found)
    found = [_granted(spec, entry, each, environ) for entry, each in zip(spec.tasks, found, strict=True)]
    found = [_judged(entry, each) for entry, each in zip(spec.tasks, found, strict=True)]
    _refuse_nothing_but_broken(found)
    by_content = replace(spec, tasks=tuple(with_content(entry, base) for entry in spec.tasks))
    plan = expand(by_content, tasks=[(*each.tasks, *each.broken) for each in found], agent_versions=versions)
    complaints = [
        *(f"{task.name}: {task.error}" for each in found for task in each.broken),
        *(warning for each in found for task in each.tasks for warning in task.warnings),
    ]
    asked = {task.digest: task.environment for each in found for task in each.tasks}
    return replace(
        plan,
        warnings=(*plan.warnings, *complaints),
        memory_bytes={digest: each.memory_bytes for digest, each in asked.items() if each.memory_bytes},
        cpus={digest: each.cpus for digest, each in asked.items() if each.cpus},
    )


def _refuse_other_kinds(agents: Mapping[str, Agent], found: Found) -> None:
    """UsageError for an agent and a task that cannot come together: one works in a sandbox, one in steps."""
    for name, agent in agents.items():
        for task in found.tasks:
            stepwise = "episode" in getattr(agent, "kinds", ())
            if stepwise and task.kind != "episode":
                raise UsageError(f"agent '{name}' is for step-by-step tasks, and {task.name} is none")
            if not stepwise and task.kind == "episode":
                raise UsageError(
                    f"{task.name} is a step-by-step task, which agent '{name}' cannot do; use the agent "
                    "'episode' with agent_options.file, a Python file with reset, observe and act"
                )


def _refuse_forced_variables(spec: Spec, found: Sequence[Found]) -> None:
    """UsageError where a task's own overrides.json would give arms with different values the same one."""
    from proctor.trial.task.prepare import own_overrides

    several = len(spec.tasks) > 1
    values: dict[tuple[str, str], set[str]] = {}
    for at, (entry, tasks) in enumerate(zip(spec.tasks, found, strict=True)):
        if not entry.apply_overrides or not (entry.sweep or several):
            continue
        for task in tasks.tasks:
            for name, forced in own_overrides(task).get("environment_variables", {}).items():
                given = entry.sweep.get(name, [entry.environment_variables.get(name, forced)])
                known = values.setdefault((task.digest, name), set())
                known |= {str(value) for value in given}
                if (name in entry.sweep and known != {str(forced)}) or len(known) > 1:
                    raise UsageError(
                        f"{spec.place('tasks', at) or f'tasks.{at}'}: {name} takes different values, and "
                        f"{task.path}/overrides.json forces it to be {forced!r} in all of them; remove it "
                        "there, or set 'apply_overrides: false'"
                    )


def _judged(entry: TaskEntry, found: Found) -> Found:
    """A task whose own rubrics cannot be read, or that nothing would score, cannot run; the others can."""
    if entry.judge is None and not any(task.needs_judge for task in found.tasks):
        return found
    from proctor.tasks.dataset import BrokenTask
    from proctor.trial.judge.criteria import check_scored, criteria_of

    tasks, broken = [], list(found.broken)
    for task in found.tasks:
        try:
            check_scored(task, entry.judge)
            if entry.judge:
                criteria_of(task, entry.judge)
        except TaskError as error:
            broken.append(BrokenTask(name=task.name, path=task.path, digest=task.digest, error=str(error)))
        else:
            tasks.append(task)
    return replace(found, tasks=tuple(tasks), broken=tuple(broken))


def _granted(spec: Spec, entry: TaskEntry, found: Found, environ: Mapping[str, str]) -> Found:
    """A task that wants variables which it does not get cannot run here; the others can."""
    from proctor.runs.grants import check_grants
    from proctor.tasks.dataset import BrokenTask

    tasks, broken = [], list(found.broken)
    for task in found.tasks:
        try:
            check_grants(spec, entry, task, environ)
        except TaskError as error:
            broken.append(BrokenTask(name=task.name, path=task.path, digest=task.digest, error=str(error)))
        else:
            tasks.append(task)
    return replace(found, tasks=tuple(tasks), broken=tuple(broken))


def _refuse_nothing_but_broken(found: Sequence[Found]) -> None:
    """One broken task among others ends as `invalid`; a run without a single good one does not begin."""
    broken = [task for each in found for task in each.broken]
    if broken and not any(each.tasks for each in found):
        more = f" ({len(broken) - 1} more tasks cannot be used either)" if len(broken) > 1 else ""
        raise TaskError(f"{broken[0].error}{more}")


def network_allow(spec: Spec, settings: Settings) -> tuple[str, ...]:
    """What public networks may reach beyond the internet: the setting's entries, then the spec's."""
    from proctor.model.network import wrong_allowed

    for each in settings.network_allow:
        if problem := wrong_allowed(each):
            raise UsageError(f"setting 'network_allow': {problem}")
    return (*settings.network_allow, *spec.sandbox.network_allow)


def pin_datasets(spec: Spec, settings: Settings) -> Spec:
    """Fetch the datasets of a spec, and write behind each one its version or commit, which cannot move."""
    from proctor.tasks.fetch import Datasets, existing, is_reference

    base = Path(spec.base_dir)
    datasets = Datasets(cache_dir=settings.cache_dir, registries=settings.dataset_registries)
    entries = []
    for entry in spec.tasks:
        if is_reference(entry) and existing(entry.path, base) is None:
            pinned = datasets.pin(entry.path)
            datasets.fetch(pinned)
            entries.append(replace(entry, source="dataset", path=pinned.reference))
        else:
            entries.append(entry)
    return replace(spec, tasks=tuple(entries)) if entries else spec


def experiment_sources(spec: Spec) -> tuple[str, ...]:
    """The spec's own sources; folders are read against the spec's folder, then against this one."""
    base = Path(spec.base_dir)
    return tuple(
        str((base / source).resolve()) if (base / source).exists() else source for source in spec.sources
    )


def with_host_root(spec: Spec) -> Spec:
    """The spec, with this machine's own system in place of every image."""
    _require_tasks(spec, "--host-root")
    return replace(spec, sandbox=replace(spec.sandbox, host_root=True))


def with_network(spec: Spec, network: Network) -> Spec:
    """The spec, with one network for every phase of every task."""
    _require_tasks(spec, "--network")
    hosts = spec.sandbox.allowed_hosts if network == "allowlist" else ()
    return replace(spec, sandbox=replace(spec.sandbox, network=network, allowed_hosts=hosts))


def with_pass_env(spec: Spec, names: Sequence[str]) -> Spec:
    """The spec, with more variables of this machine that its tasks may use."""
    from proctor.spec.grammar import granted_names

    _require_tasks(spec, "--pass-env")
    return replace(spec, pass_env=tuple(dict.fromkeys((*spec.pass_env, *granted_names(names)))))


def _require_tasks(spec: Spec, option: str) -> None:
    if not spec.tasks:
        raise UsageError(f"{option} is for tasks, and this spec has experiments, which run without a sandbox")


def with_sources(spec: Spec, sources: Sequence[str]) -> Spec:
    """The spec, with more places to look for experiments."""
    absolute = (str(Path(each).resolve()) if Path(each).exists() else each for each in sources)
    return replace(spec, sources=(*spec.sources, *absolute))
