"""Who took part: an agent with its version, model and options, and the variables that were swept.

A score belongs to one of these. Agents that differ in an option, or in a swept variable, are two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from proctor.model.canonical import canonical_json, digest
from proctor.model.plan import PlannedTrial
from proctor.model.secret import is_reference, looks_secret, shown

_SHOWN_VALUE = 40
_SHOWN_ALL = 80
"""`max_tokens` is a number that people compare, not a token."""


class Arm(NamedTuple):
    """One competitor."""

    agent: str | None
    model: str | None
    options: str = "{}"
    """The agent's options as canonical JSON."""
    version: str | None = None
    variables: tuple[tuple[str, str], ...] = ()
    """The environment variables that differ between trials of the run, as they are shown."""

    @property
    def name(self) -> str:
        """The agent and its model."""
        return _joined(self.agent, self.model)


def arm_of(trial: PlannedTrial, swept: Iterable[str] = ()) -> Arm:
    """Who a trial is by; `swept` are the variables of its run that differ between trials."""
    variables = variables_of(trial)
    return Arm(
        trial.agent,
        trial.model,
        options_text(options_of(trial)),
        trial.agent_version,
        tuple((name, variables[name]) for name in swept if name in variables),
    )


def swept_variables(trials: Iterable[PlannedTrial]) -> tuple[str, ...]:
    """The environment variables that differ between trials; one that only some of them have does too."""
    kinds = dict.fromkeys(tuple(variables_of(trial).items()) for trial in trials)
    rows = [dict(kind) for kind in kinds]
    names = dict.fromkeys(name for row in rows for name in row)
    return tuple(name for name in names if len({row.get(name) for row in rows}) > 1)


def variables_of(trial: PlannedTrial) -> dict[str, str]:
    """The environment variables that a run gives to a trial, as they are shown."""
    found = trial.overrides.get("environment_variables")
    return {str(name): str(shown(value)) for name, value in found.items()} if isinstance(found, dict) else {}


def options_of(trial: PlannedTrial) -> Mapping[str, Any]:
    """The options of a trial's agent."""
    found = trial.overrides.get("agent_options")
    return found if isinstance(found, Mapping) else {}


def options_text(options: Mapping[str, Any] | None) -> str:
    """Options as they enter an `Arm`."""
    return canonical_json(dict(options)) if options else "{}"


def named(arms: Iterable[Arm], joint: str = "/") -> dict[Arm, str]:
    """A distinct name for each: `terminal/large`; `terminal (temperature=0)/large` where options differ.

    A swept variable stands behind: `terminal/large MODE=fast`.
    """
    known = list(dict.fromkeys(arms))
    inside = apart(known)
    names = [
        " ".join([_joined(with_options(arm.agent or "", inside[arm]), arm.model, joint=joint), *_told(arm)])
        for arm in known
    ]
    return dict(zip(known, distinct(names), strict=True))


def apart(arms: Iterable[Arm]) -> dict[Arm, str]:
    """What sets agents of one name apart, whatever their models: options, or else the version."""
    known = list(dict.fromkeys(arms))
    versions = Counter(arm._replace(version=None) for arm in known)
    by_agent: dict[str | None, list[Arm]] = {}
    for arm in known:
        by_agent.setdefault(arm.agent, []).append(arm)
    return {
        arm: ", ".join(filter(None, (options, _version(arm, versions))))
        for group in by_agent.values()
        for arm, options in zip(group, differing([each.options for each in group]), strict=True)
    }


def _version(arm: Arm, alike: Mapping[Arm, int]) -> str:
    return f"version={arm.version}" if arm.version and alike[arm._replace(version=None)] > 1 else ""


def _told(arm: Arm) -> list[str]:
    return [f"{name}={value}" for name, value in arm.variables]


def shown_options(options: str) -> dict[str, str]:
    """Options for a document: every one by its path, without what may be secret."""
    return dict(_masked(options))


def with_options(agent: str, inside: str) -> str:
    """An agent's name with its options behind it, where there are any to show."""
    return f"{agent} ({inside})" if inside else agent


def whole_names(arms: Iterable[Arm]) -> dict[Arm, str]:
    """Names with every option: the same in each run, whoever else took part.

    Without the version, which changes from run to run, unless two arms differ in nothing else.
    """
    known = list(dict.fromkeys(arms))
    versions = Counter(arm._replace(version=None) for arm in known)
    names = [_whole_name(arm, _version(arm, versions)) for arm in known]
    return dict(zip(known, distinct(names), strict=True))


def _whole_name(arm: Arm, version: str) -> str:
    inside = ", ".join(f"{name}={value}" for name, value in _leaves(arm.options).items())
    if len(inside) > _SHOWN_ALL or "…" in inside:
        masked = digest(_masked(arm.options))[:6]
        inside = f"{inside[:_SHOWN_ALL].rstrip('… ')}… {masked}"
    who = with_options(arm.agent or "", ", ".join(filter(None, (inside, version))))
    return " ".join([_joined(who, arm.model), *_told(arm)])


def _joined(*parts: str | None, joint: str = "/") -> str:
    return joint.join(part for part in parts if part)


def differing(options: Sequence[str]) -> list[str]:
    """For each set of options those in which it differs from the others, as `temperature=0, top_p=1`."""
    if len(set(options)) < 2:
        return [""] * len(options)
    leaves = [_leaves(each) for each in options]
    whole = [_masked(each) for each in options]
    varying = [
        name
        for name in dict.fromkeys(name for each in leaves for name in each)
        if len({each.get(name) for each in whole}) > 1
    ]
    return [
        ", ".join(f"{_short(name, varying)}={each[name]}" for name in varying if name in each)
        for each in leaves
    ]


def distinct(labels: Sequence[str]) -> list[str]:
    """The same labels, numbered where two are alike."""
    total, seen = Counter(labels), Counter[str]()
    result = []
    for label in labels:
        seen[label] += 1
        result.append(label if total[label] == 1 else f"{label} ({seen[label]})")
    return result


def _short(path: str, among: Iterable[str]) -> str:
    """The last part of an option's path, unless another option ends in the same."""
    last = path.rpartition(".")[2]
    return last if sum(each.rpartition(".")[2] == last for each in among) == 1 else path


@lru_cache(maxsize=1024)
def _masked(options: str) -> Mapping[str, str]:
    """Every option by its path, whole, without what may be secret."""
    import json

    return dict(_flat(json.loads(options), ""))


def _leaves(options: str) -> dict[str, str]:
    return {name: _cut(value) for name, value in _masked(options).items()}


def _flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if is_reference(value):
        yield path, f"secret {value['secret']}"
        return
    if isinstance(value, dict) and (value or not path):
        for name, each in value.items():
            yield from _flat(each, f"{path}.{name}" if path else str(name))
        return
    last = path.rpartition(".")[2]
    if looks_secret(last, value if isinstance(value, str) else None):
        yield path, "***"
    else:
        yield path, value if isinstance(value, str) else canonical_json(value)


def _cut(value: str) -> str:
    line = " ".join(value.split())
    return line if len(line) <= _SHOWN_VALUE else f"{line[: _SHOWN_VALUE - 1]}…"
