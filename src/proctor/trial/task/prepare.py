"""From a planned trial to everything its attempts need. Read once per run, not once per trial."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from proctor.agents.base import Agent
from proctor.agents.registry import make_agent
from proctor.errors import TaskError
from proctor.model.canonical import canonical_json
from proctor.model.plan import PlannedTrial
from proctor.model.secret import resolved
from proctor.model.spec import Criterion, JudgeSpec, Spec, TaskEntry
from proctor.model.task import Task
from proctor.outbound import Reach
from proctor.spec.secrets import concealed
from proctor.tasks.digest import task_digest
from proctor.tasks.overrides import apply, check_overrides, load_overrides, merge, overlay_sources
from proctor.tasks.read import read_runnable
from proctor.threads import in_own_thread
from proctor.trial.judge.criteria import check_scored, criteria_of
from proctor.trial.task.workspace import Workspace, workspace_for


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTrialPlan:
    """What one trial needs, worked out before it starts."""

    task: Task
    """With the run's overrides applied."""
    agent: Agent
    workspace: Workspace
    env: Mapping[str, str] = field(default_factory=dict)
    """The run's own variables, beside the task's."""
    judge: JudgeSpec | None = None
    criteria: tuple[Criterion, ...] = ()
    """What the judge scores."""


class Preparation:
    """Prepares the trials of one run; what several trials share is read once."""

    def __init__(
        self,
        spec: Spec,
        cache_dir: Path,
        secrets: Mapping[str, str] | None = None,
        read_task: Callable[[PlannedTrial, Path], Task] | None = None,
        reach: Reach | None = None,
    ) -> None:
        """`read_task` finds the task of a trial as it was planned; `read_planned` where none is given.

        `reach`: what repositories may be fetched from, where a server runs tasks on somebody's behalf.
        """
        self.spec = spec
        self.read_task = read_task or read_planned
        self.secrets = secrets or {}
        self.cache_dir = cache_dir
        self.reach = reach
        self._locks: dict[str, threading.Lock] = {}
        """Of each plan while it is made: attempts that need the same one wait for it."""
        self._tasks: dict[str, Task] = {}
        self._agents: dict[tuple[int, str], Agent] = {}
        self._plans: dict[str, TaskTrialPlan] = {}

    def plan(self, trial: PlannedTrial) -> TaskTrialPlan:
        """Everything the trial needs, or the TaskError that makes it `invalid`. May be long: it may clone."""
        shared = _shared(trial)
        with self._locks.setdefault(shared, threading.Lock()):
            if shared not in self._plans:
                self._plans[shared] = self._make(trial)
        return self._plans[shared]

    __call__ = plan

    def known(self, trial: PlannedTrial) -> TaskTrialPlan | None:
        """The same at once, where another trial has needed it."""
        return self._plans.get(_shared(trial))

    def _make(self, trial: PlannedTrial) -> TaskTrialPlan:
        entry = self.spec.tasks[trial.body]
        task = self._task(trial)
        own = own_overrides(task) if entry.apply_overrides else {}
        config, base = config_overrides(entry, Path(self.spec.base_dir))
        # Only what the spec says is looked up: a task must not name secrets of this machine.
        config = resolved(config, self.secrets)
        changed = merge(own, config if entry.apply_overrides else {})
        variables = {
            **resolved(trial.overrides.get("environment_variables", {}), self.secrets),
            **own.get("environment_variables", {}),
        }
        task = apply(task, changed)
        check_scored(task, entry.judge)
        places = (task.path, base) if own else (base, task.path)
        return TaskTrialPlan(
            task=task,
            agent=self._agent(trial, entry),
            workspace=workspace_for(task, changed, places[0], self.cache_dir, self.reach),
            env={str(name): str(value) for name, value in variables.items()},
            judge=entry.judge,
            criteria=criteria_of(task, entry.judge) if entry.judge else (),
        )

    def _task(self, trial: PlannedTrial) -> Task:
        known = f"{trial.subject_digest} {trial.path}"
        if known not in self._tasks:
            self._tasks[known] = self.read_task(trial, self.cache_dir)
        return self._tasks[known]

    def _agent(self, trial: PlannedTrial, entry: TaskEntry) -> Agent:
        name = str(trial.agent)
        if (trial.body, name) not in self._agents:
            options = resolved(entry.agent_options, self.secrets)
            self._agents[trial.body, name] = make_agent(name, options, entry.agent_code.get(name))
        return self._agents[trial.body, name]


def _shared(trial: PlannedTrial) -> str:
    """What trials with the same plan have in common."""
    return canonical_json([trial.body, trial.path, trial.agent, dict(trial.overrides)])


async def prepared(plans: Callable[[PlannedTrial], TaskTrialPlan], trial: PlannedTrial) -> TaskTrialPlan:
    """What a trial needs, without holding up the loop: making it reads, imports and clones."""
    known = plans.known(trial) if isinstance(plans, Preparation) else None
    return await in_own_thread(plans, trial) if known is None else known


def read_planned(trial: PlannedTrial, cache_dir: Path) -> Task:
    """The task at the place where it was planned; TaskError when it is another one now."""
    task = read_runnable(Path(str(trial.path)), cache_dir)
    if task.digest != trial.subject_digest:
        raise TaskError(f"{trial.path}: the task has changed since this run was planned")
    return task


def own_overrides(task: Task) -> dict[str, Any]:
    """The overrides that lie in the task's folder."""
    file = task.path / "overrides.json"
    return load_overrides(file) if file.is_file() else {}


def config_overrides(entry: TaskEntry, base_dir: Path) -> tuple[dict[str, Any], Path]:
    """The overrides the spec names or holds, and the folder its files are read from."""
    if entry.overrides is None:
        return {}, base_dir
    if isinstance(entry.overrides, str):
        places = (base_dir / entry.overrides, Path(entry.overrides))
        file = next((each for each in places if each.is_file()), places[0])
        return load_overrides(file), file.parent
    return check_overrides(dict(entry.overrides), "overrides"), base_dir


def with_content(entry: TaskEntry, base_dir: Path) -> TaskEntry:
    """The entry with the content of its overrides in place of their path, because keys are over content."""
    if not entry.apply_overrides or entry.overrides is None:
        return entry
    content, base = config_overrides(entry, base_dir)
    content, _ = concealed(content)
    digests = {name: _digest(place) for name, place in overlay_sources(content, base).items()}
    return replace(entry, overrides={**content, "overlay_digests": digests} if digests else content)


def _digest(path: Path) -> str:
    if path.is_dir():
        return task_digest(path)
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise TaskError(f"overlay_files: {path}: {error.strerror}") from error
