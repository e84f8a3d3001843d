"""Do again what a recorded trajectory did: its shell commands, in order. No model is asked.

`proctor replay` is something else: it runs the agent itself again, with its models' answers from a tape.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

from proctor.agents.base import AgentContext, AgentResult, AgentUnavailable
from proctor.agents.shell import run_shell
from proctor.disk import read_small
from proctor.errors import UsageError
from proctor.model.task import Task
from proctor.sandbox.base import Sandbox

_MAX_BYTES = 256 << 20
_MAX_PAUSE_S = 3600


class Replay:
    """Replays `trajectory`, an ATIF file, or a folder with one `<task>.json` per task.

    It waits `pause_s` before each command, in place of the model that thought about it.
    """

    name = "replay"
    apis = ()
    path_options = ("trajectory",)
    """Options that name files of this machine: they are stored with a run."""

    def __init__(self, *, trajectory: str, pause_s: float = 0.0) -> None:
        self.source = Path(trajectory)
        if (
            isinstance(pause_s, bool)
            or not isinstance(pause_s, int | float)
            or not 0 <= pause_s <= _MAX_PAUSE_S
        ):
            raise UsageError(
                f"agent replay: pause_s is {pause_s!r}, not a number of seconds up to {_MAX_PAUSE_S}"
            )
        self.pause_s = pause_s
        self._commands: dict[Path, list[str]] = {}
        if not self.source.exists():
            raise UsageError(f"agent replay: {trajectory}: no such file or folder")
        files = [self.source] if self.source.is_file() else sorted(self.source.glob("*.json"))
        digests = [hashlib.sha256(read_small(file, _MAX_BYTES)).digest() for file in files]
        whole = hashlib.sha256(b"".join(digests))
        self.version = whole.hexdigest()[:12]

    async def run(
        self,
        task: Task,
        sandbox: Sandbox,
        model: str | None,  # noqa: ARG002 - nothing is asked
        context: AgentContext,
    ) -> AgentResult:
        """Run each recorded command; go on after one that fails, as the recorded agent did."""
        file = self._file(task)
        commands = self._commands.get(file)
        if commands is None:
            commands = self._commands[file] = recorded_commands(file)
        for number, script in enumerate(commands, 1):
            if self.pause_s:
                await asyncio.sleep(self.pause_s)
            result, text = await run_shell(
                sandbox, context, script, log="agent.txt", timeout_s=context.limits.command_timeout_s
            )
            call = {"tool_call_id": str(number), "function_name": "shell", "arguments": {"command": script}}
            shown = f"{text}\n[exit code {result.exit_code}]"
            context.trajectory.add("agent", "", tool_calls=[call], results=[(str(number), shown)])
        return AgentResult(usage={"steps": len(commands), "tool_calls": len(commands)})

    def _file(self, task: Task) -> Path:
        if self.source.is_file():
            return self.source
        if absent := self.absent(task.name):
            raise AgentUnavailable(absent)
        return self._recording(task.name)

    def _recording(self, task: str) -> Path:
        return self.source / f"{task.replace('/', '__')}.json"

    def absent(self, task: str) -> str:
        """What is missing on this machine before the agent can do a task; empty when nothing is."""
        if self.source.is_file() or self._recording(task).is_file():
            return ""
        return f"agent replay: {self._recording(task)} is missing: there is no recording of task '{task}'"


def recorded_commands(file: Path) -> list[str]:
    """The shell commands of an ATIF trajectory."""
    try:
        document = json.loads(read_small(file, _MAX_BYTES))
        steps: list[dict[str, Any]] = document["steps"]
        return [
            str(call["arguments"]["command"])
            for step in steps
            for call in step.get("tool_calls", ())
            if "command" in call.get("arguments", {})
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{file}: not an ATIF trajectory: {error!r}") from error
