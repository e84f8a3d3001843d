"""From a name in a spec to an agent: built in, by import path, or by entry point."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from proctor.agents.base import Agent
from proctor.agents.options import check_options
from proctor.errors import NotFoundError, ProctorError, UsageError
from proctor.spec.node import nearest

BUILT_IN = {
    "oracle": ("proctor.agents.oracle", "Oracle", "runs the task author's own solution"),
    "nop": ("proctor.agents.nop", "Nop", "does nothing"),
    "command": ("proctor.agents.command", "Command", "installs and runs any command-line agent"),
    "replay": ("proctor.agents.replay", "Replay", "repeats the commands of a recorded trajectory"),
    "terminal": (
        "proctor.agents.terminal",
        "Terminal",
        "a model with a shell, over an OpenAI-compatible endpoint",
    ),
}
"""Name → module, class, one line of help."""


GROUP = "proctor.agents"
"""Entry points under which packages register agents of their own."""


def installed() -> tuple[EntryPoint, ...]:
    """The agents that installed packages register, by name; a name that is built in is not theirs."""
    found = {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in BUILT_IN}
    return tuple(found[name] for name in sorted(found))


def known_agents() -> tuple[str, ...]:
    """The names of the built-in agents and of those that other packages provide."""
    return (*BUILT_IN, *(each.name for each in installed()))


def make_agent(name: str, options: Mapping[str, Any] | None = None) -> Agent:
    """The agent of that name, made with the spec's `agent_options`."""
    found = find_class(name)
    check_options(name, found, options or {})
    try:
        agent = found(**dict(options or {}))
    except ProctorError:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise UsageError(f"agent '{name}' cannot be made with these agent_options: {why}") from error
    for attribute in ("name", "version", "run"):
        if not hasattr(agent, attribute):
            raise UsageError(f"agent '{name}' has no '{attribute}'; see docs/how-to/write-an-agent.md")
    return cast("Agent", agent)


def find_class(name: str) -> Any:
    """The class behind a name."""
    if name in BUILT_IN:
        module, attribute, _ = BUILT_IN[name]
        return getattr(import_module(module), attribute)
    for entry in entry_points(group=GROUP, name=name):
        return entry.load()
    if ":" in name:
        return _import(name)
    raise NotFoundError(
        f"'{name}' is not an agent{nearest(name, BUILT_IN)}; name your own class as module:Class"
    )


def _import(path: str) -> Any:
    module, _, attribute = path.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise UsageError(f"agent '{path}' cannot be imported: {why}") from error
