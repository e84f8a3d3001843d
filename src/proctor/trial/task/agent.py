"""What an agent is given for a task or a step of it, and what must be there before it begins: its program.

What is missing in an untouched sandbox was never there, and is nobody's zero. After the agent has begun
nothing is looked up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from proctor.agents.base import (
    AgentContext,
    AgentResult,
    AgentTimeout,
    AgentUnavailable,
    LogWriter,
    ModelAccess,
)
from proctor.agents.oracle import Oracle
from proctor.agents.trajectory import Trajectory
from proctor.errors import HostError, ProctorError, SandboxError, UsageError
from proctor.model.plan import PlannedTrial
from proctor.model.task import Step, Task
from proctor.sandbox.base import Root, Sandbox
from proctor.trial.progress import LiveSteps
from proctor.trial.task.prepare import TaskTrialPlan, prepared
from proctor.trial.task.ready import starts_something
from proctor.trial.task.sandboxes import sandbox_request, workdir_of
from proctor.trial.task.setting import TaskSetting, environment, filled

if TYPE_CHECKING:
    from proctor.trial.task_trial import TaskAttempt

_GRACE_S = 120.0
"""How long an agent that keeps its time may take to end its program and to collect what that left."""


def begin_trajectory(attempt: TaskAttempt) -> Trajectory:
    """An empty trajectory for one attempt; of an agent with a model its steps are shown while it works."""
    trial, agent = attempt.trial, attempt.plan.agent
    trajectory = Trajectory(
        session_id=f"{attempt.setting.run_id}/{trial.key[:16]}/{attempt.lease.attempt}",
        agent=agent.name,
        # As planned: the agent itself knows its secrets, and may have made its version from them.
        version=trial.agent_version or agent.version,
        model=trial.model,
    )
    if attempt.models.used:
        trajectory.on_step = LiveSteps(attempt.folder, attempt.redactor).add
    return trajectory


def agent_context(
    setting: TaskSetting,
    plan: TaskTrialPlan,
    trial: PlannedTrial,
    step: Step | None,
    workdir: str,
    env: Mapping[str, str],
    access: ModelAccess,
    trajectory: Trajectory,
    log: LogWriter,
) -> AgentContext:
    """The instruction, the limits and the places; of a step where there is one, else of the task."""
    task = plan.task
    own = step.agent if step else task.agent
    return AgentContext(
        instruction=step.instruction if step else task.instruction,
        workdir=workdir,
        env=env,
        user=own.user,
        timeout_s=setting.timeout_s or own.timeout_s,
        seed=trial.seed % 2**32,
        limits=setting.allowance,
        step=step.name if step else None,
        mcp_servers=task.environment.mcp_servers,
        skills_dir=task.environment.skills_dir,
        prior=_prior(task, step),
        solution_env=_solution_env(setting, plan),
        access=access,
        trajectory=trajectory,
        log=log,
    )


async def work(attempt: TaskAttempt, step: Step | None, access: ModelAccess) -> AgentResult:
    """Let the agent work at its task or a step, within its time; TimeoutError with that time.

    Any other time that passed is not the agent's: HostError.
    """
    agent, task, sandbox, model = attempt.plan.agent, attempt.task, attempt.sandbox, attempt.trial.model
    context = agent_context(
        attempt.setting,
        attempt.plan,
        attempt.trial,
        step,
        attempt.workdir,
        attempt.env,
        access,
        attempt.trajectory,
        attempt.logs.write,
    )
    context = replace(context, standstill_s=attempt.models.standstill_s)
    await check_program(agent, task, sandbox, model, context)
    attempt.trajectory.add("user", context.instruction)
    opened = getattr(agent, "opened", None)
    keeps_time = getattr(agent, "keeps_time", False)
    limit: asyncio.Timeout | None = None
    try:
        async with AsyncExitStack() as stack:
            working = partial(agent.run, task, sandbox, model, context)
            if opened:  # what it sets up first is not its time
                working = await stack.enter_async_context(opened(task, sandbox, model, context))
            seconds = context.timeout_s + (_GRACE_S if keeps_time else 0)
            async with attempt.models.clock.limit(seconds) as limit:
                return await working()
    except TimeoutError as error:
        expired = limit is not None and limit.expired()
        if isinstance(error, AgentTimeout) or (expired and not keeps_time):
            raise TimeoutError(f"{context.timeout_s:g}") from error
        raise HostError(_stalled(error, context.timeout_s, expired=expired)) from error


def _stalled(error: TimeoutError, limit_s: float, *, expired: bool) -> str:
    """What did not answer in time while an agent worked, as far as that is known."""
    if expired:
        return f"the sandbox did not end the agent within {_GRACE_S:g} s of its limit of {limit_s:g} s"
    what = str(error) or "something that the agent waited for did not answer in time"
    return f"{what}; the agent's own limit of {limit_s:g} s was not reached"


def _solution_env(setting: TaskSetting, plan: TaskTrialPlan) -> dict[str, str]:
    """Only the oracle needs them, and only then must they be set."""
    if plan.agent.name != Oracle.name:
        return {}
    return filled(setting, plan, plan.task.solution_env, "solution")


def _prior(task: Task, step: Step | None) -> Path | None:
    """Earlier work that the agent is to know of; only the first step has some."""
    first = step is None or step.name == task.steps[0].name
    return task.trajectory if first else None


def with_agent(root: Root, agent: object) -> Root:
    """The root with what the agent brings along, read-only: an agent that is installed on this machine."""
    binds = getattr(agent, "binds", None)
    return replace(root, binds={**root.binds, **binds()}) if binds else root


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
        plan = await prepared(plans, trial)
        if isinstance(plan.agent, NeedsProgram):
            return await _look(setting, plan, plan.agent, trial)
    return ""


async def _look(setting: TaskSetting, plan: TaskTrialPlan, agent: NeedsProgram, trial: PlannedTrial) -> str:
    task, env = plan.task, environment(setting, plan)
    root = with_agent(await setting.make_root(task), agent)
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
