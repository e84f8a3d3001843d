"""One execution of one plan, as the store and the run folder know it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct, field
from msgspec.structs import force_setattr

from proctor.model.canonical import Count, Number, Signed
from proctor.model.trial import RunStatus

HOST_ROOT = "host root: every sandbox used this machine's own system; results are not reproducible elsewhere"

_IMPORTED = "imported"
_RACES = "races"
_REGRADES, _VETS, _PERF, _JUDGES = "regrades", "vets", "perf", "judges"
"""Before a run said how it is executed, one of these was in the place of its written spec."""


class Execution(StrEnum):
    """How the trials of a run are executed: `runs.executors` has one executor for each."""

    EXPERIMENT = "experiment"
    TASK = "task"
    REGRADE = "regrade"
    VET = "vet"
    PERF = "perf"
    RACE = "race"
    JUDGE = "judge"


class RunInfo(Struct, frozen=True, kw_only=True, gc=False):
    """A run without its trials."""

    id: str
    name: str
    kind: str
    """experiment or task"""
    status: RunStatus
    created_at: Number
    seed: Signed
    started_at: Number | None = None
    finished_at: Number | None = None
    total: Count = 0
    done: Count = 0
    tags: tuple[str, ...] = ()
    notes: str = ""
    folder: str = ""
    spec: Mapping[str, Any] = field(default_factory=dict)
    """As the person wrote it."""
    resolved: Mapping[str, Any] = field(default_factory=dict)
    """With all defaults; `spec.load.from_mapping` reads it back."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    vcs: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    plan_digest: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many trials ended with each outcome."""
    execution: Execution | None = None
    """How its trials are executed. Worked out where it is not said, as in what earlier versions wrote."""

    def __post_init__(self) -> None:
        found = self.execution or _execution(self.kind, self.spec)
        force_setattr(self, "execution", Execution(found))

    @property
    def graded_run(self) -> str:
        """Of a run that grades or judges again: the run whose stored work that is."""
        return str(self.spec.get(_REGRADES) or self.spec.get(_JUDGES) or "")

    @property
    def race(self) -> Mapping[str, Any]:
        """Of a race: its two sides and its error, as `verdicts.race.design` writes them; else empty."""
        found = self.spec.get(_RACES) if self.execution is Execution.RACE else None
        return found if isinstance(found, Mapping) else {}

    @property
    def imported(self) -> str:
        """Of a run that another tool executed: which; such a run cannot be continued or graded here."""
        return str(self.spec.get(_IMPORTED, ""))

    @property
    def host_root(self) -> bool:
        """Whether its sandboxes had the system of the machine as root, in place of the tasks' images."""
        sandbox = self.resolved.get("sandbox")
        return self.kind == "task" and isinstance(sandbox, Mapping) and sandbox.get("host_root") is True


def written_regrade(run_id: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """What stands in the place of a written spec when the workspaces of a run are judged again."""
    return {_REGRADES: run_id, "spec": dict(spec)}


def written_judging(run_id: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """What stands in the place of a written spec when a judge scores the stored work of a run."""
    return {_JUDGES: run_id, "spec": dict(spec)}


def written_import(tool: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """What stands in the place of a written spec of a run that another tool executed: its own."""
    return {_IMPORTED: tool, "config": dict(config)}


def written_race(design: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """What stands in the place of a written spec when two sides race: who they are, and the tasks' spec."""
    return {_RACES: dict(design), "spec": dict(spec)}


def written_vetting(tasks: Sequence[str]) -> dict[str, Any]:
    """What begins the place of a written spec when tasks are vetted."""
    return {_VETS: list(tasks)}


def _execution(kind: str, written: Mapping[str, Any]) -> Execution:
    """Of a run that does not say it, from what was in the place of its written spec."""
    if kind != "task":
        return Execution.EXPERIMENT
    known = {_REGRADES: Execution.REGRADE, _VETS: Execution.VET, _PERF: Execution.PERF}
    return next((known[key] for key in known if key in written), Execution.TASK)


class Event(Struct, frozen=True, kw_only=True, gc=False):
    """One state change of a run or of one of its trials."""

    id: int
    run_id: str
    at: float
    kind: str
    """run.started, run.finished, trial.leased, trial.running, attempt.ended, trial.done …"""
    trial_key: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
