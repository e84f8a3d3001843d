"""Any command-line agent: an install step, a command template, an environment."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from string import Template
from typing import TYPE_CHECKING

from proctor.agents.base import API_NAMES, AgentContext, AgentFailed, AgentResult
from proctor.agents.shell import first_program, missing, run_shell
from proctor.errors import UsageError

if TYPE_CHECKING:
    from proctor.model.task import Task
    from proctor.sandbox.base import Sandbox

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
        first = context.step is None or context.step == task.steps[0].name
        program = first_program(self.command.substitute(self._values(task, model, context)))
        if self.install or not first or program is None:
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
        if self.install:
            installed, _ = await run_shell(
                sandbox, context, self.install, log="install.txt", timeout_s=self.install_timeout_s
            )
            if installed.exit_code or installed.timed_out:
                raise AgentFailed(
                    f"the install step ended with {installed.exit_code}; see the log install.txt"
                )
        script = self.command.substitute(self._values(task, model, context))
        offers = {**variables(context), **({"PROCTOR_TRAJECTORY": _PRIOR} if context.prior else {})}
        keep = 'mkdir -p /tmp && printf %s "$PROCTOR_INSTRUCTION" > /tmp/instruction.md\n'
        result, text = await run_shell(
            sandbox,
            context,
            keep + script,
            log="agent.txt",
            env={**context.access.env, **self.env, **offers, "PROCTOR_INSTRUCTION": context.instruction},
            timeout_s=context.allowed_s,
            copies=[(context.prior, _PRIOR)] if context.prior else (),
        )
        call = {"tool_call_id": "1", "function_name": "command", "arguments": {"script": script}}
        context.trajectory.add("agent", "Run the command.", tool_calls=[call], results=[("1", text)])
        if result.timed_out:
            raise TimeoutError
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
