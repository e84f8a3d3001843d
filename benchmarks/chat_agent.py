"""The plainest agent with a model: so many calls through the gateway, then one command in its sandbox."""

from __future__ import annotations

from typing import Any

from proctor.agents.base import AgentContext, AgentResult
from proctor.agents.chat import Chat


class Calls:
    """Asks as often as it is told to."""

    name = "calls"
    version = "1"
    apis = ("chat",)
    needs_model = True

    def __init__(self, *, turns: int = 10) -> None:
        self.turns = turns

    async def run(self, task: Any, sandbox: Any, model: str, context: AgentContext) -> AgentResult:  # noqa: ARG002
        assert context.access.ask
        chat = Chat(context.access.ask)
        messages: list[Any] = [{"role": "user", "content": context.instruction}]
        for _ in range(self.turns):
            reply = await chat.ask(model, messages)
            messages += [{**reply.message, "role": "assistant"}, {"role": "user", "content": "Go on."}]
            context.trajectory.add("agent", reply.text, metrics=reply.usage)
        await sandbox.exec(["/bin/sh", "-c", "echo hello > /app/hello.txt"])
        return AgentResult(usage={"steps": self.turns})
