"""What an agent is given for one task, or for one step of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from proctor.agents.base import AgentContext, LogWriter, ModelAccess
from proctor.agents.oracle import Oracle
from proctor.agents.trajectory import Trajectory
from proctor.model.plan import PlannedTrial
from proctor.model.task import Step, Task
from proctor.model.trial import Lease
from proctor.trial.task.prepare import TaskTrialPlan
from proctor.trial.task.setting import TaskSetting, filled


def begin_trajectory(
    setting: TaskSetting, plan: TaskTrialPlan, trial: PlannedTrial, lease: Lease
) -> Trajectory:
    """An empty trajectory for one attempt."""
    return Trajectory(
        session_id=f"{setting.run_id}/{trial.key[:16]}/{lease.attempt}",
        agent=plan.agent.name,
        # As planned: the agent itself knows its secrets, and may have made its version from them.
        version=trial.agent_version or plan.agent.version,
        model=trial.model,
    )


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


def _solution_env(setting: TaskSetting, plan: TaskTrialPlan) -> dict[str, str]:
    """Only the oracle needs them, and only then must they be set."""
    if plan.agent.name != Oracle.name:
        return {}
    return filled(setting, plan, plan.task.solution_env, "solution")


def _prior(task: Task, step: Step | None) -> Path | None:
    """Earlier work that the agent is to know of; only the first step has some."""
    first = step is None or step.name == task.steps[0].name
    return task.trajectory if first else None
