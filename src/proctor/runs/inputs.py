"""What a run is made from, on the machine that executes it.

The project's own folders are used where they are still what was planned; else what was stored with the run is
unpacked into the cache. So a worker needs the store and the blobs, and nothing of the project.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import structs

from proctor.errors import ProctorError, TaskError, UsageError
from proctor.model.canonical import canonical_json
from proctor.model.plan import Plan, PlannedTrial
from proctor.model.secret import without_values
from proctor.model.spec import Spec, TaskEntry
from proctor.model.task import Task
from proctor.runs.pack import option_name, overrides_name, task_name
from proctor.runs.planning import experiment_sources
from proctor.store.blobs import Blobs
from proctor.store.inputs import Input
from proctor.store.trees import forget_tree, get_tree

_log = logging.getLogger("proctor.runs")


@dataclass(frozen=True, slots=True)
class RunInputs:
    """The inputs of one run."""

    blobs: Blobs
    cache_dir: Path
    stored: Mapping[str, Input] = field(default_factory=dict)
    """Empty for a run that an earlier version created: then the project has to be here."""

    def task(self, trial: PlannedTrial, cache_dir: Path) -> Task:
        """The task of a trial as it was planned; TaskError when there is none."""
        from proctor.trial.task.prepare import read_planned

        try:
            return read_planned(trial, cache_dir)
        except TaskError:
            stored = self.stored.get(task_name(trial.subject_digest))
            if stored is None:
                raise
        unpacked = structs.replace(trial, path=str(self._folder(stored)))
        try:
            task = read_planned(unpacked, cache_dir)
        except TaskError:  # somebody has changed what was unpacked
            forget_tree(stored.digest, self._trees)
            self._folder(stored)
            task = read_planned(unpacked, cache_dir)
        return replace(task, name=trial.subject)

    def spec(self, spec: Spec, plan: Plan) -> Spec:
        """The spec with places on this machine; UsageError when what is here is not what was planned."""
        if spec.experiments:
            return self._with_sources(spec, plan)
        trials: list[list[PlannedTrial]] = [[] for _ in spec.tasks]
        for trial in plan.trials:
            trials[trial.body].append(trial)
        return replace(spec, tasks=tuple(self._entry(spec, at, each) for at, each in enumerate(trials)))

    @property
    def _trees(self) -> Path:
        return self.cache_dir / "inputs"

    def _folder(self, stored: Input) -> Path:
        return get_tree(self.blobs, stored.digest, self._trees)

    def _with_sources(self, spec: Spec, plan: Plan) -> Spec:
        from proctor.experiments.discover import PACKED

        changed = _changed_experiment(spec, plan)
        if not changed:
            return spec
        sources = []
        for name in sorted(self.stored):
            if name.startswith("source/"):
                stored = self.stored[name]
                inside = stored.place if stored.place.startswith("::") else f"/{stored.place}"
                sources.append(f"{PACKED}{self._folder(stored)}{inside}")
        if sources:
            spec = replace(spec, sources=tuple(sources))
            _log.info("%s: the source that was stored with the run is used", changed)
            changed = _changed_experiment(spec, plan)
        if changed:
            number = sum(trial.subject == changed for trial in plan.trials)
            raise UsageError(has_changed(changed, number, len(plan)))
        return spec

    def _entry(self, spec: Spec, at: int, trials: Sequence[PlannedTrial]) -> TaskEntry:
        entry = spec.tasks[at]
        from proctor.agents.own_modules import code_of

        overrides = self.stored.get(overrides_name(at))
        if overrides and trials and not _same_overrides(entry, Path(spec.base_dir), trials[0]):
            entry = replace(entry, overrides=str(self._folder(overrides) / overrides.place))
        for name, version in {str(trial.agent): trial.agent_version for trial in trials}.items():
            if module := self.stored.get(f"agent/{at}/{name}"):
                code = code_of(self._folder(module), module.place)
                entry = replace(entry, agent_code={**entry.agent_code, name: code})
            if _agent_version(name, entry) == version:
                continue
            entry = self._with_files(at, entry)
            if (here := _agent_version(name, entry, strict=True)) != version:
                raise UsageError(
                    f"agent '{name}' has version {here} here, and the run was planned with {version}"
                )
        return entry

    def _with_files(self, at: int, entry: TaskEntry) -> TaskEntry:
        """The entry, with the files that its agents' options name as they were stored."""
        options = dict(entry.agent_options)
        for option in options:
            if files := self.stored.get(option_name(at, option)):
                options[option] = str(self._folder(files) / files.place)
        return replace(entry, agent_options=options)


def _changed_experiment(spec: Spec, plan: Plan) -> str:
    """An experiment that is not here, or not what was planned; empty when all are."""
    from proctor.experiments.discover import find
    from proctor.experiments.source import source_digest

    planned = {trial.subject: trial.subject_digest for trial in plan.trials}
    for slug, digest in planned.items():
        try:
            if source_digest(find(slug, experiment_sources(spec))) != digest:
                return slug
        except ProctorError:
            return slug
    return ""


def has_changed(subject: str, changed: int, total: int, run: str = "the run") -> str:
    """Why a run cannot go on here."""
    return (
        f"{run} cannot be continued: {subject} has changed since it was planned "
        f"({changed} of {total} trials would measure something else). "
        "Start a new run, or restore the old code."
    )


def _same_overrides(entry: TaskEntry, base_dir: Path, trial: PlannedTrial) -> bool:
    from proctor.trial.task.prepare import with_content

    try:
        here = with_content(entry, base_dir).overrides
    except TaskError:
        return False
    return canonical_json(here) == canonical_json(trial.overrides.get("overrides"))


def _agent_version(name: str, entry: TaskEntry, *, strict: bool = False) -> str | None:
    """The version of an agent here; None when it cannot be made, which is an error if `strict`."""
    from proctor.agents.registry import make_agent

    try:
        options = without_values(entry.agent_options)
        return make_agent(name, options, entry.agent_code.get(name)).version
    except ProctorError:
        if strict:
            raise
        return None
