"""What a task offers its agent beside the instruction: servers of tools, skills, earlier work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from proctor.agents.base import AgentContext
from proctor.disk import read_small
from proctor.errors import TaskError
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


def variables(context: AgentContext) -> dict[str, str]:
    """The same for an agent that is a command."""
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
