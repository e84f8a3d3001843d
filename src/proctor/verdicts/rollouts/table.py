"""Rollouts as a table: a row per task, a column per agent, model and swept variables, trials in each cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proctor.model.arms import arm_of, distinct, options_apart, with_options
from proctor.model.canonical import canonical_json
from proctor.model.outcome import Blame, Outcome
from proctor.model.secret import shown
from proctor.runfolder.read import RunData, TrialResult

_FOR_THE_AGENT = ("agent_options",)
"""Spec settings whose change makes another agent, not another task."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One competitor: an agent, its model, and the variables that were swept."""

    agent: str
    model: str | None
    variables: tuple[tuple[str, str], ...]
    label: str
    options: str = ""
    """The agent's options in which it differs from another arm, as `temperature=0`."""

    @property
    def who(self) -> str:
        """The agent, with what sets it apart but its model."""
        swept = (f"{name}={value}" for name, value in self.variables)
        return " ".join([with_options(self.agent, self.options), *swept])


@dataclass(frozen=True, slots=True)
class Row:
    """One task, as one entry of the spec has it."""

    task: str
    path: str
    label: str


@dataclass(frozen=True, slots=True)
class Cell:
    """One arm on one task, its trials in order of rollout."""

    row: Row
    arm: Arm
    trials: tuple[TrialResult, ...]
    rewards: tuple[float, ...]
    """Rewards of the scored rollouts."""
    passed: int
    """How many passed."""
    errors: int
    """How many ended in an error not caused by the agent."""

    @property
    def missing(self) -> int:
        """How many have no result: not run yet, skipped or cancelled."""
        return len(self.trials) - len(self.rewards) - self.errors


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


def reward_of(trial: TrialResult) -> float | None:
    """A trial's value in the score; None when it does not count."""
    record = trial.counted
    if record is None or not record.outcome.scored:
        return None
    return record.reward if record.reward is not None else float(record.outcome is Outcome.PASSED)


def is_error(outcome: Outcome | None) -> bool:
    """Ended, and neither by the agent's doing nor by a person's wish."""
    return outcome is not None and not outcome.scored and outcome.blame is not Blame.PERSON


def arrange(data: RunData) -> Table:
    """Put every trial in its cell. Tasks that most rollouts pass come first, then in plan order."""
    seen = _Seen(data.trials)
    varying = _varying([_variables(trial) for trial in seen.first])
    arm_keys, row_keys = _Keys(), _Keys()
    places = [
        (row_keys.add(_row_identity(trial), trial), arm_keys.add(_arm_identity(trial, varying), trial))
        for trial in seen.first
    ]
    cells: dict[tuple[str, str], list[TrialResult]] = {}
    for trial, kind in zip(data.trials, seen.kinds, strict=True):
        cells.setdefault(places[kind], []).append(trial)
    arms = dict(zip(arm_keys.first, _arms(arm_keys.first, varying), strict=True))
    rows = dict(zip(row_keys.first, _rows(row_keys.first), strict=True))
    placed = {
        (rows[row], arms[arm]): _cell(rows[row], arms[arm], trials) for (row, arm), trials in cells.items()
    }
    return Table(_by_success(list(rows.values()), placed), tuple(arms.values()), placed)


class _Seen:
    """Trials that differ in their rollout alone are of one kind, and looked at once."""

    def __init__(self, trials: Sequence[TrialResult]) -> None:
        self.first: list[TrialResult] = []
        """One trial of each kind."""
        self.kinds: list[int] = []
        """The kind of every trial."""
        known: dict[tuple[object, ...], int] = {}
        for trial in trials:
            planned = trial.planned
            who = (planned.agent, planned.agent_version, planned.model)
            what = (planned.subject, planned.subject_digest, planned.path, repr(planned.overrides))
            kind = known.setdefault((*who, *what), len(self.first))
            if kind == len(self.first):
                self.first.append(trial)
            self.kinds.append(kind)


def _cell(row: Row, arm: Arm, trials: list[TrialResult]) -> Cell:
    ordered = tuple(sorted(trials, key=lambda each: each.planned.rollout))
    rewards = tuple([reward for trial in ordered if (reward := reward_of(trial)) is not None])
    passed = sum(reward >= 1 for reward in rewards)
    return Cell(row, arm, ordered, rewards, passed, sum(is_error(trial.outcome) for trial in ordered))


class _Keys:
    """Identities in the order in which they were first seen, each with the first trial that has it."""

    def __init__(self) -> None:
        self.first: dict[str, TrialResult] = {}

    def add(self, identity: Sequence[Any], trial: TrialResult) -> str:
        key = canonical_json(identity)
        self.first.setdefault(key, trial)
        return key


def _variables(trial: TrialResult) -> dict[str, str]:
    found = trial.planned.overrides.get("environment_variables")
    return {str(name): str(shown(value)) for name, value in found.items()} if isinstance(found, dict) else {}


def _varying(rows: Sequence[Mapping[str, str]]) -> list[str]:
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if len({row.get(name) for row in rows}) > 1]


def _arm_identity(trial: TrialResult, varying: Sequence[str]) -> list[Any]:
    planned, variables = trial.planned, _variables(trial)
    options = [planned.overrides.get(name) for name in _FOR_THE_AGENT]
    swept = [variables.get(name) for name in varying]
    return [planned.agent, planned.agent_version, planned.model, options, swept]


def _row_identity(trial: TrialResult) -> list[Any]:
    planned = trial.planned
    aside = {"environment_variables", *_FOR_THE_AGENT}
    changed = {name: value for name, value in planned.overrides.items() if name not in aside}
    return [planned.subject, planned.subject_digest, changed]


def _arms(found: Mapping[str, TrialResult], varying: Sequence[str]) -> list[Arm]:
    made = []
    options = options_apart([trial.planned for trial in found.values()])
    for trial in found.values():
        planned, variables = trial.planned, _variables(trial)
        swept = tuple((name, variables[name]) for name in varying if name in variables)
        own = options[arm_of(planned)]
        parts = [
            with_options(planned.agent or "no agent", own),
            *([planned.model] if planned.model else []),
            *(f"{name}={value}" for name, value in swept),
        ]
        made.append((planned, swept, own, " · ".join(parts)))
    labels = distinct([label for *_, label in made])
    return [
        Arm(planned.agent or "no agent", planned.model, swept, label, own)
        for (planned, swept, own, _), label in zip(made, labels, strict=True)
    ]


def _rows(found: Mapping[str, TrialResult]) -> list[Row]:
    trials = list(found.values())
    labels = distinct([trial.planned.subject for trial in trials])
    return [
        Row(trial.planned.subject, trial.planned.path or "", label)
        for trial, label in zip(trials, labels, strict=True)
    ]


def _by_success(rows: list[Row], cells: Mapping[tuple[Row, Arm], Cell]) -> tuple[Row, ...]:
    passed = dict.fromkeys(rows, 0)
    scored = dict.fromkeys(rows, 0)
    for (row, _), cell in cells.items():
        passed[row] += cell.passed
        scored[row] += len(cell.rewards)
    return tuple(sorted(rows, key=lambda row: -passed[row] / scored[row] if scored[row] else 1.0))
