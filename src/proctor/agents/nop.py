"""Does nothing. If it passes, the task tests nothing."""

from __future__ import annotations

from proctor.agents.base import AgentContext, AgentResult
from proctor.model.task import Task
from proctor.sandbox.base import Sandbox


class Nop:
    """Ends at once."""

    name = "nop"
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
