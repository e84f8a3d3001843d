"""What the harness repeats: a list of (task, agent) with how often, on which seed, and how each should end.

A pass is the whole list once, weights included. Episodes go round in passes, so a short run has the same mix
as a long one, and seeds come back, so that episodes with the same seed can be compared.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from msgspec import structs

from proctor.errors import UsageError
from proctor.model.canonical import derive_seed
from proctor.model.outcome import Outcome
from proctor.model.plan import Plan, PlannedTrial, trial_key
from proctor.model.spec import Retries, SandboxSpec, Spec, TaskEntry
from proctor.runs.perf import stepwise
from proctor.runs.planning import plan_spec
from proctor.settings import Settings
from proctor.spec import node
from proctor.spec.load import from_mapping, parse
from proctor.spec.node import Node

DEFAULT = Path(__file__).parents[2] / "perf_tasks" / "scenario.yaml"
SEEDS = 2
"""Number of seeds that an entry without its own seed uses in turn."""
MAX_EPISODES = 100_000
_ENTRY_KEYS = ("task", "task_ref", "agent", "model", "options", "seed", "weight", "repeat", "expect")
_KEYS = ("name", "seed", "scenario")
_SYNONYMS = {"tasks": "task", "episodes": "scenario", "entries": "scenario", "agent_options": "options"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of a scenario."""

    task: str
    agent: str = "oracle"
    model: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    weight: int = 1
    expect: tuple[Outcome, ...] = (Outcome.PASSED,)
    """Outcomes that are expected."""

    def to_mapping(self) -> dict[str, Any]:
        """As the manifest shows it."""
        return {
            "task": self.task,
            "agent": self.agent,
            "model": self.model,
            "options": dict(self.options),
            "seed": self.seed,
            "weight": self.weight,
            "expect": [each.value for each in self.expect],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """All lines, and the folder that their paths are read against."""

    name: str
    entries: tuple[Entry, ...]
    base_dir: Path
    seed: int = 0

    @property
    def imageless(self) -> bool:
        """Whether none of its tasks names an image: they are step by step and need no more than a Python."""
        return all(stepwise.needs_no_image(each.task, self.base_dir) for each in self.entries)


@dataclass(frozen=True, slots=True)
class Episodes:
    """The plan of a run of the harness, and what each trial should come to."""

    spec: Spec
    plan: Plan
    expect: Mapping[str, tuple[Outcome, ...]]
    """Trial key → outcomes that are expected."""
    pass_length: int
    """Episodes in one pass over the scenario."""
    ceilings: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Digest of a step-by-step task → the steps and tool calls that it allows."""


def load_scenario(path: Path | None = None) -> Scenario:
    """A scenario file (YAML, TOML or JSON), or the one that comes with Proctor."""
    file = path or DEFAULT
    root = parse(file)
    if isinstance(root.value, list):
        items: dict[str, Node] = {"scenario": root}
    else:
        items = node.fields(root, _KEYS, synonyms=_SYNONYMS, what="a list of episodes, or a mapping")
    if "scenario" not in items:
        raise root.mark.error("'scenario' is missing: the list of tasks and agents")
    lines = node.sequence(items["scenario"])
    if not lines:
        raise items["scenario"].mark.error("the scenario is empty; it needs at least one task")
    return Scenario(
        name=node.text(items["name"]) if "name" in items else file.stem,
        entries=tuple(_entry(line, file.absolute().parent) for line in lines),
        base_dir=file.absolute().parent,
        seed=node.whole(items["seed"]) if "seed" in items else 0,
    )


def _entry(line: Node, base: Path) -> Entry:
    items = node.fields(line, _ENTRY_KEYS, synonyms=_SYNONYMS, what="a mapping with 'task' and 'agent'")
    if "task" not in items and "task_ref" not in items:
        raise line.mark.error("'task' is missing: a task folder, a dataset or a ZIP")
    if "task" in items and "task_ref" in items:
        raise items["task_ref"].place.error("'task_ref' and 'task' both name the task; give one of them")
    if "weight" in items and "repeat" in items:
        raise items["repeat"].place.error("'repeat' is another name for 'weight'; give one of them")
    readers: dict[str, Callable[[Node], Any]] = {
        "task": node.text,
        "agent": node.text,
        "model": node.text,
        "seed": node.whole,
        "expect": _expect,
    }
    found = node.each(items, readers)
    if reference := items.get("task_ref"):
        with _placed(reference):
            found["task"] = stepwise.find_task(node.text(reference), base)
    options = node.plain(items["options"]) if "options" in items else {}
    if not isinstance(options, dict):
        raise node.wrong(items["options"], "a mapping")
    weight = items.get("weight") or items.get("repeat")
    if weight:
        found["weight"] = node.whole(weight, minimum=1, maximum=MAX_EPISODES)
    if stepwise.is_file_agent(found.get("agent", "")):
        with _placed(items["agent"]):
            options = {**options, "file": str(stepwise.find_agent(found["agent"], base))}
        found["agent"] = stepwise.AGENT
    return Entry(**found, options=_with_places(found.get("agent", ""), options, base))


@contextmanager
def _placed(item: Node) -> Iterator[None]:
    """Errors about a value begin with the place where it was written."""
    try:
        yield
    except UsageError as error:
        raise item.mark.error(str(error)) from error


def _with_places(agent: str, options: dict[str, Any], base: Path) -> dict[str, Any]:
    """Paths of recordings and of agents' files are relative to the scenario file."""
    option = {"replay": "trajectory", stepwise.AGENT: "file"}.get(agent, "")
    place = options.get(option)
    if isinstance(place, str) and (base / place).exists():
        return {**options, option: str(base / place)}
    return options


def _expect(item: Node) -> tuple[Outcome, ...]:
    each = item.value if isinstance(item.value, list) else [item]
    if not each:
        raise item.mark.error("'expect' is empty; it needs at least one outcome")
    return tuple(Outcome(node.choice(word, [outcome.value for outcome in Outcome])) for word in each)


def plan_episodes(
    scenario: Scenario,
    *,
    episodes: int,
    workers: int,
    timeout_s: float,
    sandbox: str,
    host_root: bool = False,
    settings: Settings,
) -> Episodes:
    """The trials of this many episodes, pass after pass. Wrong tasks, agents and options are refused here."""
    if not 1 <= episodes <= MAX_EPISODES:
        raise UsageError(f"{episodes} episodes; the number must be from 1 to {MAX_EPISODES:,}")
    spec = Spec(
        name="perf",
        tasks=tuple(_task_entry(entry) for entry in scenario.entries),
        seed=scenario.seed,
        tags=("perf",),
        parallel=workers,
        timeout_s=timeout_s,
        # One attempt each: a harness that is measured must not mend what it measures.
        retries=Retries(infrastructure=0, provider=0),
        sandbox=SandboxSpec(backend=sandbox, host_root=host_root),
        base_dir=str(scenario.base_dir),
    )
    # Read as a spec file is: variables are filled in, and references take the place of secrets.
    spec = from_mapping(spec.to_mapping(), environ=os.environ)
    cells: list[tuple[Entry, PlannedTrial]] = []
    warnings: dict[str, None] = {}
    for at, entry in enumerate(scenario.entries):
        alone = plan_spec(replace(spec, tasks=(spec.tasks[at],)), settings)
        warnings |= dict.fromkeys(alone.warnings)
        if len(cells) + entry.weight * len(alone) > MAX_EPISODES:
            raise UsageError(f"one pass of the scenario has more than {MAX_EPISODES:,} episodes")
        cells += [(entry, structs.replace(trial, body=at)) for trial in alone.trials] * entry.weight
    trials = [_episode(spec, cells[number % len(cells)], number, len(cells)) for number in range(episodes)]
    expect = {trial.key: cells[number % len(cells)][0].expect for number, trial in enumerate(trials)}
    ceilings = stepwise.ceilings({trial.subject_digest: str(trial.path) for trial in trials})
    return Episodes(spec, Plan(trials=tuple(trials), warnings=tuple(warnings)), expect, len(cells), ceilings)


def _task_entry(entry: Entry) -> TaskEntry:
    return TaskEntry(
        path=entry.task, agents=(entry.agent,), agent_options=entry.options, models=(entry.model,)
    )


def _episode(spec: Spec, cell: tuple[Entry, PlannedTrial], number: int, pass_length: int) -> PlannedTrial:
    entry, trial = cell
    turn = number // pass_length % SEEDS
    seed = derive_seed(spec.seed, "perf", trial.subject_digest, turn) if entry.seed is None else entry.seed
    key = trial_key(
        subject_digest=trial.subject_digest,
        agent=trial.agent,
        agent_version=trial.agent_version,
        model=trial.model,
        overrides=trial.overrides,
        seed=seed,
        rollout=number,
    )
    return structs.replace(trial, key=key, index=number, seed=seed, rollout=number)
