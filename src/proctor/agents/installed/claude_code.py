"""Anthropic's Claude Code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proctor.agents.base import AgentContext
from proctor.agents.installed.base import HOME, Event, InstalledAgent, Steps, text_of
from proctor.agents.installed.recipes import Npm


class ClaudeCode(InstalledAgent):
    """Claude Code by Anthropic."""

    name = "claude-code"
    version = "2.1.325"
    recipe = Npm(
        package="@anthropic-ai/claude-code",
        program="lib/node_modules/@anthropic-ai/claude-code/bin/claude.exe",
    )
    apis = ("messages",)
    long_instruction = ()

    def arguments(self, instruction: str, model: str, context: AgentContext) -> Sequence[str]:  # noqa: ARG002
        """Print what is done, ask nobody, and leave the web alone."""
        options = ["--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"]
        tools = ["--disallowedTools", "WebSearch WebFetch"]
        return ["-p", "--model", model, *options, *tools, "--", instruction]

    def environment(self, model: str, context: AgentContext) -> Mapping[str, str]:  # noqa: ARG002
        """No retries of its own, no traffic but for its model."""
        small = ("ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL")
        return {
            **dict.fromkeys(small, model),
            "CLAUDE_CONFIG_DIR": f"{HOME}/claude",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "0",
            "DISABLE_AUTOUPDATER": "1",
            "IS_SANDBOX": "1",
        }

    def read(self, event: Event, steps: Steps) -> None:
        """Its stream-json."""
        read_stream(event, steps)


def read_stream(event: Event, steps: Steps) -> None:
    """Messages of the model and of its tools. One answer may come in several events, under one id."""
    message = event.get("message") or {}
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": text_of(content)}]
    if event.get("type") == "assistant":
        texts = [part.get("text", "") for part in parts if part.get("type") == "text"]
        thoughts = [part.get("thinking", "") for part in parts if part.get("type") == "thinking"]
        calls = [
            (part["id"], part["name"], part["input"]) for part in parts if part.get("type") == "tool_use"
        ]
        known = message.get("id") is not None and message.get("id") == steps.state.get("message")
        steps.state["message"] = message.get("id")
        metrics = {} if known else _usage(message.get("usage") or {})
        thought = "\n".join(thoughts)
        steps.say("\n".join(texts), calls=calls, reasoning=thought, metrics=metrics, goes_on=known)
    elif event.get("type") == "user":
        for part in parts:
            if part.get("type") == "tool_result":
                steps.result(part.get("tool_use_id"), text_of(part.get("content")))
    elif event.get("type") == "result":  # an answer's events come before its last tokens are counted
        told = _usage(event.get("usage") or {})
        steps.measure({name: max(0, value - steps.used.get(name, 0)) for name, value in told.items()})


def _usage(usage: Event) -> dict[str, float]:
    cached = usage.get("cache_read_input_tokens") or 0
    return {
        "prompt_tokens": (usage.get("input_tokens") or 0)
        + cached
        + (usage.get("cache_creation_input_tokens") or 0),
        "completion_tokens": usage.get("output_tokens") or 0,
        "cached_tokens": cached,
    }
