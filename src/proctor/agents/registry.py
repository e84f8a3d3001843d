"""From a name in a spec to an agent: built in, by import path, or by entry point."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, cast

from proctor.agents.base import Agent
from proctor.errors import NotFoundError, UsageError
from proctor.spec.node import nearest

BUILT_IN = {
    "oracle": ("proctor.agents.oracle", "Oracle", "the task author's own solution"),
    "nop": ("proctor.agents.nop", "Nop", "does nothing"),
    "command": ("proctor.agents.command", "Command", "any command-line agent"),
    "replay": ("proctor.agents.replay", "Replay", "the commands of a recorded trajectory"),
    "terminal": (
        "proctor.agents.terminal",
        "Terminal",
        "a model with a shell, over an OpenAI-compatible endpoint",
    ),
}
"""Name → module, class, one line of help."""


def make_agent(name: str, options: Mapping[str, Any] | None = None) -> Agent:
    """The agent of that name, made with the spec's `agent_options`."""
    found = _find(name)
    try:
        agent = found(**dict(options or {}))
    except TypeError as error:
        raise UsageError(f"agent '{name}' does not take these agent_options: {error}") from error
    for attribute in ("name", "version", "run"):
        if not hasattr(agent, attribute):
            raise UsageError(f"agent '{name}' has no '{attribute}'; see docs/how-to/write-an-agent.md")
    return cast("Agent", agent)


def _find(name: str) -> Any:
    if name in BUILT_IN:
        module, attribute, _ = BUILT_IN[name]
        return getattr(import_module(module), attribute)
    for entry in entry_points(group="proctor.agents", name=name):
        return entry.load()
    if ":" in name:
        return _import(name)
    raise NotFoundError(
        f"'{name}' is not an agent{nearest(name, BUILT_IN)}; a class of yours is named module:Class"
    )


def _import(path: str) -> Any:
    module, _, attribute = path.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"agent '{path}' cannot be imported: {error}") from error
