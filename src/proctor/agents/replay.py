"""Do again what a recorded trajectory did: its shell commands, in order. No model is asked.

`proctor replay` is something else: it runs the agent itself again, with its models' answers from a tape.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from proctor.agents import atif
from proctor.agents.base import AgentContext, AgentResult, AgentUnavailable
from proctor.agents.shell import run_shell
from proctor.agents.terminal.session import Session
from proctor.disk import read_small
from proctor.errors import UsageError

if TYPE_CHECKING:
    from proctor.model.task import Task
    from proctor.sandbox.base import Sandbox

_MAX_BYTES = 256 << 20
_MAX_PAUSE_S = 3600
_INTERRUPT = b"\x03"


class Replay:
    """Replays `trajectory`, an ATIF file, or a folder with one `<task>.json` per task.

    It waits `pause_s` before each command, in place of the model that thought about it.
    """

    name = "replay"
    apis = ()
    path_options = ("trajectory",)
    """Options that name files of this machine: they are stored with a run."""
    api_options = ("pause_s",)

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
        self._recorded: dict[Path, Recorded] = {}
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
        import asyncio

        file = self._file(task)
        recorded = self._recorded.get(file)
        if recorded is None:
            recorded = self._recorded[file] = read_recorded(file)
        session = Session(sandbox, context) if recorded.stays else None
        if session:
            await session.open()
        for number, script in enumerate(recorded.commands, 1):
            if self.pause_s:
                await asyncio.sleep(self.pause_s)
            shown = await _run(sandbox, context, session, script)
            call = {"tool_call_id": str(number), "function_name": "shell", "arguments": {"command": script}}
            context.trajectory.add("agent", "", tool_calls=[call], results=[(str(number), shown)])
        if session:
            await session.close()
        count = len(recorded.commands)
        return AgentResult(usage={"steps": count, "tool_calls": count})

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


async def _run(sandbox: Sandbox, context: AgentContext, session: Session | None, script: str) -> str:
    """What came of a command; one that does not end in the shell that stays is interrupted."""
    limit_s = context.limits.command_timeout_s
    if session is None:
        result, text = await run_shell(sandbox, context, script, log="agent.txt", timeout_s=limit_s)
        return f"{text}\n[exit code {result.exit_code}]"
    seen = await session.run(script, limit_s)
    if session.running:
        seen = await session.type(_INTERRUPT, limit_s)
    return f"{seen.text}\n[exit code {seen.exit_code}]"


class Recorded(NamedTuple):
    """The shell commands of a trajectory."""

    commands: list[str]
    stays: bool
    """Whether they were given to one shell that stayed, as `terminal` has it, or to a new one each."""


def read_recorded(file: Path) -> Recorded:
    """The shell commands of an ATIF trajectory, those of sub-agents too, and how they were run."""
    try:
        recording = atif.read(read_small(file, _MAX_BYTES))
    except (OSError, atif.NotATIF) as error:
        raise UsageError(f"{file}: {error}") from error
    commands = [
        str(call.arguments["command"])
        for step in recording.done
        for call in step.calls
        if "command" in call.arguments
    ]
    agent = recording.document.get("agent")
    return Recorded(commands, isinstance(agent, Mapping) and agent.get("name") == "terminal")
