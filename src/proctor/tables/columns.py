"""Trials, attempts and iterations as rows of plain values. A column is named by its path in `series.jsonl`.

`params.size`, `metrics.duration_s.p50`, `ledger.cpu_s`: the path in the row is the column. Which columns
there are and what they hold is found in a first pass over the rows; the second streams them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord, AttemptRow
from proctor.model.run import RunInfo
from proctor.runfolder.files import encode
from proctor.runfolder.read import TrialResult

Kind = Literal["trials", "attempts", "iterations"]
Type = Literal["bool", "int", "float", "text"]
Row = dict[str, Any]
"""Column → value; a column that is absent is null."""

KINDS: tuple[Kind, ...] = ("trials", "attempts", "iterations")
MORE = "more"
"""The column for what has none: JSON of the values beyond MOST_COLUMNS."""
MOST_COLUMNS = 4000
_PLANNED = (
    "index", "key", "label", "kind", "subject", "subject_digest", "body", "agent", "agent_version", "model",
    "rollout", "seed", "path",
)  # fmt: skip
_ENDED = (
    "number", "counts", "outcome", "blame", "scored", "reward", "suspect", "started_at", "ended_at", "wall_s",
    "failure.phase", "failure.type", "failure.message", "notes", "artifacts.count", "artifacts.bytes",
    "worker",
)  # fmt: skip
FIXED: Mapping[Kind, tuple[str, ...]] = {
    "trials": ("run_id", "run_name", *_PLANNED, "attempts", *(name for name in _ENDED if name != "counts")),
    "attempts": ("run_id", "run_name", *_PLANNED, *_ENDED),
    "iterations": (
        "run_id", "run_name", "index", "key", "label", "subject", "seed", "number", "counts", "outcome",
        "iteration",
    ),
}  # fmt: skip
"""The columns that every table has, in this order."""
GROUPS = ("params", "overrides", "phases_s", "metrics", "ledger", "usage", "image")
"""What the other columns begin with, in this order; inside a group as they first occur."""
TYPES: Mapping[str, Type] = {
    **dict.fromkeys(
        ("run_id", "run_name", "key", "label", "kind", "subject", "subject_digest", "agent", "agent_version",
         "model", "path", "outcome", "blame", "failure.phase", "failure.type", "failure.message", "notes",
         "worker"),
        "text",
    ),
    **dict.fromkeys(
        ("index", "body", "rollout", "seed", "attempts", "number", "artifacts.count", "artifacts.bytes",
         "iteration"),
        "int",
    ),
    **dict.fromkeys(("reward", "started_at", "ended_at", "wall_s"), "float"),
    **dict.fromkeys(("counts", "scored", "suspect"), "bool"),
}  # fmt: skip
"""Types of the fixed columns, even when all values are null."""
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, and what every value in it is, unless it is null."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose columns are known and whose rows are streamed."""

    kind: Kind
    columns: tuple[Column, ...]
    source: Callable[[], Iterable[Row]]

    def rows(self) -> Iterator[list[Any]]:
        """Each row in the order of the columns, every value of its column's type or None."""
        names = {column.name for column in self.columns}
        for row in self.source():
            spare = {name: value for name, value in row.items() if name not in names}
            whole = {**row, MORE: encode(spare)} if spare else row
            yield [_cast(whole.get(column.name), column.type) for column in self.columns]


def table(kind: Kind, source: Callable[[], Iterable[Row]]) -> Table:
    """Look at every row once to learn the columns. The source is asked again for the rows themselves."""
    types: dict[str, Type | None] = dict.fromkeys(FIXED[kind])
    for row in source():
        for name, value in row.items():
            if name in types or len(types) < MOST_COLUMNS:
                types[name] = _join(types.get(name), value)
            else:
                types[MORE] = "text"
    order = {name: at for at, name in enumerate(FIXED[kind])}
    ordered = sorted(types, key=lambda name: order.get(name, len(order) + _group(name)))
    columns = tuple(Column(name, TYPES.get(name) or types[name] or "text") for name in ordered)
    return Table(kind, columns, source)


def attempt_row(info: RunInfo, row: AttemptRow) -> Row:
    """One attempt, flat."""
    return {**_head(info), **_planned(row.trial), **_ended(row.record), "counts": row.counts}


def trial_row(info: RunInfo, trial: TrialResult) -> Row:
    """One trial with the attempt that counts; its columns are null when none does."""
    found = {**_head(info), **_planned(trial.planned), "attempts": len(trial.attempts)}
    return {**found, **_ended(trial.counted)} if trial.counted else found


def iteration_rows(info: RunInfo, row: AttemptRow) -> Iterator[Row]:
    """The measured iterations of one attempt, with the parameters it was measured at."""
    trial, record = row.trial, row.record
    shared: Row = {
        **_head(info),
        "index": trial.index,
        "key": trial.key,
        "label": trial.label,
        "subject": trial.subject,
        "seed": trial.seed,
        "number": record.number,
        "counts": row.counts,
        "outcome": record.outcome.value,
    }
    _flatten(shared, "params", trial.params)
    for position, values in enumerate(record.iterations):
        found = {**shared, "iteration": position}
        _flatten(found, "metrics", {name: value for name, value in values.items() if name != "iteration"})
        stated = values.get("iteration")
        if type(stated) is int:
            found["iteration"] = stated
        yield found


def _head(info: RunInfo) -> Row:
    return {"run_id": info.id, "run_name": info.name}


def _planned(trial: PlannedTrial) -> Row:
    found = {name: getattr(trial, name) for name in _PLANNED}
    _flatten(found, "params", trial.params)
    _flatten(found, "overrides", trial.overrides)
    return found


def _ended(record: AttemptRecord) -> Row:
    found: Row = {
        "number": record.number,
        "outcome": record.outcome.value,
        "blame": record.outcome.blame.value,
        "scored": record.outcome.scored,
        "reward": record.reward,
        "suspect": record.suspect,
        "started_at": record.started_at,
        "ended_at": record.ended_at,
        "wall_s": record.ended_at - record.started_at,
        "notes": encode(list(record.notes)) if record.notes else None,
        "artifacts.count": len(record.artifacts),
        "artifacts.bytes": sum(each.size_bytes for each in record.artifacts),
        "worker": record.worker,
    }
    if record.failure:
        found |= {f"failure.{name}": getattr(record.failure, name) for name in ("phase", "type", "message")}
    for name in ("phases_s", "metrics", "ledger", "usage", "image"):
        _flatten(found, name, getattr(record, name))
    return found


def _flatten(row: Row, prefix: str, values: Mapping[str, Any], depth: int = 0) -> None:
    """The leaves of a mapping under dotted names; lists, and what is nested absurdly deep, as JSON."""
    for name, value in values.items():
        path = f"{prefix}.{name}"
        while path in row:  # a name with a dot in it beside a mapping: neither is lost
            path += "'"
        if isinstance(value, Mapping) and depth < 8:
            _flatten(row, path, value, depth + 1)
        elif isinstance(value, Mapping | list | tuple):
            row[path] = encode(value)
        elif value is not None:
            row[path] = value


def _group(name: str) -> int:
    start = name.partition(".")[0]
    return GROUPS.index(start) if start in GROUPS else len(GROUPS)


def _join(known: Type | None, value: Any) -> Type | None:
    """The type that holds what was seen so far and this value."""
    if value is None:
        return known
    if isinstance(value, bool):
        seen: Type = "bool"
    elif isinstance(value, int) and value in _INT64:
        seen = "int"
    elif isinstance(value, float):
        seen = "float"
    else:
        seen = "text"
    if known is None or known == seen:
        return seen
    return "float" if {known, seen} == {"int", "float"} else "text"


def _cast(value: Any, wanted: Type) -> Any:
    if value is None:
        return None
    if wanted == "float":
        return float(value)
    if wanted == "text":
        return value if isinstance(value, str) else encode(value)
    return value
