"""Expand a spec with what is installed and discoverable here. Light: `proctor plan` needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from proctor.model.plan import Plan
from proctor.model.spec import Spec
from proctor.plan.expand import expand
from proctor.settings import Settings, load_settings


def plan_spec(spec: Spec, settings: Settings | None = None) -> Plan:
    """Expand a spec with what is installed and discoverable here."""
    return _plan_tasks(spec, settings or load_settings()) if spec.tasks else _plan_experiments(spec)


def _plan_experiments(spec: Spec) -> Plan:
    from proctor.experiments.describe import info
    from proctor.experiments.discover import find
    from proctor.instruments.base import resolve

    slugs = {body.experiment for body in spec.experiments}
    experiments = {slug: info(find(slug, experiment_sources(spec))) for slug in sorted(slugs)}
    for body in spec.experiments:
        resolve(body.instrumentation)
    return expand(spec, experiments=experiments)


def _plan_tasks(spec: Spec, settings: Settings) -> Plan:
    """Agents are made here once, so that a wrong name or option stops the run before it starts."""
    from proctor.agents.registry import make_agent
    from proctor.tasks.dataset import find_tasks
    from proctor.trial.task.prepare import with_content

    base = Path(spec.base_dir)
    found = [find_tasks(entry, base, settings.cache_dir) for entry in spec.tasks]
    versions = {
        name: make_agent(name, entry.agent_options).version for entry in spec.tasks for name in entry.agents
    }
    by_content = replace(spec, tasks=tuple(with_content(entry, base) for entry in spec.tasks))
    plan = expand(by_content, tasks=[(*each.tasks, *each.broken) for each in found], agent_versions=versions)
    complaints = [
        *(f"{task.name}: {task.error}" for each in found for task in each.broken),
        *(warning for each in found for task in each.tasks for warning in task.warnings),
    ]
    return replace(plan, warnings=(*plan.warnings, *complaints))


def experiment_sources(spec: Spec) -> tuple[str, ...]:
    """The spec's own sources; folders are read against the spec's folder, then against this one."""
    base = Path(spec.base_dir)
    return tuple(
        str((base / source).resolve()) if (base / source).exists() else source for source in spec.sources
    )


def with_sources(spec: Spec, sources: Sequence[str]) -> Spec:
    """The spec, with more places to look for experiments."""
    absolute = (str(Path(each).resolve()) if Path(each).exists() else each for each in sources)
    return replace(spec, sources=(*spec.sources, *absolute))
