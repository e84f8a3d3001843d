"""What each agent is, what it needs, and what of that is missing on this machine."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from proctor.agents.registry import BUILT_IN, find_class, installed
from proctor.errors import UsageError
from proctor.sandbox.choose import AUTO, BACKENDS
from proctor.settings import Settings

_NEEDS = {
    "oracle": ("a task with a solution folder",),
    "command": ("its program in the sandbox, or agent_options.install to fetch it",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInfo:
    """One agent that a spec can name."""

    name: str
    line: str
    """What it does, in one line."""
    source: str
    """`built in`, or what the entry point or the spec names."""
    version: str = ""
    needs: tuple[str, ...] = ()
    """What a spec or a person must give it."""
    missing: tuple[str, ...] = ()
    """What of that is not there; nothing: it can run here."""

    @property
    def ready(self) -> bool:
        """Whether it can run here."""
        return not self.missing


def describe_all(settings: Settings) -> list[AgentInfo]:
    """The built-in agents, then those of installed packages."""
    entries = [(name, "built in") for name in BUILT_IN]
    entries += [(entry.name, entry.value) for entry in installed()]
    return [describe(name, source, settings) for name, source in entries]


def describe(name: str, source: str, settings: Settings) -> AgentInfo:
    """One agent. What cannot be imported is described by why."""
    try:
        found = find_class(name)
    except UsageError as error:
        return AgentInfo(name=name, line="", source=source, missing=(str(error),))
    except Exception as error:  # noqa: BLE001 - code of strangers, run while it is imported
        why = f"it cannot be imported: {type(error).__name__}: {error}"
        return AgentInfo(name=name, line="", source=source, missing=(why,))
    needs = [*_NEEDS.get(name, ()), *(f"agent_options.{option}" for option in _required(found))]
    missing = [] if _a_sandbox() else ["a sandbox: 'proctor doctor' says what is in the way"]
    if getattr(found, "needs_model", False):
        needs += ["a model", "PROCTOR_MODEL_BASE_URL, and PROCTOR_MODEL_API_KEY if the endpoint wants a key"]
        if not settings.model_base_url:
            missing.append("PROCTOR_MODEL_BASE_URL is not set")
    version = getattr(found, "version", "")
    return AgentInfo(
        name=name,
        line=BUILT_IN[name][2] if name in BUILT_IN else _first_line(found),
        source=source,
        version=version if isinstance(version, str) else "",
        needs=tuple(needs),
        missing=tuple(missing),
    )


def _required(found: Any) -> list[str]:
    """Options without a default."""
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return []
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [each.name for each in parameters if each.default is each.empty and each.kind in named]


def _first_line(found: Any) -> str:
    return (inspect.getdoc(found) or "").strip().partition("\n")[0].rstrip(".")


def _a_sandbox() -> bool:
    """Whether any kind of sandbox may work here."""
    return any(not BACKENDS[each].obstacle() for each in AUTO)
