"""The built-in agent: a model, a shell in the sandbox, and a loop. Run → ask → execute → observe."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proctor.agents.base import (
    AgentContext,
    AgentFailed,
    AgentResult,
    AgentUnavailable,
    BudgetExhausted,
)
from proctor.agents.chat import Chat, Reply, ToolCall
from proctor.agents.shell import run_shell
from proctor.agents.trajectory import cut
from proctor.disk import read_small
from proctor.errors import TaskError
from proctor.model.canonical import digest
from proctor.model.task import McpServer, Task
from proctor.sandbox.base import Sandbox

SYSTEM = """You solve a task in a Linux sandbox by running shell commands.
Call the tool `shell` with one command at a time, or answer with one fenced ```sh block.
Each command starts in {workdir} in a new shell: nothing but files is kept between commands.
You have {steps} commands. When the task is solved, call the tool `finish`, or answer with DONE alone."""
TOOLS = (
    {
        "type": "function",
        "function": {
            "name": "shell",
            "description": "Run a shell command and see its output and exit code.",
            "parameters": {
                "type": "object",
                "properties": {"command": {"type": "string"}},
                "required": ["command"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "finish",
            "description": "Say that the task is solved.",
            "parameters": {"type": "object", "properties": {}},
        },
    },
)
_FENCED = re.compile(r"```(?:sh|bash|shell)\s*\n(.*?)```", re.DOTALL)
_OBSERVED = 16_000
_MAX_PRIOR_BYTES = 16 << 20
_SILENT = 3
"""Replies in a row without a command after which the agent counts as having given up."""


class Terminal:
    """An LLM loop over a shell. `options` go to the endpoint as they are (temperature, max_tokens …)."""

    name = "terminal"
    needs_model = True
    apis = ("chat",)

    def __init__(
        self,
        *,
        options: Mapping[str, Any] | None = None,
        system: str = SYSTEM,
        request_timeout_s: float = 600.0,
    ) -> None:
        self.options = dict(options or {})
        self.system = system
        self.request_timeout_s = request_timeout_s
        self.version = digest(["1", self.options, system])[:12]

    async def run(
        self,
        task: Task,  # noqa: ARG002 - the context holds what the agent may know
        sandbox: Sandbox,
        model: str | None,
        context: AgentContext,
    ) -> AgentResult:
        """Loop until the model says it is done or a limit is reached."""
        if not model:
            raise AgentUnavailable("agent terminal needs a model: set 'model' in the spec")
        access = context.access
        if not access.base_url:
            raise AgentUnavailable("agent terminal needs a provider of models: see 'proctor models'")
        async with Chat(access.base_url, access.token, timeout_s=self.request_timeout_s) as chat:
            return await self._loop(chat, sandbox, model, context)

    async def _loop(self, chat: Chat, sandbox: Sandbox, model: str, context: AgentContext) -> AgentResult:
        system = self.system.format(workdir=context.workdir, steps=context.limits.steps)
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": system},
            *remembered(context.prior),
            {"role": "user", "content": context.instruction + offered(context)},
        ]
        silent = 0
        for number in range(context.limits.steps):
            reply = await chat.ask(model, messages, tools=TOOLS, options=self.options)
            messages.append(dict(reply.message) | {"role": "assistant"})
            calls = wanted(reply)
            done, results = await self._execute(sandbox, context, calls)
            self._note(context, reply, calls, results)
            if done or finished(reply, calls):
                return AgentResult(usage={"steps": number + 1, "requests": number + 1})
            silent = 0 if calls else silent + 1
            if silent >= _SILENT:
                return AgentResult(status="gave_up", usage={"steps": number + 1, "requests": number + 1})
            messages += observations(reply, results)
        raise BudgetExhausted(f"the agent used all of its {context.limits.steps} steps")

    async def _execute(
        self, sandbox: Sandbox, context: AgentContext, calls: list[ToolCall]
    ) -> tuple[bool, list[tuple[str | None, str]]]:
        results: list[tuple[str | None, str]] = []
        for call in calls:
            if call.name == "finish":
                return True, [*results, (call.id, "finished")]
            command = command_of(call)
            if command is None:
                results.append(
                    (call.id, f"error: call shell with a 'command', not {call.name}({call.arguments})")
                )
                continue
            context.log("agent.txt", f"$ {command}\n".encode())
            result, text = await run_shell(
                sandbox, context, command, log="agent.txt", timeout_s=context.limits.command_timeout_s
            )
            ending = "stopped at the time limit" if result.timed_out else f"exit code {result.exit_code}"
            results.append((call.id, f"{cut(text, _OBSERVED)}\n[{ending}]"))
        return False, results

    def _note(
        self,
        context: AgentContext,
        reply: Reply,
        calls: list[ToolCall],
        results: list[tuple[str | None, str]],
    ) -> None:
        context.trajectory.add(
            "agent",
            reply.text,
            tool_calls=[
                {
                    "tool_call_id": c.id,
                    "function_name": c.name,
                    "arguments": {"command": command_of(c) or c.arguments},
                }
                for c in calls
            ],
            results=results,
            metrics=reply.usage,
        )


def wanted(reply: Reply) -> list[ToolCall]:
    """The calls of a reply: its tool calls, or the one fenced block."""
    if reply.tool_calls:
        return list(reply.tool_calls)
    blocks = _FENCED.findall(reply.text)
    if len(blocks) > 1:
        raise AgentFailed("the model sent several fenced blocks; it was asked for one")
    return (
        [ToolCall(id="fenced", name="shell", arguments=json.dumps({"command": blocks[0]}))] if blocks else []
    )


def command_of(call: ToolCall) -> str | None:
    """The command of a shell call; None when the model wrote nonsense."""
    try:
        arguments = json.loads(call.arguments)
        command = arguments["command"] if call.name == "shell" else None
    except (ValueError, KeyError, TypeError):
        return None
    return command if isinstance(command, str) else None


def finished(reply: Reply, calls: list[ToolCall]) -> bool:
    """Whether the model says, without calling anything, that it is done."""
    return not calls and reply.text.strip().rstrip(".").upper() == "DONE"


def observations(reply: Reply, results: list[tuple[str | None, str]]) -> list[dict[str, Any]]:
    """The next message to the model."""
    if reply.tool_calls:
        return [{"role": "tool", "tool_call_id": call, "content": text} for call, text in results]
    text = "\n".join(text for _, text in results)
    return [
        {"role": "user", "content": text or "No command was found. Send one, or DONE if the task is solved."}
    ]


def offered(context: AgentContext) -> str:
    """The servers and skills, as a text that follows the instruction; empty when there are none."""
    parts = []
    if context.mcp_servers:
        lines = "\n".join(f"- {each.name}: {_reached(each)}" for each in context.mcp_servers)
        parts.append(f"These MCP servers are available for this task:\n{lines}")
    if context.skills_dir:
        parts.append(
            f"Skills for this task are in {context.skills_dir}, one folder each. Its SKILL.md says what a "
            "skill is for and how to use it; read those that fit before you start."
        )
    return "".join(f"\n\n{part}" for part in parts)


def _reached(server: McpServer) -> str:
    if server.transport == "stdio":
        return f"stdio, command: {' '.join([server.command or '', *server.args])}"
    return f"{server.transport}, url: {server.url}"


def remembered(file: Path | None) -> list[dict[str, Any]]:
    """Earlier work as messages of a chat; TaskError when the file is not an ATIF document."""
    if file is None:
        return []
    try:
        steps = json.loads(read_small(file, _MAX_PRIOR_BYTES))["steps"]
        return [message for step in steps for message in _messages(step)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TaskError(f"{file}: not an ATIF trajectory: {error!r}") from error


def _messages(step: dict[str, Any]) -> list[dict[str, Any]]:
    """A step's message, with its tool calls and their results as text."""
    text = _text(step.get("message") or "")
    source = step.get("source")
    if source not in {"user", "agent", "system"}:
        raise ValueError(f"a step has the source {source!r}")
    if source != "agent":
        return [{"role": source, "content": text}]
    for call in step.get("tool_calls") or ():
        text += f"\n[{call['function_name']} {json.dumps(call.get('arguments') or {})}]"
    found = [{"role": "assistant", "content": text.strip()}]
    results = (step.get("observation") or {}).get("results") or ()
    seen = "\n".join(_text(each.get("content") or "") for each in results)
    return [*found, {"role": "user", "content": seen}] if seen else found


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content)
