"""The sides of a race as people name them: a spec, an agent, a model, both of them, a stored run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from proctor.agents.registry import known_agents
from proctor.errors import NotFoundError, UsageError
from proctor.gateway.providers import Providers
from proctor.model.spec import Spec, TaskEntry
from proctor.runs.process_resources import Resources
from proctor.spec.load import load

Role = Literal["baseline", "candidate"]
KINDS = ("spec", "agent", "model", "run")
_SPECS = {".yaml", ".yml", ".toml", ".json"}
_LIMITS = (
    "timeout_s",
    "sandbox",
    "pass_env",
    "retries",
    "attempt_budget_usd",
    "attempt_budget_tokens",
    "attempt_budget_requests",
)
"""Keys of a whole spec that decide how a rollout goes: both sides have those of one spec."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Who runs on one side. Whatever it does not say comes from the spec of the race."""

    label: str
    agent: str | None = None
    model: str | None = None
    spec: Spec | None = None
    run: str = ""
    """The id of a stored run, for a baseline that ran before."""


def read_side(text: str, role: Role, resources: Resources, *, granted: Sequence[str] = ()) -> Side:
    """What an argument means. `agent:`, `model:`, `run:` or `spec:` before it says which kind it is."""
    kind, colon, rest = text.partition(":")
    if colon and rest and kind in KINDS:
        return _of_kind(kind, rest, role, resources, granted)
    if Path(text).suffix.lower() in _SPECS and Path(text).is_file():
        return _of_kind("spec", text, role, resources, granted)
    if text.partition("/")[0] in known_agents() or colon:
        return _of_kind("agent", text, role, resources, granted)
    if found := _stored_run(text, resources):
        return _of_kind("run", found, role, resources, granted)
    try:
        return _of_kind("model", text, role, resources, granted)
    except UsageError as error:
        raise UsageError(
            f"{role} '{text}' is neither a spec file, an agent, a stored run nor a model. {error}"
        ) from error


def _of_kind(kind: str, name: str, role: Role, resources: Resources, granted: Sequence[str]) -> Side:
    if kind == "spec":
        return Side(label=Path(name).stem, spec=load(Path(name), granted=granted))
    if kind == "agent":
        agent, _, model = (name, "", "") if ":" in name else name.partition("/")
        return Side(label=name, agent=agent, model=model or None)
    if kind == "run":
        return _run(name, role, resources)
    Providers.load(resources.settings).of(name)
    return Side(label=name, model=name)


def _run(ref: str, role: Role, resources: Resources) -> Side:
    if role == "candidate":
        raise UsageError(
            f"candidate '{ref}' is a stored run: only the baseline may be one, because a race decides what "
            "to run next. 'proctor compare' judges two stored runs"
        )
    with resources.stores.borrow() as store:
        info = store.run(ref)
    return Side(label=info.name, run=info.id)


def _stored_run(ref: str, resources: Resources) -> str:
    try:
        with resources.stores.borrow() as store:
            return store.run(ref).id
    except NotFoundError:
        return ""


def entry_of(side: Side, role: Role, entry: TaskEntry) -> TaskEntry:
    """One entry of the race's spec as this side runs it: by one agent with one model."""
    if side.spec:
        given = _arm(side, role)
        changed = replace(
            entry,
            agents=given.agents,
            models=given.models,
            agent_options=given.agent_options,
            environment_variables=given.environment_variables,
            apply_overrides=given.apply_overrides,
            overrides=_absolute(given.overrides, side.spec),
        )
    else:
        changed = replace(
            entry,
            agents=(side.agent,) if side.agent else entry.agents,
            models=(side.model,) if side.model else entry.models,
        )
    for name, found in (("agents", changed.agents), ("models", changed.models)):
        if len(found) != 1:
            raise UsageError(
                f"{role} {side.label}: the spec names {len(found)} {name} for {entry.path}, and a side of a "
                "race has one; name a side as AGENT/MODEL"
            )
    return changed


def _arm(side: Side, role: Role) -> TaskEntry:
    """What a spec says about who works; all its entries must agree."""
    assert side.spec is not None
    if not side.spec.tasks:
        raise UsageError(f"{role} {side.label}: the spec has experiments; 'proctor ab' compares those")
    same = ("agents", "models", "agent_options", "environment_variables", "apply_overrides", "overrides")
    first, *others = side.spec.tasks
    for other in others:
        for name in same:
            if getattr(other, name) != getattr(first, name):
                raise UsageError(
                    f"{role} {side.label}: its task entries differ in '{name}', and a side of a race is "
                    "one agent with one configuration"
                )
    return first


def _absolute(overrides: Any, spec: Spec) -> Any:
    """A file of overrides is named against the folder of its own spec."""
    return str((Path(spec.base_dir) / overrides).resolve()) if isinstance(overrides, str) else overrides


def check_limits(side: Side, role: Role, spec: Spec) -> None:
    """A side's own spec may not ask for other limits than the race has: that would not be a fair race."""
    for name in _LIMITS if side.spec else ():
        if getattr(side.spec, name) != getattr(spec, name):
            raise UsageError(
                f"{role} {side.label}: '{name}' differs from that of {spec.name}; both sides of a race run "
                "under the same limits. Make it the same in both specs"
            )


def secrets_of(spec: Spec, sides: Sequence[Side]) -> dict[str, str]:
    """The secrets that all specs hold; one name for two values is refused."""
    found = dict(spec.secrets)
    for side in sides:
        for name, value in (side.spec.secrets if side.spec else {}).items():
            if found.setdefault(name, value) != value:
                raise UsageError(f"{side.label}: the secret '{name}' has another value in the other spec")
    return found
