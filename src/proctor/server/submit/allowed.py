"""What a spec that comes through the API may ask for.

Whoever submits it is not on the server's machine and may not reach it: no path of it, no variable of its
environment, no program outside a sandbox, no network that only the server has. What needs trust in a person
needs the scope `code`. docs/decisions/0029-the-server.md lists every key that reaches the host.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from proctor.model.secret import references_in
from proctor.model.spec import Spec, TaskEntry

_PATHS = "a path on the server"
_INSTEAD = 'name an upload or a stored task: path = {upload = "ID"} or path = {task = "NAME"}'
_HOLDS_KEY = (
    "the spec holds a secret; store keys of providers with PUT /api/secrets/NAME, which gives them to the "
    "model gateway and to nobody else"
)
_OVERRIDES = ("overlay_files", "repo")
"""Keys of overrides that name files or repositories which the server itself would fetch."""


def refusals(spec: Spec, *, code: bool, base_dir: str, folders: Collection[str]) -> Iterator[tuple[str, str]]:
    """What is not allowed: where in the spec, and why. `folders` are those of uploads and stored tasks."""
    if spec.experiments and not code:
        yield "experiment", "experiments are code that runs on the server; this needs the scope 'code'"
    if spec.sources and not code:
        yield "sources", f"'sources' is {_PATHS}; this needs the scope 'code'"
    if spec.output_dir is not None:
        yield "output_dir", f"'output_dir' is {_PATHS}; the server chooses where results are kept"
    if spec.base_dir != base_dir:
        yield "base_dir", f"'base_dir' is {_PATHS}; name uploads and stored tasks instead"
    if spec.pass_env:
        yield "pass_env", "'pass_env' would hand variables of the server to tasks"
    if spec.secrets:
        yield next(iter(spec.secrets)), _HOLDS_KEY
    for _ in references_in(spec.to_mapping()):
        yield "secret", "'{secret: NAME}' would hand variables of the server to tasks"
        break
    yield from _sandbox(spec, code=code)
    for at, entry in enumerate(spec.tasks):
        for key, reason in _entry(entry, code=code, folders=folders):
            yield f"tasks.{at}.{key}", reason


def _sandbox(spec: Spec, *, code: bool) -> Iterator[tuple[str, str]]:
    sandbox = spec.sandbox
    if sandbox.host_root and not code:
        yield "sandbox.host_root", "'host_root' shows the server's own system; this needs the scope 'code'"
    if sandbox.network_allow:
        yield "sandbox.network_allow", "'network_allow' opens networks that only the server reaches"
    if sandbox.backend != "auto" and not code:
        yield "sandbox.backend", "the server chooses the kind of sandbox; choosing needs the scope 'code'"


def _entry(entry: TaskEntry, *, code: bool, folders: Collection[str]) -> Iterator[tuple[str, str]]:
    if entry.source != "path" or entry.path not in folders:
        yield entry.source, f"'{entry.source}' is {_PATHS}; {_INSTEAD}"
    if isinstance(entry.overrides, str):
        yield "overrides", f"'overrides' is {_PATHS}; write the overrides themselves into the spec"
    elif entry.overrides:
        for key in _OVERRIDES:
            if key in entry.overrides:
                yield f"overrides.{key}", f"'{key}' names files or repositories that the server would read"
    for agent in entry.agents:
        yield from _agent(agent, entry, code=code)


def _agent(agent: str, entry: TaskEntry, *, code: bool) -> Iterator[tuple[str, str]]:
    if ":" in agent:
        if not code:
            yield "agent", f"'{agent}' is code that runs on the server; this needs the scope 'code'"
        return
    from proctor.agents.registry import find_class

    for option in getattr(find_class(agent), "path_options", ()):
        if option in entry.agent_options:
            yield f"agent_options.{option}", f"'{option}' of agent '{agent}' is {_PATHS}"
    version = entry.agent_options.get("version")
    if isinstance(version, str) and ("/" in version or ".." in version):
        yield "agent_options.version", f"'{version[:40]}' is not a version"
