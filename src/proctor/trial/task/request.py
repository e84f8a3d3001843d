"""What a task's sandbox is asked for: the task's limits, unless the run's spec says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.model.plan import PlannedTrial
from proctor.model.spec import SandboxSpec
from proctor.model.task import Task
from proctor.sandbox.base import Limits, Root, SandboxRequest

if TYPE_CHECKING:
    from proctor.trial.task_trial import TaskSetting

WORKDIR = "/app"
_PIDS = 512


def limits_for(task: Task, spec: SandboxSpec) -> Limits:
    """The spec's limits over the task's own over the defaults. No network unless someone asked for it."""
    environment = task.environment
    return Limits(
        cpus=spec.cpus or environment.cpus,
        memory_bytes=spec.memory_bytes or environment.memory_bytes,
        storage_bytes=spec.storage_bytes or environment.storage_bytes,
        pids=spec.pids or _PIDS,
        network=spec.network or task.agent.network or environment.network or "none",
        allowed_hosts=spec.allowed_hosts or task.agent.allowed_hosts or environment.allowed_hosts,
    )


def workdir_of(task: Task, root: Root) -> str:
    """Where the agent starts: the task's word, then the image's, then a common habit."""
    if task.environment.workdir:
        return task.environment.workdir
    return root.workdir if root.workdir not in {"", "/"} else WORKDIR


def sandbox_request(
    setting: TaskSetting,
    task: Task,
    trial: PlannedTrial,
    root: Root,
    env: Mapping[str, str],
    *,
    suffix: str,
    state: Path | None = None,
) -> SandboxRequest:
    """What a sandbox of a trial is to be; `suffix` makes its name unique."""
    return SandboxRequest(
        name=f"{setting.run_id}-{trial.index}-{suffix}",
        root=root,
        limits=limits_for(task, setting.sandbox),
        env={**root.env, **env},
        labels={"run": setting.run_id, "trial": trial.key[:16], "worker": setting.worker},
        state=state,
    )
