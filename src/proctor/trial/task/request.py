"""What a task's sandbox is asked for: the task's limits, unless the run's spec says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.model.plan import PlannedTrial
from proctor.model.spec import SandboxSpec
from proctor.model.task import Task
from proctor.sandbox.base import Limits, Root, SandboxRequest
from proctor.trial.task import network

if TYPE_CHECKING:
    from proctor.trial.task.setting import TaskSetting

WORKDIR = "/app"
_PIDS = 512


def limits_for(task: Task, spec: SandboxSpec) -> Limits:
    """The spec's limits over the task's own over the defaults."""
    environment = task.environment
    policy = network.whole(environment, spec)
    return Limits(
        cpus=spec.cpus or environment.cpus,
        memory_bytes=spec.memory_bytes or environment.memory_bytes,
        storage_bytes=spec.storage_bytes or environment.storage_bytes,
        pids=spec.pids or _PIDS,
        network=policy.network,
        allowed_hosts=policy.allowed_hosts,
    )


def workdir_of(task: Task, root: Root) -> str:
    """Where the agent starts: the task's setting, then the image's, then the usual default."""
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
    policy: network.Policy | None = None,
) -> SandboxRequest:
    """What a sandbox of a trial is to be; `suffix` makes its name unique, `policy` is another network."""
    limits = limits_for(task, setting.sandbox)
    if policy:
        limits = replace(limits, network=policy.network, allowed_hosts=policy.allowed_hosts)
    return SandboxRequest(
        name=f"{setting.run_id}-{trial.index}-{suffix}",
        root=root,
        limits=limits,
        env={**root.env, **env},
        labels={"run": setting.run_id, "trial": trial.key[:16], "worker": setting.worker},
        state=state,
        granted=setting.given if root.compose else {},
        hidden=_hidden(setting, env) if root.compose else (),
    )


def _hidden(setting: TaskSetting, env: Mapping[str, str]) -> tuple[str, ...]:
    """The secrets that a compose file can come by."""
    reachable = "\0".join((*setting.given.values(), *env.values()))
    return tuple(each for each in setting.redactor.secrets.values() if each in reachable)
