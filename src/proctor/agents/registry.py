"""From a name in a spec to an agent: built in, by import path, or by entry point; and what each one needs."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, cast, get_args, get_origin, get_type_hints

from proctor.agents.base import API_NAMES, Agent
from proctor.errors import NotFoundError, ProctorError, UsageError
from proctor.settings import load_settings
from proctor.spec.node import nearest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from proctor.agents.installed.base import InstalledAgent
    from proctor.agents.installed.folders import Installed
    from proctor.model.spec import AgentCode

BUILT_IN = {
    "oracle": ("proctor.agents.oracle", "Oracle", "runs the task author's own solution"),
    "nop": ("proctor.agents.oracle", "Nop", "does nothing"),
    "command": ("proctor.agents.command", "Command", "installs and runs any command-line agent"),
    "replay": (
        "proctor.agents.replay",
        "Replay",
        "repeats the shell commands of a recorded trajectory, without a model",
    ),
    "episode": (
        "proctor.agents.episodes.agent",
        "EpisodeAgent",
        "a Python file with reset, observe and act, for step-by-step tasks",
    ),
    "terminal": (
        "proctor.agents.terminal.agent",
        "Terminal",
        "a model with a shell",
    ),
    "claude-code": ("proctor.agents.installed.claude_code", "ClaudeCode", "Claude Code by Anthropic"),
    "codex": ("proctor.agents.installed.codex", "Codex", "Codex by OpenAI"),
    "qwen-code": ("proctor.agents.installed.qwen_code", "QwenCode", "Qwen Code by Alibaba"),
    "gemini-cli": ("proctor.agents.installed.gemini_cli", "GeminiCli", "Gemini CLI by Google"),
    "aider": ("proctor.agents.installed.aider", "Aider", "Aider by Paul Gauthier"),
    "opencode": ("proctor.agents.installed.opencode", "OpenCode", "OpenCode by Anomaly"),
    "mini-swe-agent": (
        "proctor.agents.installed.mini_swe_agent",
        "MiniSweAgent",
        "mini-swe-agent by the makers of SWE-bench",
    ),
    "openhands": ("proctor.agents.installed.openhands", "OpenHands", "OpenHands by All Hands AI"),
    "terminus-2": (
        "proctor.agents.harbor.agent",
        "Terminus2",
        "Terminus 2 by the makers of Terminal-Bench; harbor:NAME is any other agent of Harbor",
    ),
}
"""Name → module, class, one line of help."""


TOOLS = {"litellm": ("proctor.agents.installed.litellm", "LiteLLM")}
"""What is installed as agents are and is none: name → module, class."""
HARBOR = "harbor:"
"""How the names of Harbor's agents begin."""
GROUP = "proctor.agents"
"""Entry points under which packages register agents of their own."""


def entry_points(*, group: str, name: str | None = None) -> Iterable[EntryPoint]:
    """Those of a group. What reads them is slow to import, so that is done only where there are some."""
    if not any(f"[{group}]" in text for text in _entry_texts()):
        return ()
    from importlib import metadata

    return (
        metadata.entry_points(group=group) if name is None else metadata.entry_points(group=group, name=name)
    )


def _entry_texts() -> Iterator[str]:
    for folder in sys.path:
        for file in Path(folder or ".").glob("*.*-info/entry_points.txt"):
            with suppress(OSError, ValueError):
                yield file.read_text()


def installed() -> tuple[EntryPoint, ...]:
    """The agents that installed packages register, by name; a name that is built in is not theirs."""
    found = {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in BUILT_IN}
    return tuple(found[name] for name in sorted(found))


def known_agents() -> tuple[str, ...]:
    """The names of the built-in agents and of those that other packages provide."""
    return (*BUILT_IN, *(each.name for each in installed()))


def make_agent(name: str, options: Mapping[str, Any] | None = None, code: AgentCode | None = None) -> Agent:
    """The agent of that name, made with the spec's `agent_options`. `code`: its module, of one run's own."""
    found = _own_class(name, code) if code else find_class(name)
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
    if name.startswith(HARBOR):
        from proctor.agents.harbor.agent import named

        return named(name)
    if ":" in name:
        return _import(name)
    raise NotFoundError(
        f"'{name}' is not an agent{nearest(name, BUILT_IN)}; name your own class as module:Class"
    )


def _own_class(path: str, code: AgentCode) -> Any:
    from proctor.agents.own_modules import load

    return _import(path, partial(load, code))


def _import(path: str, import_by_name: Callable[[str], ModuleType] = import_module) -> Any:
    module, _, attribute = path.partition(":")
    try:
        return getattr(import_by_name(module), attribute)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise UsageError(f"agent '{path}' cannot be imported: {why}") from error


_WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    NoneType: "null",
    dict: "a mapping",
    list: "a list",
}


def check_options(agent: str, found: Any, options: Mapping[str, Any]) -> None:
    """Refuse an option that the class does not have, that is missing, or whose type does not fit."""
    try:
        parameters, hints = _signature(found)
    except (TypeError, ValueError, NameError, AttributeError):  # code of strangers need not be annotated
        return
    named = {
        name: each
        for name, each in parameters.items()
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    }
    if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        for name in options:
            if name not in named:
                hint = nearest(name, named) or "; it has none"
                raise UsageError(f"agent_options: '{name}' is not an option of agent '{agent}'{hint}")
    for name, each in named.items():
        if each.default is each.empty and name not in options:
            raise UsageError(f"agent_options: agent '{agent}' needs the option '{name}'")
        if name in options and name in hints and not _fits(options[name], hints[name]):
            wanted = " or ".join(dict.fromkeys(_words(hints[name])))
            raise UsageError(
                f"agent_options: '{name}' of agent '{agent}' must be {wanted}, not {options[name]!r:.80}"
            )


@lru_cache(maxsize=256)
def _signature(found: Any) -> tuple[Mapping[str, inspect.Parameter], dict[str, Any]]:
    """What a class takes, and of which types: looked at once, for a server makes agents all day."""
    hints = get_type_hints(found.__init__ if inspect.isclass(found) else found)
    return inspect.signature(found).parameters, hints


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value from a spec can be of a type. A type that no spec can write is not judged."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in arguments)
    kind = _plain(origin or hint)
    if kind in (dict, list):
        inner = arguments[-1] if arguments else Any
        if not isinstance(value, Mapping if kind is dict else list | tuple):
            return False
        return all(_fits(each, inner) for each in (value.values() if isinstance(value, Mapping) else value))
    if kind in (int, float):
        return isinstance(value, int | kind) and not isinstance(value, bool)
    return kind is None or isinstance(value, kind)


def _words(hint: Any) -> list[str]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return [word for each in arguments for word in _words(each)]
    kind = _plain(origin or hint)
    if kind is dict and len(arguments) == 2 and (inner := _plain(arguments[1])) in (str, int, float):
        return [f"a mapping of names to {'texts' if inner is str else 'numbers'}"]
    return [_WORDS[kind]] if kind else []


def _plain(hint: Any) -> type | None:
    if not inspect.isclass(hint):
        return None
    if hint in _WORDS:
        return hint
    if issubclass(hint, Mapping):
        return dict
    return (
        list if hint.__module__ == "collections.abc" and hint.__name__ in ("Sequence", "Iterable") else None
    )


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
    apis: tuple[str, ...] = ()
    """The APIs by which it calls models; nothing: it calls none."""
    installed: tuple[Installed, ...] = ()
    """The versions of it on this machine, for one that `proctor agents install` installs."""

    @property
    def ready(self) -> bool:
        """Whether it can run here."""
        return not self.missing


def describe_all(provided: Collection[str]) -> list[AgentInfo]:
    """The built-in agents, then those of installed packages. `provided`: APIs of providers that are ready."""
    entries = [(name, "built in") for name in BUILT_IN]
    entries += [(entry.name, entry.value) for entry in installed()]
    return [describe(name, source, provided) for name, source in entries]


def describe(name: str, source: str, provided: Collection[str]) -> AgentInfo:
    """One agent. What cannot be imported is described by why."""
    try:
        found = find_class(name)
    except UsageError as error:
        return AgentInfo(name=name, line="", source=source, missing=(str(error),))
    except Exception as error:  # noqa: BLE001 - code of strangers, run while it is imported
        why = f"it cannot be imported: {type(error).__name__}: {error}"
        return AgentInfo(name=name, line="", source=source, missing=(why,))
    apis = tuple(getattr(found, "apis", API_NAMES))
    needs = [
        *_NEEDS.get(name, ()),
        *getattr(found, "needs", ()),
        *(f"agent_options.{option}" for option in _required(found)),
    ]
    missing = [] if _a_sandbox() else ["a sandbox: 'proctor doctor' says what is in the way"]
    if getattr(found, "needs_model", False):
        needs.append(f"a model, of a provider that speaks {' or '.join(apis)}: see 'proctor models'")
        if not set(apis) & set(provided):
            local = "PROCTOR_MODEL_BASE_URL or " if "chat" in apis else ""
            missing.append(f"no provider of {' or '.join(apis)} is ready: set {local}a provider's key")
    here = _installed_versions(found)
    if here is not None and not any(each.version == found.version for each in here):
        missing.append(f"{found.version} is not installed: run 'proctor agents install {package_of(found)}'")
    version = getattr(found, "version", "")
    return AgentInfo(
        name=name,
        line=BUILT_IN[name][2] if name in BUILT_IN else _first_line(found),
        source=source,
        version=version if isinstance(version, str) else "",
        needs=tuple(needs),
        missing=tuple(missing),
        apis=apis,
        installed=tuple(here or ()),
    )


def find_installable(name: str) -> type[InstalledAgent]:
    """An agent that can be installed; UsageError for another one."""
    if name in TOOLS:
        module, attribute = TOOLS[name]
        return cast("type[InstalledAgent]", getattr(import_module(module), attribute))
    found = find_class(f"{HARBOR}terminus-2" if f"{name}:" == HARBOR else name)
    if not _is_installable(found):
        names = ", ".join((*(each for each in BUILT_IN if _is_installable(find_class(each))), *TOOLS))
        raise UsageError(f"agent '{name}' needs no installation; those that do are {names}")
    return cast("type[InstalledAgent]", found)


def _is_installable(found: Any) -> bool:
    return hasattr(found, "recipe") and hasattr(found, "binds")


def _installed_versions(found: Any) -> list[Installed] | None:
    """The versions of an agent that are on this machine; None for one that is not installed at all."""
    if not _is_installable(found):
        return None
    from proctor.agents.installed.folders import versions

    return versions(load_settings().cache_dir, package_of(found))


def package_of(found: Any) -> str:
    """What is installed for an agent: several may need the same."""
    return str(getattr(found, "package", "") or found.name)


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
    from proctor.sandbox.choose import AUTO, BACKENDS

    return any(not BACKENDS[each].obstacle() for each in AUTO)
