"""From tasks and checks to an ordinary plan, whose trials any other command can show and resume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from msgspec import structs

from proctor.errors import UsageError
from proctor.model.plan import MARKER, Plan
from proctor.model.run import Execution, written_vetting
from proctor.model.spec import SandboxSpec, Spec, TaskEntry
from proctor.model.task import Network, Task
from proctor.model.vetting import Check, check_of
from proctor.runs.planning import plan_spec
from proctor.runs.process_resources import Resources
from proctor.runs.running import ReadyRun, create
from proctor.sandbox.choose import choose
from proctor.settings import Settings
from proctor.spec.grammar import granted_names
from proctor.tasks.dataset import find_tasks
from proctor.tasks.walk import is_task
from proctor.trial.task import sandboxes


@dataclass(frozen=True, slots=True, kw_only=True)
class VetRequest:
    """What the command is asked for."""

    paths: tuple[str, ...]
    datasets: tuple[str, ...] = ()
    """Datasets by name or git address."""
    rollouts: int = 5
    repeats: int = 2
    """Rollouts of each disturbance."""
    parallel: int = 1
    sandbox: str = "auto"
    host_root: bool = False
    network: Network | None = None
    """For every phase of every task; None: what each task says."""
    checks: tuple[Check, ...] = tuple(Check)
    output_dir: Path | None = None
    pass_env: tuple[str, ...] = ()
    """Variables of this machine that the tasks may use."""


@dataclass(slots=True)
class _Gathered:
    entries: list[TaskEntry] = field(default_factory=list)
    left_out: dict[str, dict[str, str]] = field(default_factory=dict)
    """Task digest → check → why it is not tried."""


def create_vetting(request: VetRequest, resources: Resources) -> ReadyRun:
    """A run with every trial that the request means."""
    settings = resources.settings
    named = settings.sandbox if request.sandbox == "auto" else request.sandbox
    spec = Spec(
        name="vet",
        tags=("vet",),
        parallel=request.parallel,
        sandbox=SandboxSpec(backend=choose(named), host_root=request.host_root, network=request.network),
        output_dir=str(request.output_dir) if request.output_dir else None,
        base_dir=str(Path.cwd()),
        pass_env=granted_names(request.pass_env),
    )
    found = _gather(request, spec, settings)
    if not found.entries:
        raise UsageError("no check is left to run: see --only")
    spec = replace(spec, tasks=tuple(found.entries))
    written: dict[str, Any] = {
        **written_vetting([*request.paths, *request.datasets]),
        "checks": [check.value for check in request.checks],
        "rollouts": request.rollouts,
        "repeats": request.repeats,
        "left_out": found.left_out,
    }
    plan = _last_the_loaded(plan_spec(spec, settings))
    return create(spec, written, resources, plan=plan, execution=Execution.VET)


def _gather(request: VetRequest, spec: Spec, settings: Settings) -> _Gathered:
    gathered = _Gathered()
    seen: set[str] = set()
    for path in (*request.paths, *request.datasets):
        entry = TaskEntry(path=path, source="dataset" if path in request.datasets else "path")
        found = find_tasks(entry, Path.cwd(), settings.cache_dir, settings.dataset_registries)
        for task in found.tasks:
            if str(task.path) not in seen:
                seen.add(str(task.path))
                _add(gathered, task, request, spec)
        # A task that cannot be read is planned once and ends as invalid, with the reason.
        unread = [str(broken.path) for broken in found.broken if is_task(broken.path)]
        gathered.entries += [TaskEntry(path=each) for each in unread if each not in seen]
        seen |= set(unread)
    return gathered


def _add(gathered: _Gathered, task: Task, request: VetRequest, spec: Spec) -> None:
    for check in request.checks:
        if why := obstacle(check, task, spec):
            gathered.left_out.setdefault(task.digest, {})[check.value] = why
            continue
        gathered.entries.append(
            TaskEntry(
                path=str(task.path),
                agents=("nop" if check is Check.NOP else "oracle",),
                rollouts=request.repeats if check.disturbed else request.rollouts,
                environment_variables={MARKER: check.value} if check.disturbed else {},
            )
        )


def obstacle(check: Check, task: Task, spec: Spec) -> str:
    """Why a check says nothing about a task; empty when it is worth a trial."""
    if check is Check.NETWORK_OFF and not sandboxes.is_used(task, spec.sandbox):
        return "the task has no network anyway"
    if check is Check.TIME_ZONE and "TZ" in task.environment.env:
        return f"the task sets its own time zone, {task.environment.env['TZ']}"
    return ""


def _last_the_loaded(plan: Plan) -> Plan:
    """Trials on a busy machine come last, so that the others are not run beside them."""
    ordered = sorted(plan.trials, key=lambda trial: check_of(trial) is Check.LOADED)
    return replace(plan, trials=tuple(structs.replace(trial, index=at) for at, trial in enumerate(ordered)))


def left_out(written: Mapping[str, Any], digest: str) -> dict[str, str]:
    """What was not tried with a task, and why, as the run remembers it."""
    known = written.get("left_out")
    found = known.get(digest) if isinstance(known, dict) else None
    return {str(check): str(why) for check, why in found.items()} if isinstance(found, dict) else {}


def checks_of(written: Mapping[str, Any]) -> Sequence[Check]:
    """The checks that a run was made of."""
    known = written.get("checks")
    return [Check(each) for each in known if each in set(Check)] if isinstance(known, list) else list(Check)
