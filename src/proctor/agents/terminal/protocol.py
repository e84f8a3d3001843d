"""What a model may do and how it says so: by calls of tools, or in fenced blocks where it has no tools."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from proctor.agents.chat import Reply, ToolCall

SYSTEM = """You solve a task in a Linux sandbox, through a shell that starts in {workdir}.
The shell stays between commands: folder, variables and jobs are kept. Your tools:
- shell: run a command. You see its output and exit code. If it has not ended after timeout_s (seconds, at \
most {command_s}), it goes on and you are told.
- wait: wait for a command that is still at work.
- keys: type into a running program, such as <C-c> to interrupt it, <Enter>, <Esc>, <Up>, <C-d>, or any text.
- finish: say that the task is solved. You are asked once to confirm it.
Without tools, answer with one fenced block: ```sh with a command, ```keys with keys, ```wait with seconds; \
or with DONE alone when the task is solved.
Long outputs are shown without their middle. You have {steps} steps."""
CUT_OFF = "[the agent was ended before this had; its log has the output so far]"
"""What the trajectory says of an action that was under way when the agent's time was over."""
NOTHING = (
    "There was no command in your answer. Call a tool: shell, keys, wait or finish; or answer with one "
    "fenced ```sh block with a command, or with DONE alone if the task is solved."
)
SEVERAL = "Your answer had several fenced blocks, and none was run. Send one at a time."
CONFIRM = (
    "The task will be judged as it is now. If it is solved, confirm: call finish again, or answer with DONE "
    "alone. Otherwise go on."
)
BUSY = (
    "error: the command was not run, because another one is still at work. Wait for it, send keys to it, or "
    "interrupt it with the keys <C-c>."
)
IDLE = "error: no command is at work, so there is nothing to wait for."
_FENCED = re.compile(r"```(sh|bash|shell|keys|wait)[ \t]*\n(.*?)```", re.DOTALL)
_SECONDS = {"type": "number", "description": "How long to wait for what comes of it."}


def _tool(name: str, description: str, properties: Mapping[str, Any], required: Sequence[str] = ()) -> Any:
    parameters = {"type": "object", "properties": dict(properties), "required": list(required)}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


TOOLS = (
    _tool(
        "shell",
        "Run a command in the shell and see its output and exit code.",
        {
            "command": {"type": "string"},
            "timeout_s": {"type": "number", "description": "How long to wait for its end."},
        },
        ["command"],
    ),
    _tool(
        "keys",
        "Type into the program that runs in the shell. Names of keys are in angle brackets: <Enter>, <C-c>.",
        {"keys": {"type": "string"}, "seconds": _SECONDS},
        ["keys"],
    ),
    _tool("wait", "Wait for the command that runs in the shell.", {"seconds": _SECONDS}),
    _tool("finish", "Say that the task is solved.", {}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One thing that a model wants done."""

    id: str
    kind: Literal["shell", "keys", "wait", "finish", "mistake"]
    text: str = ""
    """The command, the keys, or what is wrong."""
    seconds: float | None = None
    name: str = ""
    """What the model called it."""
    arguments: Mapping[str, Any]

    def as_call(self) -> dict[str, Any]:
        """The same as a trajectory writes it."""
        return {"tool_call_id": self.id, "function_name": self.name, "arguments": dict(self.arguments)}


def wanted(reply: Reply) -> list[Action]:
    """What a reply asks for: its tool calls, its one fenced block, or the word DONE."""
    if reply.tool_calls:
        return [_called(call) for call in reply.tool_calls]
    blocks = _FENCED.findall(reply.text)
    if len(blocks) > 1:
        return [Action(id="fenced", kind="mistake", text=SEVERAL, name="text", arguments={})]
    if blocks:
        name, content = blocks[0]
        return [_fenced("shell" if name in {"sh", "bash"} else name, content)]
    if reply.text.strip().rstrip(".").upper() == "DONE":
        return [Action(id="done", kind="finish", name="finish", arguments={})]
    return []


def _fenced(name: str, content: str) -> Action:
    arguments: dict[str, Any] = {"shell": "command", "keys": "keys", "wait": "seconds"}
    value: Any = content.removesuffix("\n") if name == "keys" else content
    if name == "wait":
        value = _number(content.strip())
    return _action("fenced", name, {arguments[name]: value})


def _called(call: ToolCall) -> Action:
    try:
        arguments = json.loads(call.arguments or "{}")
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        return _mistake(
            call.id, call.name, {"arguments": call.arguments}, "its arguments are not a JSON object"
        )
    return _action(call.id, call.name, arguments)


def _action(id_: str, name: str, arguments: Mapping[str, Any]) -> Action:
    match name:
        case "shell" if isinstance(arguments.get("command"), str):
            text, seconds = arguments["command"], arguments.get("timeout_s")
        case "keys" if isinstance(arguments.get("keys"), str):
            text, seconds = arguments["keys"], arguments.get("seconds")
        case "wait":
            text, seconds = "", arguments.get("seconds")
        case "finish":
            text, seconds = "", None
        case "shell":
            return _mistake(id_, name, arguments, "it needs a text 'command'")
        case "keys":
            return _mistake(id_, name, arguments, "it needs a text 'keys'")
        case _:
            return _mistake(id_, name, arguments, "there is no such tool; use shell, keys, wait or finish")
    return Action(id=id_, kind=name, text=text, seconds=_number(seconds), name=name, arguments=arguments)


def _mistake(id_: str, name: str, arguments: Mapping[str, Any], why: str) -> Action:
    text = f"error: {name} was not called: {why}"
    return Action(id=id_, kind="mistake", text=text, name=name, arguments=arguments)


def _number(value: Any) -> float | None:
    """A number of seconds as a model may write it; None where it is none."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if 0 <= found < 1e6 else None


def observations(reply: Reply, results: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """The messages that answer a reply."""
    if reply.tool_calls:
        return [{"role": "tool", "tool_call_id": call, "content": text} for call, text in results]
    return [{"role": "user", "content": "\n".join(text for _, text in results) or NOTHING}]
