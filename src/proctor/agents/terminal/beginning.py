"""What a model is told before its first command, beside the instruction: offers of the task, earlier work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proctor.agents import atif
from proctor.agents.base import AgentContext
from proctor.disk import read_small
from proctor.errors import TaskError

if TYPE_CHECKING:
    from proctor.model.task import McpServer

_MAX_PRIOR_BYTES = 16 << 20


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
        steps = atif.read(read_small(file, _MAX_PRIOR_BYTES)).steps
    except (OSError, atif.NotATIF) as error:
        raise TaskError(f"{file}: {error}") from error
    # What a sub-agent did came back to the agent in a result.
    return [message for step in steps if not step.depth for message in _messages(step)]


def _messages(step: atif.Step) -> list[dict[str, Any]]:
    """A step's message, with its tool calls and their results as text."""
    if step.source != "agent":
        return [{"role": step.source, "content": step.message}]
    text = step.message
    for call in step.calls:
        text += f"\n[{call.name} {json.dumps(call.arguments)}]"
    found = [{"role": "assistant", "content": text.strip()}]
    seen = "\n".join(step.results)
    return [*found, {"role": "user", "content": seen}] if seen else found
