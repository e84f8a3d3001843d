"""Agents that treat the process they run in badly; scenarios of the tests name them `rough_agents:Crash`."""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import os
import random
import time
from typing import Any

from proctor.agents.base import AgentFailed, AgentResult
from proctor.agents.shell import run_shell


class Agent:
    """Does one harmless command, then what its subclass does."""

    version = "1"

    @property
    def name(self) -> str:
        return type(self).__name__

    async def run(self, task: Any, sandbox: Any, model: Any, context: Any) -> AgentResult:
        await run_shell(sandbox, context, "echo work", log="agent.txt")
        call = {"tool_call_id": "1", "function_name": "shell", "arguments": {"command": "echo work"}}
        context.trajectory.add("agent", "work", tool_calls=[call], results=[("1", "")])
        return await self.misbehave(context)

    async def misbehave(self, context: Any) -> AgentResult:
        return AgentResult(usage={"steps": 1, "tool_calls": 1})


class Good(Agent):
    """Does nothing bad."""


class Crash(Agent):
    """Raises what nobody expects."""

    async def misbehave(self, context: Any) -> AgentResult:
        raise ZeroDivisionError("the agent has a bug")


class GivesUp(Agent):
    """Says that it failed."""

    async def misbehave(self, context: Any) -> AgentResult:
        raise AgentFailed("no idea")


class Hang(Agent):
    """Waits for what never comes."""

    async def misbehave(self, context: Any) -> AgentResult:
        await asyncio.Event().wait()
        raise AssertionError


class Block(Agent):
    """Never gives the event loop back."""

    async def misbehave(self, context: Any) -> AgentResult:
        while True:
            time.sleep(0.05)  # noqa: ASYNC251 - to block is the point


class Leave(Agent):
    """Ends the whole process, without a word."""

    async def misbehave(self, context: Any) -> AgentResult:
        os._exit(7)


class LeaveOne(Agent):
    """Ends the process and leaves another that holds on to all it had open."""

    async def misbehave(self, context: Any) -> AgentResult:
        if os.fork() == 0:
            time.sleep(600)  # noqa: ASYNC251 - whoever cleans up must end it
        os._exit(7)


class Segfault(Agent):
    """Breaks the interpreter."""

    async def misbehave(self, context: Any) -> AgentResult:
        faulthandler.disable()  # what is meant to happen needs no report
        ctypes.string_at(0)
        raise AssertionError


class Dice(Agent):
    """Does something else each time, whatever the seed."""

    async def misbehave(self, context: Any) -> AgentResult:
        context.trajectory.add("agent", f"rolled {random.getrandbits(64)}")
        return AgentResult(usage={"steps": 2, "tool_calls": 1})


class Seeded(Agent):
    """Does something else for each seed, and the same for the same."""

    async def misbehave(self, context: Any) -> AgentResult:
        context.trajectory.add("agent", f"rolled {random.Random(context.seed).getrandbits(64)}")
        return AgentResult(usage={"steps": 2, "tool_calls": 1})


class Talks(Agent):
    """Uses tokens and prints."""

    async def misbehave(self, context: Any) -> AgentResult:
        context.trajectory.add("agent", "thinking", metrics={"prompt_tokens": 30, "completion_tokens": 12})
        return AgentResult()
