"""The two agents that check a task: its author's solution, which must pass, and nothing, which must not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from proctor.agents.base import AgentContext, AgentResult, AgentTimeout
from proctor.agents.shell import run_shell
from proctor.errors import TaskError

if TYPE_CHECKING:
    from proctor.model.task import Task
    from proctor.sandbox.base import Sandbox


class Oracle:
    """Uploads `solution/` and runs `solve.sh`. If that does not pass, the task is broken."""

    name = "oracle"
    apis = ()
    keeps_time = True
    version = "1"

    async def run(
        self,
        task: Task,
        sandbox: Sandbox,
        model: str | None,  # noqa: ARG002 - it thinks for itself
        context: AgentContext,
    ) -> AgentResult:
        """Run the solution of the task, or of the current step."""
        solution = solution_of(task, context.step)
        if solution is None:
            raise TaskError(f"{task.name}: the task has no solution/solve.sh, which the oracle runs")
        result, text = await run_shell(
            sandbox,
            context,
            ["/bin/bash", "/solution/solve.sh"],
            log="oracle.txt",
            env={"DEBIAN_FRONTEND": "noninteractive", **context.solution_env},
            timeout_s=context.timeout_s,
            copies=[(solution, "/solution")],
        )
        call = {"tool_call_id": "1", "function_name": "solve.sh", "arguments": {}}
        context.trajectory.add("agent", "Run the solution.", tool_calls=[call], results=[("1", text)])
        if result.timed_out:
            raise AgentTimeout
        return AgentResult(exit_code=result.exit_code, usage={"steps": 1, "tool_calls": 1})


def solution_of(task: Task, step: str | None) -> Path | None:
    """Where the author's solution is."""
    if step is None:
        return task.solution
    return next(each.solution for each in task.steps if each.name == step) or task.solution


class Nop:
    """Does nothing. If it passes, the task tests nothing."""

    name = "nop"
    apis = ()
    version = "1"

    async def run(
        self,
        task: Task,  # noqa: ARG002 - it does nothing
        sandbox: Sandbox,  # noqa: ARG002 - same
        model: str | None,  # noqa: ARG002 - same
        context: AgentContext,
    ) -> AgentResult:
        """Do nothing."""
        context.trajectory.add("agent", "Do nothing.")
        return AgentResult(usage={"steps": 0, "tool_calls": 0})
