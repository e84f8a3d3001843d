"""Between rows and nouns: what is a column, what is JSON, and what is compressed."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proctor.errors import StoreError
from proctor.model.event import Event
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import Artifact, AttemptRecord, Failure
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.store.database import Row

COMPRESS_FROM_BYTES = 2048
"""Shorter documents gain nothing from zlib."""

_HEAD = ("seed", "tags", "notes", "folder", "plan_digest")
_DETAIL = ("spec", "resolved", "environment", "vcs", "versions")


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """An attempt as the store has it: with its trial, and whether it is the one that counts."""

    record: AttemptRecord
    counts: bool
    trial: PlannedTrial


def dump(value: Any) -> str:
    """JSON in ASCII: whatever text holds, NUL and lone surrogates too, both databases take it."""
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"a value cannot be stored as JSON: {error}") from error


def pack(value: Any) -> bytes:
    """JSON bytes, compressed when long. The first byte tells which."""
    data = dump(value).encode()
    return data if len(data) < COMPRESS_FROM_BYTES else zlib.compress(data, 1)


def unpack(data: bytes) -> Any:
    """The inverse of `pack`."""
    return json.loads(data if data[:1] == b"{" else zlib.decompress(data))


def column(text: str) -> str:
    """Text that both databases accept in a column; where it matters the JSON beside it is exact."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def run_params(info: RunInfo, warnings: tuple[str, ...] = ()) -> dict[str, Any]:
    """The columns of a run."""
    return {
        "id": info.id,
        "created_at": info.created_at,
        "name": column(info.name),
        "kind": info.kind,
        "status": info.status.value,
        "started_at": info.started_at,
        "finished_at": info.finished_at,
        "total": info.total,
        "folder": column(info.folder),
        "head": dump({name: getattr(info, name) for name in _HEAD}),
        "detail": pack({**{name: getattr(info, name) for name in _DETAIL}, "warnings": warnings}),
    }


def run_info(
    row: Row, counts: Mapping[tuple[str, str], int], detail: Mapping[str, Any] | None = None
) -> RunInfo:
    """A run from `queries.RUN_COLUMNS`; without `detail` it has no spec and no environment."""
    head = json.loads(row[8])
    by_outcome: dict[str, int] = {}
    for (_, outcome), number in sorted(counts.items()):
        by_outcome[outcome] = by_outcome.get(outcome, 0) + number
    return RunInfo(
        id=row[0],
        created_at=row[1],
        name=row[2],
        kind=row[3],
        status=RunStatus(row[4]),
        started_at=row[5],
        finished_at=row[6],
        total=row[7],
        done=sum(number for (state, _), number in counts.items() if state == "done"),
        counts=by_outcome,
        **{**head, "tags": tuple(head["tags"])},
        **{name: detail[name] for name in _DETAIL if detail},
    )


def trial_params(run_id: str, trial: PlannedTrial) -> dict[str, Any]:
    """The columns of a planned trial."""
    return {
        "run": run_id,
        "idx": trial.index,
        "key": trial.key,
        "kind": trial.kind,
        "subject": column(trial.subject),
        "subject_digest": trial.subject_digest,
        "body": trial.body,
        "agent": trial.agent,
        "agent_version": trial.agent_version,
        "model": trial.model,
        "rollout": trial.rollout,
        "doc": dump(
            {
                "params": trial.params,
                "overrides": trial.overrides,
                "seed": trial.seed,
                "path": trial.path,
            }
        ),
    }


def planned_trial(row: Row) -> PlannedTrial:
    """A planned trial from `queries.TRIAL_COLUMNS`."""
    doc = json.loads(row[10])
    return PlannedTrial(
        index=row[0],
        key=row[1],
        kind=row[2],
        subject=row[3],
        subject_digest=row[4],
        body=row[5],
        agent=row[6],
        agent_version=row[7],
        model=row[8],
        rollout=row[9],
        params=doc["params"],
        overrides=doc["overrides"],
        seed=doc["seed"],
        path=doc["path"],
    )


def record_body(record: AttemptRecord) -> bytes:
    """What of a record is not a column. Empty parts are left out."""
    parts: dict[str, Any] = {
        "phases_s": record.phases_s,
        "metrics": record.metrics,
        "iterations": record.iterations,
        "ledger": record.ledger,
        "usage": record.usage,
        "notes": record.notes,
    }
    body = {name: value for name, value in parts.items() if value}
    if record.failure:
        body["failure"] = _fields(record.failure)
    if record.artifacts:
        body["artifacts"] = [_fields(each) for each in record.artifacts]
    return pack(body)


def attempt_record(row: Row, key: str) -> AttemptRecord:
    """A record from `queries.ATTEMPT_COLUMNS`."""
    body = unpack(row[7])
    failure = body.pop("failure", None)
    return AttemptRecord(
        key=key,
        number=row[0],
        outcome=Outcome(row[1]),
        started_at=row[3],
        ended_at=row[4],
        reward=row[5],
        worker=row[6],
        failure=Failure(**failure) if failure else None,
        artifacts=tuple(Artifact(**each) for each in body.pop("artifacts", ())),
        iterations=tuple(body.pop("iterations", ())),
        notes=tuple(body.pop("notes", ())),
        **body,
    )


def event(row: Row) -> Event:
    """An event from `queries.EVENTS`."""
    return Event(id=row[0], run_id=row[1], at=row[2], kind=row[3], trial_key=row[4], data=json.loads(row[5]))


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    message = f"{type(value).__name__} is not JSON"
    raise TypeError(message)


_ENCODER = json.JSONEncoder(separators=(",", ":"), default=_plain)
"""Made once: `json.dumps` with options makes one per call, which costs more than a short document."""
