"""What a spec that comes through the API may hold: a list of what is allowed, key by key.

Whoever submits it is not on the server's machine and may not reach it: no path of it, no variable of its
environment, no program outside a sandbox, no network that only the server has. A key that is not listed here
is refused, so a new key of the grammar gets through only when somebody has thought about it. What needs trust
in a person needs the scope `code`. docs/decisions/0040-what-an-api-spec-may-hold.md says why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from proctor.errors import NotFoundError
from proctor.model.secret import references_in
from proctor.model.spec import Spec
from proctor.spec.bodies import TASK_DEFAULTS
from proctor.spec.node import Node

_PATHS = "a path on the server"
_INSTEAD = 'name an upload or a stored task: path = {upload = "ID"} or path = {task = "NAME"}'
_HOLDS_KEY = (
    "the spec holds a secret; store keys of providers with PUT /api/secrets/NAME, which gives them to the "
    "model gateway and to nobody else"
)
_VERSION = re.compile(r"\w[\w.+-]{0,63}", re.ASCII)


class Api(StrEnum):
    """Whether a key may come through the API, whatever its value."""

    YES = "yes"
    CODE = "code"
    """With the scope `code`."""
    RUN = "run"
    """It names a run; `reading` puts the id of one that the caller may see in its place, or refuses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Who submits a spec, as far as its keys depend on it."""

    code: bool
    """Whether the caller has the scope `code`."""
    folders: Collection[str]
    """The folders of the uploads and stored tasks that the spec names."""


@dataclass(frozen=True, slots=True)
class Inside:
    """The value is a mapping of these keys, or a list of such mappings."""

    keys: Mapping[str, Rule]
    text: bool = False
    """Whether a text may stand for the mapping."""


Items = Mapping[str, Node]
Check = Callable[[Node, Items, Origin], Iterator[tuple[str, str]]]
"""Takes a value, all keys beside it and the origin; gives what is wrong: where below the value, and why."""
Rule = Api | Inside | Check


def refusals(root: Node, origin: Origin) -> Iterator[tuple[str, str]]:
    """What of a spec is not allowed, of the tree that the grammar has read: where in it, and why."""
    top = _given(root)
    entries = top.get("tasks")
    shared = {key: item for key, item in top.items() if entries and key in TASK_DEFAULTS}
    yield from _refused({key: item for key, item in top.items() if key not in shared}, SPEC, origin)
    for at, entry in enumerate(entries.value if entries else ()):
        for where, reason in _refused({**shared, **_given(entry)}, TASK, origin):
            yield f"tasks.{at}.{where}", reason


def secrets_in(spec: Spec) -> Iterator[tuple[str, str]]:
    """Secrets that the spec holds, and variables of the server that it names as secrets."""
    if spec.secrets:
        yield next(iter(spec.secrets)), _HOLDS_KEY
    for _ in references_in(spec.to_mapping()):
        yield "secret", "'{secret: NAME}' would hand variables of the server to tasks"
        break


def _given(node: Node) -> dict[str, Node]:
    return {key: item for key, item in node.value.items() if item.value is not None}


def _refused(items: Items, keys: Mapping[str, Rule], origin: Origin) -> Iterator[tuple[str, str]]:
    for key, item in items.items():
        rule = keys.get(key)
        if rule is None:
            yield key, f"'{key}' {_WHY.get(key, 'is not allowed in a spec that comes through the API')}"
        elif isinstance(rule, Inside):
            for where, reason in _refused_inside(key, item, rule, origin):
                yield f"{key}{where}", reason
        elif rule is Api.CODE:
            if not origin.code:
                why = _CODE.get(key, "is about code of the server")
                yield key, f"'{key}' {why}; this needs the scope 'code'"
        elif not isinstance(rule, Api):
            for where, reason in rule(item, items, origin):
                yield f"{key}{where}", reason


def _refused_inside(key: str, item: Node, rule: Inside, origin: Origin) -> Iterator[tuple[str, str]]:
    if isinstance(item.value, dict):
        for where, reason in _refused(_given(item), rule.keys, origin):
            yield f".{where}", reason
    elif isinstance(item.value, list):
        for at, row in enumerate(item.value):
            for where, reason in _refused_inside(key, row, rule, origin):
                yield f".{at}{where}", reason
    elif not rule.text:
        yield "", f"'{key}' is {_PATHS}; write what it holds into the spec"


def _path(item: Node, _: Items, origin: Origin) -> Iterator[tuple[str, str]]:
    if item.value not in origin.folders:
        yield "", f"'path' is {_PATHS}; {_INSTEAD}"


def _agent(item: Node, _: Items, origin: Origin) -> Iterator[tuple[str, str]]:
    for agent in _texts(item):
        if ":" in agent and not origin.code:
            yield "", f"'{agent[:80]}' is code that runs on the server; this needs the scope 'code'"


def _agent_options(item: Node, items: Items, _: Origin) -> Iterator[tuple[str, str]]:
    """Each option against what the agent's class allows. Whoever may run code may tell it anything."""
    from proctor.agents.registry import find_class

    agents = _texts(items["agent"]) if "agent" in items else []
    for agent in agents or ["oracle"]:
        if ":" in agent:
            continue
        try:
            allowed = getattr(find_class(agent), "api_options", ())
        except NotFoundError:  # the plan says so
            continue
        for option in item.value:
            if option not in allowed:
                known = f"only {', '.join(allowed)}" if allowed else "none"
                yield f".{option}", f"'{option}' of '{agent}' cannot be set through the API; {known} can"
    version = item.value.get("version")
    if version and isinstance(version.value, str) and not _VERSION.fullmatch(version.value):
        yield ".version", f"'{version.value[:40]}' is not a version"


def _texts(item: Node) -> list[str]:
    rows = item.value if isinstance(item.value, list) else [item]
    return [row.value for row in rows if isinstance(row.value, str)]


RETRIES: Mapping[str, Rule] = {
    "infrastructure": Api.YES,
    "provider": Api.YES,
    "backoff_s": Api.YES,
    "max_backoff_s": Api.YES,
}
SANDBOX: Mapping[str, Rule] = {
    "network": Api.YES,
    "allowed_hosts": Api.YES,
    "cpus": Api.YES,
    "memory_bytes": Api.YES,
    "storage_bytes": Api.YES,
    "pids": Api.YES,
    "host_root": Api.CODE,
    "backend": Api.CODE,
}
GATES: Mapping[str, Rule] = {
    "baseline": Api.RUN,
    "rule": Api.YES,
    "name": Api.YES,
    "rules": Inside({"rule": Api.YES, "name": Api.YES}, text=True),
}
ITERATIONS: Mapping[str, Rule] = {
    "warmup": Api.CODE,
    "measured": Api.CODE,
    "max_time_s": Api.CODE,
    "target_width": Api.CODE,
    "min_measured": Api.CODE,
    "max_measured": Api.CODE,
    "calm": Api.CODE,
}
EXPERIMENT: Mapping[str, Rule] = {
    "experiment": Api.CODE,
    "params": Api.CODE,
    "sweep": Api.CODE,
    "strategy": Api.CODE,
    "samples": Api.CODE,
    "iterations": Inside(ITERATIONS),
    "instrumentation": Api.CODE,
    "isolation": Api.CODE,
    "loops": Api.CODE,
    "gc": Api.CODE,
    "python": Api.CODE,
    "better": Api.CODE,
}
RUBRIC: Mapping[str, Rule] = {"id": Api.YES, "criterion": Api.YES, "weight": Api.YES}
JUDGE: Mapping[str, Rule] = {
    "model": Api.YES,
    "rubrics": Inside(RUBRIC, text=True),
    "votes": Api.YES,
    "reward": Api.YES,
    "max_bytes": Api.YES,
    "timeout_s": Api.YES,
    "budget_usd": Api.YES,
    "budget_tokens": Api.YES,
    "budget_requests": Api.YES,
}
EVALUATION: Mapping[str, Rule] = {
    "timeout_sec": Api.YES,
    "environment_variables": Api.YES,
    "rubrics": Api.YES,
    "test_scripts": Api.YES,
}
"""Scripts and tests that have no content are files of the task itself."""
OVERRIDES: Mapping[str, Rule] = {
    "prompt": Api.YES,
    "lm_instructions": Api.YES,
    "inject_files": Api.YES,
    "remove_repo_paths": Api.YES,
    "environment_variables": Api.YES,
    "evaluation": Inside(EVALUATION),
    "rubrics": Api.YES,
    "test_scripts": Api.YES,
}
TASK: Mapping[str, Rule] = {
    "path": _path,
    "agent": _agent,
    "agent_options": _agent_options,
    "model": Api.YES,
    "rollouts": Api.YES,
    "include": Api.YES,
    "exclude": Api.YES,
    "apply_overrides": Api.YES,
    "overrides": Inside(OVERRIDES),
    "environment_variables": Api.YES,
    "sweep": Api.YES,
    "judge": Inside(JUDGE, text=True),
}
SPEC: Mapping[str, Rule] = {
    "$schema": Api.YES,
    "tasks": Api.YES,
    "experiments": Inside(EXPERIMENT),
    **EXPERIMENT,
    "name": Api.YES,
    "seed": Api.YES,
    "tags": Api.YES,
    "notes": Api.YES,
    "parallel": Api.YES,
    "timeout_s": Api.YES,
    "retries": Inside(RETRIES),
    "budget_usd": Api.YES,
    "budget_tokens": Api.YES,
    "budget_requests": Api.YES,
    "attempt_budget_usd": Api.YES,
    "attempt_budget_tokens": Api.YES,
    "attempt_budget_requests": Api.YES,
    "tape": Api.RUN,
    "tape_speed": Api.YES,
    "engine": Api.YES,
    "labels": Api.YES,
    "sandbox": Inside(SANDBOX),
    "gates": Inside(GATES, text=True),
    "sources": Api.CODE,
}
_CODE = {
    "experiment": "is code that runs on the server",
    "sources": f"is {_PATHS}",
    "host_root": "shows the server's own system",
    "backend": "chooses the kind of sandbox, which the server does",
}
"""Why keys need the scope `code`."""
_WHY = {
    **dict.fromkeys(("prepared_dir", "dataset", "zip"), f"is {_PATHS}; {_INSTEAD}"),
    **dict.fromkeys(
        ("overlay_files", "overlay_repo_files"),
        "names files that the server would read; put them into the upload, or use inject_files",
    ),
    "repo": "names a repository that the server would fetch; put it into the upload",
    "output_dir": f"is {_PATHS}; the server chooses where results are kept",
    "base_dir": f"is {_PATHS}; name uploads and stored tasks instead",
    "pass_env": "would hand variables of the server to tasks",
    "network_allow": "opens networks that only the server reaches",
}
"""Why keys are refused, where more can be said than that they are."""
