"""What a user wants to measure. `spec.load` makes these from files; nothing here reads any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from types import NoneType
from typing import Any, Literal

Params = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Iterations:
    """How often `execute_once` is called at one parameter point."""

    warmup: int | Literal["auto"] = 0
    """Calls whose result is dropped; `auto` goes on until the times stop falling."""
    measured: int | Literal["auto"] = 1
    """Calls that count; `auto` goes on until the interval is narrow or the time is spent."""
    max_time_s: float = 30.0
    """With `auto`: stop after this long, whatever the interval."""
    target_width: float = 0.02
    """With `auto`: stop when the 95 % interval of the median is this narrow, as a fraction of it."""
    min_measured: int = 5
    max_measured: int = 10_000
    calm: bool = True
    """With `auto`: iterations during which the machine was slower than it can be do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstrumentSpec:
    """An instrument by name, with its options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentBody:
    """One experiment and the parameter points at which to measure it."""

    experiment: str
    params: Params = field(default_factory=dict)
    sweep: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    strategy: Literal["cartesian", "random"] = "cartesian"
    samples: int | None = None
    iterations: Iterations = field(default_factory=Iterations)
    instrumentation: tuple[InstrumentSpec, ...] = (InstrumentSpec(name="timing"),)
    isolation: Literal["process", "none"] = "process"
    loops: int | Literal["auto"] = 1
    """Calls per timed slot; `auto` calibrates for functions too short for the clock. Results are per call."""
    gc: Literal["disabled", "enabled"] = "disabled"
    """Whether the garbage collector may run inside a timed slot. Disabled: collected and frozen before it."""
    python: str | None = None
    """The interpreter in which it runs, if not the one that Proctor runs in."""
    better: Mapping[str, str] = field(default_factory=dict)
    """Metric → higher or lower: what is an improvement, where its name does not tell or tells wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One thing that a judge scores."""

    id: str
    criterion: str
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSpec:
    """A model that scores what agents left, rubric by rubric."""

    model: str
    rubrics: tuple[Criterion, ...] = ()
    """What it scores; empty: the task's own rubrics."""
    votes: int = 3
    reward: Literal["verifier", "judge"] = "verifier"
    """Whose score is the reward of a trial."""
    max_bytes: int = 60_000
    """The most that it is shown of one trial; what is longer is cut, and that is said."""
    timeout_s: float = 300.0
    """Of one answer."""
    budget_usd: float | None = None
    """What the judge's calls of a run may cost, apart from what agents may spend."""
    budget_tokens: int | None = None
    budget_requests: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCode:
    """Where the module of a run's own agent is on this machine."""

    content: str
    """A folder with its Python files as they were stored."""
    folder: str
    """The folder it is imported from: the project's own where that is the same, else the content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEntry:
    """One `[[tasks]]` table: which tasks, by whom, how often."""

    path: str
    """As written: a task folder, a folder of tasks, a ZIP, or the name or address of a dataset."""
    source: Literal["path", "prepared_dir", "dataset", "zip"] = "path"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    agents: tuple[str, ...] = ("oracle",)
    agent_options: Mapping[str, Any] = field(default_factory=dict)
    models: tuple[str | None, ...] = (None,)
    rollouts: int = 1
    apply_overrides: bool = True
    overrides: str | Mapping[str, Any] | None = None
    environment_variables: Mapping[str, Any] = field(default_factory=dict)
    """Texts, or references to secrets (`model.secret`)."""
    sweep: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Environment variables to vary, crossed with everything else."""
    judge: JudgeSpec | None = None
    agent_code: Mapping[str, AgentCode] = field(default_factory=dict, compare=False, repr=False)
    """The modules of agents that were stored with the run, by the agent's name. Never written in a spec."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How often a trial may be tried again, by who was to blame."""

    infrastructure: int = 2
    provider: int = 3
    backoff_s: float = 1.0
    max_backoff_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """Which sandbox, and limits that override each task's own."""

    backend: str = "auto"
    network: Literal["none", "public", "allowlist"] | None = None
    allowed_hosts: tuple[str, ...] = ()
    network_allow: tuple[str, ...] = ()
    """What a public network may reach beyond the internet: addresses, ranges, names."""
    host_root: bool = False
    """Whether this machine's own system takes the place of every image that a task names."""
    cpus: float | None = None
    memory_bytes: int | None = None
    storage_bytes: int | None = None
    pids: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One run's request, every default filled in."""

    name: str
    experiments: tuple[ExperimentBody, ...] = ()
    tasks: tuple[TaskEntry, ...] = ()
    seed: int = 0
    tags: tuple[str, ...] = ()
    notes: str = ""
    parallel: int = 1
    output_dir: str | None = None
    timeout_s: float | None = None
    """For an experiment: per iteration. For a task: overrides the agent's own limit."""
    retries: Retries = field(default_factory=Retries)
    budget_usd: float | None = None
    """What the calls of models of all attempts together may cost."""
    budget_tokens: int | None = None
    budget_requests: int | None = None
    attempt_budget_usd: float | None = None
    """What the calls of models of one attempt may cost."""
    attempt_budget_tokens: int | None = None
    attempt_budget_requests: int | None = None
    tape: str | None = None
    """A recorded tape, or a run with tapes, that answers the agents in place of every provider."""
    tape_speed: Literal["full", "recorded"] = "full"
    engine: Literal["auto", "local", "celery"] = "auto"
    """Where trials execute: `auto` is on workers where a broker is set, and else in this process."""
    labels: tuple[str, ...] = ()
    """Words that a worker must have to be given its trials: `gpu`, `arch=aarch64`."""
    sandbox: SandboxSpec = field(default_factory=SandboxSpec)
    gates: tuple[Any, ...] = ()
    sources: tuple[str, ...] = ()
    """Folders or modules with the spec's own experiments."""
    pass_env: tuple[str, ...] = ()
    """Variables of this machine that `${VAR}` of a task may use."""
    base_dir: str = "."
    """The folder against which relative paths in the spec are read."""
    places: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Where parts were written, for errors found after loading: `experiments.0.params.n` → `a.yaml:7:3`."""
    secrets: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Secrets that were written in the spec itself, by the name of their reference. Never stored."""

    def place(self, *keys: str | int) -> str:
        """Where a part of the spec was written, or the nearest part around it; empty when unknown."""
        for length in range(len(keys), 0, -1):
            known = self.places.get(".".join(map(str, keys[:length])))
            if known:
                return known
        return ""

    @property
    def kind(self) -> Literal["experiment", "task"]:
        """Which of the two bodies this spec has."""
        return "task" if self.tasks else "experiment"

    def to_mapping(self) -> dict[str, Any]:
        """Plain data in the spec's own grammar: `spec.load.from_mapping` reads it back unchanged."""
        left_out = {"places", "secrets", "tasks" if self.experiments else "experiments"}
        data = {each: _plain(getattr(self, each)) for each in _names(Spec) if each not in left_out}
        for body in data.get("experiments", ()):
            body["instrumentation"] = [_instrument(**each) for each in body["instrumentation"]]
        for entry in data.get("tasks", ()):
            entry[entry.pop("source")] = entry.pop("path")
            entry["agent"] = entry.pop("agents")
            del entry["agent_code"]
            entry["model"] = entry.pop("models")
        return data


def _instrument(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    if {"name", "options"} & options.keys():
        return {"name": name, "options": options}
    return {"name": name, **options}


_ATOMS = frozenset({str, int, float, bool, NoneType})


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))


def _plain(value: Any) -> Any:
    """Parts of a spec as data, in one pass: a server does this several times for each run it is given."""
    if (kind := type(value)) in _ATOMS:
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if is_dataclass(kind):
        return {each: _plain(getattr(value, each)) for each in _names(kind)}
    return value
