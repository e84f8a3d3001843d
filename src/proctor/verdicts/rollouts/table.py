"""Rollouts as a table: a row per task, a column per agent, model and swept variables, numbers in each cell.

One pass over the trials: what is kept of each are numbers, and its place in the run.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proctor.model import arms as identities
from proctor.model.arms import arm_of, distinct, shown_options, swept_variables, with_options
from proctor.model.canonical import canonical_json, digest
from proctor.model.outcome import Outcome, reward_of
from proctor.model.plan import PlannedTrial
from proctor.model.record import UNKNOWN_COST, AttemptRecord
from proctor.quantity import number
from proctor.runfolder.read import RunData, TrialResult
from proctor.verdicts.run.survey import Chosen

_FOR_THE_AGENT = ("agent_options",)
"""Spec settings whose change makes another agent, not another task."""
LEDGER = ("peak_memory_bytes", "cpu_s", "throttled_s", "oom_kills", "read_bytes", "write_bytes", "disk_bytes")
UNKNOWN = "unknown"
"""In place of a number that could not be measured, and in a ledger: quantity → why."""
USAGE = ("prompt_tokens", "completion_tokens", "cost_usd", "requests", "steps", "tool_calls")
SPENT = ("cost_usd", "peak_memory_bytes", "cpu_s")
"""What is kept of each scored rollout, besides its time."""
Columns = dict[str, "array[float]"]


@dataclass(frozen=True, slots=True)
class Arm:
    """One competitor: an agent with its version, model and options, and the variables that were swept."""

    agent: str
    model: str | None
    variables: tuple[tuple[str, str], ...]
    label: str
    who: str
    """The agent, with what sets it apart but its model."""
    options: tuple[tuple[str, str], ...] = ()
    """All options of the agent, without what may be secret."""
    name: str = ""
    """As it is typed: `terminal/large`."""
    identity: identities.Arm = field(default_factory=lambda: identities.Arm(None, None))


@dataclass(frozen=True, slots=True)
class Row:
    """One task, as one entry of the spec has it."""

    task: str
    path: str
    label: str
    digest: str = ""
    overrides: str = ""
    """The digest of what the spec changes about the task; empty where it changes nothing."""


@dataclass(slots=True)
class Tally:
    """What some rollouts came to, in the order in which they were added."""

    places: array[int] = field(default_factory=lambda: array("L"))
    order: array[int] = field(default_factory=lambda: array("L"))
    """The number of each rollout."""
    outcomes: list[Outcome | None] = field(default_factory=list)
    rewards: list[float | None] = field(default_factory=list)
    """None for those that do not count in the score."""
    took: array[float] = field(default_factory=lambda: array("d"))
    """How long agent and verifier of the attempts that count worked."""
    times: list[tuple[float, float]] = field(default_factory=list)
    """When each scored rollout started, and how long it took."""
    spent: Columns = field(default_factory=dict)
    """What scored rollouts cost and used: `SPENT`, and `duration_s`."""
    phases: Columns = field(default_factory=dict)
    """How long each phase of the attempts that count took."""
    ledger: Columns = field(default_factory=dict)
    """What they used of the machine; only what was measured."""
    unknown: dict[str, str] = field(default_factory=dict)
    """What could not be measured, and why: the first reason for each quantity."""
    enforced: dict[str, str] = field(default_factory=dict)
    """How each limit was enforced, or why not: the first statement about each."""
    usage: dict[str, float] = field(default_factory=dict)
    """Tokens, money and calls of every attempt: what did not count was paid for too."""

    @property
    def totals(self) -> dict[str, float]:
        """`usage`; where the cost of some calls is unknown there is no total cost, but how many these are."""
        unknown = UNKNOWN_COST in self.usage
        names = (*(name for name in USAGE if not (unknown and name == "cost_usd")), UNKNOWN_COST)
        return {name: self.usage[name] for name in names if name in self.usage}

    def add(self, place: int, trial: TrialResult) -> None:
        """One rollout."""
        record = trial.counted
        self.places.append(place)
        self.order.append(trial.planned.rollout)
        self.outcomes.append(record.outcome if record else None)
        self.rewards.append(reward_of(record.outcome, record.reward) if record else None)
        for each in trial.attempts:
            for name, amount in each.usage.items():
                if name in (*USAGE, UNKNOWN_COST) and (known := number(amount)):
                    self.usage[name] = self.usage.get(name, 0.0) + known
        if record:
            self._add_record(record)

    def _add_record(self, record: AttemptRecord) -> None:
        took, ledger = record.took_s, record.ledger
        if took is not None:
            self.took.append(took)
        _append(self.phases, record.phases_s, record.phases_s)
        _append(self.ledger, ledger, LEDGER)
        if isinstance(reasons := ledger.get(UNKNOWN), Mapping):
            self.unknown = {
                **{name: str(reasons[name]) for name in LEDGER if name in reasons},
                **self.unknown,
            }
        limits = ledger.get("enforced")
        if isinstance(limits, Mapping) and not self.enforced.keys() >= limits.keys():
            self.enforced = {**{str(name): str(how) for name, how in limits.items()}, **self.enforced}
        if record.outcome.scored:
            if took is not None:
                self.times.append((record.started_at, took))
                self.spent.setdefault("duration_s", array("d")).append(took)
            _append(self.spent, {**ledger, **record.usage}, SPENT)

    def merge(self, other: Tally) -> None:
        """Those of another tally as well."""
        self.places += other.places
        self.order += other.order
        self.outcomes += other.outcomes
        self.rewards += other.rewards
        self.took += other.took
        self.times += other.times
        for mine, others in ((getattr(self, name), getattr(other, name)) for name in _COLUMNS):
            for name, values in others.items():
                mine.setdefault(name, array("d")).extend(values)
        self.unknown = {**other.unknown, **self.unknown}
        self.enforced = {**other.enforced, **self.enforced}
        for name, amount in other.usage.items():
            self.usage[name] = self.usage.get(name, 0.0) + amount


_COLUMNS = ("spent", "phases", "ledger")


def _append(columns: Columns, row: Mapping[str, Any], names: Iterable[str]) -> None:
    for name in names:
        if (value := number(row.get(name))) is not None:
            columns.setdefault(name, array("d")).append(value)


@dataclass(frozen=True, slots=True)
class Cell:
    """One arm on one task, its trials in order of rollout."""

    row: Row
    arm: Arm
    trials: Chosen
    outcomes: tuple[Outcome | None, ...]
    worths: tuple[float | None, ...]
    """What each rollout is worth in the score; None where it is not scored."""
    rewards: tuple[float, ...]
    """Of the scored rollouts."""
    passed: int
    """How many passed."""
    errors: int
    """How many ended in an error not caused by the agent."""
    missing: int
    """How many have no result: not run yet, skipped or cancelled."""
    tally: Tally


@dataclass(frozen=True, slots=True)
class Table:
    """Every trial of a run in its place."""

    rows: tuple[Row, ...]
    arms: tuple[Arm, ...]
    cells: Mapping[tuple[Row, Arm], Cell]

    def of(self, arm: Arm) -> list[Cell]:
        """The arm's cells in the order of the rows; tasks it was not asked to do are left out."""
        found = (self.cells.get((row, arm)) for row in self.rows)
        return [cell for cell in found if cell is not None]


def arrange(data: RunData) -> Table:
    """Put every trial in its cell. Tasks that most rollouts pass come first, then in plan order."""
    kinds = _kinds(data.trials)
    swept = swept_variables(planned for planned, _ in kinds)
    arms: dict[identities.Arm, None] = {}
    rows: dict[str, PlannedTrial] = {}
    cells: dict[tuple[str, identities.Arm], Tally] = {}
    for planned, tally in kinds:
        row, arm = _row_identity(planned), arm_of(planned, swept)
        rows.setdefault(row, planned)
        arms.setdefault(arm)
        if (row, arm) in cells:
            cells[row, arm].merge(tally)
        else:
            cells[row, arm] = tally
    made_arms = dict(zip(arms, _arms(arms), strict=True))
    made_rows = dict(zip(rows, _rows(rows), strict=True))
    placed = {
        (made_rows[row], made_arms[arm]): cell_of(made_rows[row], made_arms[arm], tally, data.trials)
        for (row, arm), tally in cells.items()
    }
    return Table(by_success(list(made_rows.values()), placed), tuple(made_arms.values()), placed)


def _kinds(trials: Iterable[TrialResult]) -> list[tuple[PlannedTrial, Tally]]:
    """Trials that differ in their rollout alone are of one kind: the first of each, and all in numbers."""
    known: dict[tuple[object, ...], tuple[PlannedTrial, Tally]] = {}
    for place, trial in enumerate(trials):
        key = kind_of(trial.planned)
        if key not in known:
            known[key] = trial.planned, Tally()
        known[key][1].add(place, trial)
    return list(known.values())


def kind_of(planned: PlannedTrial) -> tuple[object, ...]:
    """What trials have in common that differ in their rollout alone."""
    who = (planned.agent, planned.agent_version, planned.model)
    return (*who, planned.subject, planned.subject_digest, planned.path, repr(planned.overrides))


def cell_of(row: Row, arm: Arm, tally: Tally, trials: Sequence[TrialResult]) -> Cell:
    """What a tally comes to, in order of rollout."""
    order = sorted(range(len(tally.places)), key=tally.order.__getitem__)
    outcomes = tuple([tally.outcomes[at] for at in order])
    worths = tuple([tally.rewards[at] for at in order])
    rewards = tuple([worth for worth in worths if worth is not None])
    errors = sum(each is not None and each.error for each in outcomes)
    return Cell(
        row=row,
        arm=arm,
        trials=Chosen(trials, array("L", [tally.places[at] for at in order])),
        outcomes=outcomes,
        worths=worths,
        rewards=rewards,
        passed=sum(reward >= 1 for reward in rewards),
        errors=errors,
        missing=len(order) - len(rewards) - errors,
        tally=tally,
    )


def _row_identity(planned: PlannedTrial) -> str:
    return canonical_json([planned.subject, planned.subject_digest, _changes(planned)])


def _changes(planned: PlannedTrial) -> dict[str, Any]:
    """What the spec changes about the task itself."""
    aside = {"environment_variables", *_FOR_THE_AGENT}
    return {name: value for name, value in planned.overrides.items() if name not in aside}


def _arms(found: Iterable[identities.Arm]) -> list[Arm]:
    known = list(found)
    apart, names = identities.apart(known), identities.named(known)
    made = []
    for each in known:
        agent = with_options(each.agent or "no agent", apart[each])
        told = [f"{name}={value}" for name, value in each.variables]
        label = " · ".join([agent, *([each.model] if each.model else []), *told])
        made.append((each, label, " ".join([agent, *told])))
    labels = distinct([label for _, label, _ in made])
    return [
        Arm(
            each.agent or "no agent",
            each.model,
            each.variables,
            label,
            who,
            tuple(shown_options(each.options).items()),
            names[each] or "no agent",
            each,
        )
        for (each, _, who), label in zip(made, labels, strict=True)
    ]


def _rows(found: Mapping[str, PlannedTrial]) -> list[Row]:
    labels = distinct([planned.subject for planned in found.values()])
    return [
        Row(
            planned.subject,
            planned.path or "",
            label,
            planned.subject_digest,
            digest(changes) if (changes := _changes(planned)) else "",
        )
        for planned, label in zip(found.values(), labels, strict=True)
    ]


def by_success(rows: Sequence[Row], cells: Mapping[tuple[Row, Arm], Cell]) -> tuple[Row, ...]:
    """The tasks, those that most rollouts pass first."""
    passed = dict.fromkeys(rows, 0)
    scored = dict.fromkeys(rows, 0)
    for (row, _), cell in cells.items():
        passed[row] += cell.passed
        scored[row] += len(cell.rewards)
    return tuple(sorted(rows, key=lambda row: -passed[row] / scored[row] if scored[row] else 1.0))
