"""What all task trials of a run share, and the variables that a task gets."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from proctor.agents.base import Allowance
from proctor.errors import TaskError
from proctor.model.plan import PlannedTrial
from proctor.model.spec import SandboxSpec
from proctor.model.task import Task, TaskEnvironment
from proctor.model.trial import Lease
from proctor.processes import allowed_cpus
from proctor.sandbox.base import Backend, Root
from proctor.trial.collect import Collector
from proctor.trial.redact import Redactor
from proctor.trial.task.models import ModelGateway
from proctor.trial.task.prepare import TaskTrialPlan

STARTS = 4 * len(allowed_cpus())
"""Sandboxes that are being started at a time. Of many trials some then work while others begin, and the
first does not wait until the last has a place."""
_REFERENCE = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}", re.DOTALL)
"""`${VAR}` or `${VAR:-default}`"""


class MakeRoot(Protocol):
    """Makes the root file system of a task, or of its separate verifier."""

    def __call__(self, task: Task, environment: TaskEnvironment | None = None, /) -> Awaitable[Root]:
        """The root; ImageError when it cannot be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSetting:
    """What the trials of a run share in which a judge is all that works."""

    collector: Collector
    redactor: Redactor
    models: ModelGateway | None = None
    worker: str = ""
    clock: Callable[[], float] = time.time


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSetting:
    """What all trials of a run share."""

    run_id: str
    run_dir: Path
    sandbox: SandboxSpec
    backend: Backend
    make_root: MakeRoot
    """Builds once per digest, however many trials ask."""
    end_builds: Callable[[], Awaitable[None]] | None = None
    """Ends builds that no trial waits for any more."""
    collector: Collector
    timeout_s: float | None = None
    allowance: Allowance = field(default_factory=Allowance)
    models: ModelGateway | None = None
    """Gives each attempt its own access to its model; without it agents reach none."""
    given: Mapping[str, str] = field(default_factory=dict)
    """Where `${VAR}` of a task is looked up: what the spec grants of this machine's variables."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Everything else that nothing of the run may show, by name."""
    worker: str = ""
    clock: Callable[[], float] = time.time
    on_log: Callable[[PlannedTrial, str, bytes], None] | None = None
    """Hears what agents and tests print, as it is written: trial, log, bytes without secrets."""
    note: Callable[[Lease, str, Mapping[str, Any]], None] | None = None
    """Hears which phase an attempt is in and how its logs grow, for who follows it on another machine."""
    redactor: Redactor = field(init=False)
    starts: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(STARTS))
    """Limits how many sandboxes start at the same time."""
    measuring: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the performance of a program is measured: two measurements would disturb each other."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "redactor", Redactor({**self.secrets, **self.given}))


def environment(setting: TaskSetting, plan: TaskTrialPlan) -> dict[str, str]:
    """The variables that a task's sandbox has besides those of its image."""
    return {**filled(setting, plan, plan.task.environment.env, "environment"), **plan.env}


def filled(
    setting: TaskSetting, plan: TaskTrialPlan, values: Mapping[str, str], table: str
) -> dict[str, str]:
    """Variables of a table of the task, with `${VAR}` looked up; an unset one is the task's error.

    A value is a reference as a whole or not at all: a dollar sign in a longer text is only a dollar sign.
    """
    found = dict(values)
    given = {**setting.given, **plan.env}
    for variable, value in values.items():
        if match := _REFERENCE.fullmatch(value):
            name, default = match[1], match[2]
            if name not in given and default is None:
                raise TaskError(
                    f"{plan.task.path / 'task.toml'}: [{table}.env]: ${{{name}}} has no default, and the "
                    "spec does not grant it (pass_env) or it is not set"
                )
            found[variable] = given.get(name, default)
    return found


def wanted(values: Mapping[str, str]) -> Iterator[str]:
    """The variables that must be granted: those without a default."""
    for value in values.values():
        match = _REFERENCE.fullmatch(value)
        if match and match[2] is None:
            yield match[1]
