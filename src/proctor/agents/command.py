"""Any command-line agent: an install step, a command template, an environment."""

from __future__ import annotations

import json
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from string import Template
from typing import TYPE_CHECKING

from proctor.agents.base import (
    API_NAMES,
    AgentContext,
    AgentFailed,
    AgentResult,
    AgentTimeout,
    AgentUnavailable,
)
from proctor.agents.shell import LONGEST_ARGUMENT, first_program, missing, run_shell
from proctor.errors import UsageError

if TYPE_CHECKING:
    from proctor.model.task import Task
    from proctor.sandbox.base import ExecResult, Sandbox

_PRIOR = "/tmp/trajectory.json"  # noqa: S108 - inside the sandbox
_NAMES = ("instruction", "instruction_file", "model", "workdir", "seed", "task")


class Command:
    """Runs a command inside the sandbox.

    `command` may use `$instruction`, `$instruction_file`, `$model`, `$workdir`, `$seed` and `$task`; each is
    quoted for the shell. A dollar sign of the shell's own is written `$$`. What the task offers is in
    `PROCTOR_MCP_SERVERS` (JSON), `PROCTOR_SKILLS_DIR` and `PROCTOR_TRAJECTORY` (a file). The way to its model
    is in variables that the providers' clients read, such as `OPENAI_BASE_URL` and `OPENAI_API_KEY`. `apis`
    says which APIs the program speaks, so that a model that it cannot use is refused.
    """

    name = "command"
    inside = True
    keeps_time = True
    api_options = ("command", "install", "env", "install_timeout_s", "apis")

    def __init__(
        self,
        *,
        command: str,
        install: str = "",
        env: Mapping[str, str] | None = None,
        install_timeout_s: float = 600.0,
        apis: Sequence[str] = API_NAMES,
    ) -> None:
        from proctor.model.canonical import digest

        self.command = Template(command)
        unknown = set(self.command.get_identifiers()) - set(_NAMES)
        if unknown or not self.command.is_valid():
            named = ", ".join(sorted(unknown)) or "a single $"
            raise UsageError(
                f"agent command: {named} is not known, only "
                f"${', $'.join(_NAMES)}; write $$ for a $ of the shell"
            )
        self.install = install
        self.env = dict(env or {})
        self.install_timeout_s = install_timeout_s
        if wrong := sorted(set(apis) - set(API_NAMES)):
            raise UsageError(f"agent command: apis are {', '.join(API_NAMES)}, not {', '.join(wrong)}")
        self.apis = tuple(apis)
        self.version = digest([command, install, self.env])[:12]
        self._found: set[tuple[object, ...]] = set()
        """Places in which the program was found; sandboxes of one task start alike."""

    async def missing(self, task: Task, sandbox: Sandbox, model: str | None, context: AgentContext) -> str:
        """What an untouched sandbox lacks for the command; empty when it has it, or after an install step.

        Asked before the agent begins, and once for all sandboxes that start alike.
        """
        if problem := self._too_long(context):
            return problem
        return "" if self.install else await self._lacks(task, sandbox, model, context)

    async def _lacks(self, task: Task, sandbox: Sandbox, model: str | None, context: AgentContext) -> str:
        program = first_program(self.command.substitute(self._values(task, model, context)))
        if program is None or not _is_first(task, context):
            return ""
        env = {**context.env, **self.env}
        place = (task.digest, program, context.workdir, context.user, tuple(sorted(env.items())))
        if place in self._found:
            return ""
        problem = await missing(sandbox, program, env=env, cwd=context.workdir, user=context.user)
        if problem:
            return (
                f"agent command: {problem}; use an image that has it, or fetch it with agent_options.install"
            )
        self._found.add(place)
        return ""

    async def run(
        self, task: Task, sandbox: Sandbox, model: str | None, context: AgentContext
    ) -> AgentResult:
        """Install, then run the command to its end."""
        async with self.opened(task, sandbox, model, context) as work:
            return await work()

    @asynccontextmanager
    async def opened(
        self, task: Task, sandbox: Sandbox, model: str | None, context: AgentContext
    ) -> AsyncIterator[Callable[[], Awaitable[AgentResult]]]:
        """The command, ready to run. Until then it is not its time, and what fails is its author's mistake.

        Before a later step of a task the agent may itself have broken what the install step needs.
        """
        if self.install:
            result, text = await run_shell(
                sandbox, context, self.install, log="install.txt", timeout_s=self.install_timeout_s
            )
            if result.exit_code or result.timed_out:
                kind = AgentUnavailable if _is_first(task, context) else AgentFailed
                raise kind(self._not_installed(result, text))
            if problem := await self._lacks(task, sandbox, model, context):
                raise AgentUnavailable(f"{problem}; its install step has run")
        yield partial(self._work, task, sandbox, model, context)

    def _not_installed(self, result: ExecResult, text: str) -> str:
        """What became of the install step, with its last line."""
        how = f"ended with exit code {result.exit_code}"
        if result.timed_out:
            how = f"did not end within {self.install_timeout_s:g} s (agent_options.install_timeout_s)"
        last = "".join(f": {line.strip()[:300]}" for line in text.strip().splitlines()[-1:])
        return f"agent command: the install step {how}{last}; see the log install.txt"

    def _too_long(self, context: AgentContext) -> str:
        """Why the instruction cannot be an argument of the command; empty when it can, or need not."""
        size = len(context.instruction.encode())
        if size <= LONGEST_ARGUMENT or "instruction" not in self.command.get_identifiers():
            return ""
        return (
            f"agent command: the instruction has {size:,} bytes, which is too long for an argument; use "
            "$instruction_file in place of $instruction"
        )

    async def _work(
        self, task: Task, sandbox: Sandbox, model: str | None, context: AgentContext
    ) -> AgentResult:
        script = self.command.substitute(self._values(task, model, context))
        offers = {**variables(context), **({"PROCTOR_TRAJECTORY": _PRIOR} if context.prior else {})}
        instruction = context.instruction.encode()
        long = len(instruction) > LONGEST_ARGUMENT
        given = {} if long else {"PROCTOR_INSTRUCTION": context.instruction}
        write = "cat" if long else 'printf %s "$PROCTOR_INSTRUCTION"'
        keep = f"mkdir -p /tmp && {write} > /tmp/instruction.md\n"
        result, text = await run_shell(
            sandbox,
            context,
            keep + script,
            log="agent.txt",
            env={**context.access.env, **self.env, **offers, **given},
            stdin=instruction if long else None,
            timeout_s=context.allowed_s,
            copies=[(context.prior, _PRIOR)] if context.prior else (),
        )
        call = {"tool_call_id": "1", "function_name": "command", "arguments": {"script": script}}
        context.trajectory.add("agent", "Run the command.", tool_calls=[call], results=[("1", text)])
        if result.timed_out:
            raise AgentTimeout
        return AgentResult(exit_code=result.exit_code, usage={"steps": 1, "tool_calls": 1})

    def _values(self, task: Task, model: str | None, context: AgentContext) -> dict[str, str]:
        values = {
            "instruction": context.instruction,
            "instruction_file": "/tmp/instruction.md",  # noqa: S108 - inside the sandbox
            "model": model or "",
            "workdir": context.workdir,
            "seed": str(context.seed),
            "task": task.name,
        }
        return {name: shlex.quote(value) for name, value in values.items()}


def _is_first(task: Task, context: AgentContext) -> bool:
    """Whether nothing of an agent has run in the sandbox yet."""
    return context.step is None or context.step == task.steps[0].name


def variables(context: AgentContext) -> dict[str, str]:
    """What the task offers beside the instruction: servers of tools (JSON), and skills."""
    found = {}
    if context.mcp_servers:
        servers = [
            {
                "name": each.name,
                "transport": each.transport,
                **({"url": each.url} if each.url else {}),
                **({"command": each.command, "args": list(each.args)} if each.command else {}),
            }
            for each in context.mcp_servers
        ]
        found["PROCTOR_MCP_SERVERS"] = json.dumps(servers)
    if context.skills_dir:
        found["PROCTOR_SKILLS_DIR"] = context.skills_dir
    return found
