"""What must be there before an agent begins: its program, in an untouched sandbox of the task.

What is missing then was never there, and is nobody's zero. After the agent has begun nothing is looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol, runtime_checkable

from proctor.agents.base import AgentContext, AgentUnavailable, ModelAccess
from proctor.agents.trajectory import Trajectory
from proctor.errors import ProctorError, SandboxError, UsageError
from proctor.model.plan import PlannedTrial
from proctor.model.task import Task
from proctor.sandbox.base import Sandbox
from proctor.trial.task.agent import agent_context
from proctor.trial.task.entrypoint import starts_something
from proctor.trial.task.prepare import TaskTrialPlan
from proctor.trial.task.request import sandbox_request, workdir_of
from proctor.trial.task.setting import TaskSetting, environment

_LOOKED_AT = 3
"""Tasks in whose sandboxes a program is looked for before a run starts; one that has it is enough."""


@runtime_checkable
class NeedsProgram(Protocol):
    """An agent that runs a program inside the sandbox."""

    async def missing(self, task: Task, sandbox: Sandbox, model: str | None, context: AgentContext) -> str:
        """What the sandbox lacks, as a sentence; empty when nothing is missing."""


async def check_program(
    agent: object, task: Task, sandbox: Sandbox, model: str | None, context: AgentContext
) -> None:
    """AgentUnavailable when the sandbox of this attempt lacks the agent's program."""
    if isinstance(agent, NeedsProgram) and (problem := await agent.missing(task, sandbox, model, context)):
        raise AgentUnavailable(problem)


async def refuse_absent_programs(
    setting: TaskSetting, plans: Callable[[PlannedTrial], TaskTrialPlan], trials: Sequence[PlannedTrial]
) -> None:
    """UsageError for an agent whose program none of its first tasks has; one with it lets the run start."""
    first: dict[tuple[int, str | None], dict[str, PlannedTrial]] = {}
    for trial in trials:
        tasks = first.setdefault((trial.body, trial.agent), {})
        if len(tasks) < _LOOKED_AT:
            tasks.setdefault(trial.subject_digest, trial)
    for tasks in first.values():
        problems = []
        for trial in tasks.values():
            problem = await _missing(setting, plans, trial)
            if not problem:
                break
            problems.append(f"{trial.subject}: {problem}")
        else:
            raise UsageError(f"{problems[0]}. Nothing was started")


async def _missing(
    setting: TaskSetting, plans: Callable[[PlannedTrial], TaskTrialPlan], trial: PlannedTrial
) -> str:
    """What a fresh sandbox of a task lacks. What else is wrong with it is met, and recorded, by its trial."""
    with suppress(ProctorError):
        plan = plans(trial)
        if not isinstance(plan.agent, NeedsProgram):
            return ""
        return await _look(setting, plan, plan.agent, trial)
    return ""


async def _look(setting: TaskSetting, plan: TaskTrialPlan, agent: NeedsProgram, trial: PlannedTrial) -> str:
    task, env = plan.task, environment(setting, plan)
    root = await setting.make_root(task)
    if root.compose or starts_something(root.entrypoint) or task.steps:
        return ""  # what is started or set up first may bring the program; each trial looks for itself
    workdir = workdir_of(task, root)
    nowhere = Trajectory(session_id="", agent="", version="")
    access = ModelAccess(model=trial.model)  # it is only looked at what is there
    context = agent_context(setting, plan, trial, None, workdir, env, access, nowhere, lambda *_: None)
    sandbox = setting.backend.sandbox(sandbox_request(setting, task, trial, root, env, suffix="look"))
    await sandbox.start()
    try:
        await plan.workspace.lay_out(sandbox, workdir, made=workdir == root.workdir)
        if loose := task.environment.loose_files:
            await sandbox.upload(loose, workdir)
        return await agent.missing(task, sandbox, trial.model, context)
    finally:
        with suppress(SandboxError):
            await sandbox.stop()
