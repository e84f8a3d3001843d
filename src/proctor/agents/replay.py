"""Do again what a recorded trajectory did: its shell commands, in order. No model is asked."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

from proctor.agents.base import AgentContext, AgentResult
from proctor.agents.shell import run_shell
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
        whole = hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files))
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
        file = self.source / f"{task.name.replace('/', '__')}.json"
        if not file.is_file():
            raise UsageError(f"agent replay: {file} is missing")
        return file


def recorded_commands(file: Path) -> list[str]:
    """The shell commands of an ATIF trajectory."""
    if file.stat().st_size > _MAX_BYTES:
        raise UsageError(f"{file}: larger than {_MAX_BYTES} bytes")
    try:
        document = json.loads(file.read_bytes())
        steps: list[dict[str, Any]] = document["steps"]
        return [
            str(call["arguments"]["command"])
            for step in steps
            for call in step.get("tool_calls", ())
            if "command" in call.get("arguments", {})
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{file}: not an ATIF trajectory: {error!r}") from error
