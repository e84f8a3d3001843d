"""Between rows and nouns: what is a column, what is JSON, and what is compressed."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from sys import intern
from typing import Any, NamedTuple

from proctor.errors import StoreError
from proctor.model.event import Event
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import Artifact, AttemptRecord, Failure
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.store.body import Body, ordered
from proctor.store.damage import decodes, decodes_each
from proctor.store.database import Row
from proctor.store.late import Late, set_aside

_MB = 1 << 20
COMPRESS_FROM_BYTES = 2048
"""Shorter documents gain nothing from zlib."""

_HEAD = ("seed", "tags", "notes", "folder", "plan_digest", "execution")
_DETAIL = ("spec", "resolved", "environment", "vcs", "versions")
_NOTHING: Mapping[str, Any] = {}
_OPTIONS = '"agent_options"'
_NO_BODY = Body(b"{}")
OUTCOMES = {outcome.value: outcome for outcome in Outcome}


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """An attempt as the store has it: with its trial, and whether it is the one that counts."""

    record: AttemptRecord
    counts: bool
    trial: PlannedTrial


class ResultRow(NamedTuple):
    """What a trial came to, for readers of very many: the attempt that counts, or nothing of it yet."""

    key: str
    subject: str
    agent: str | None
    model: str | None
    params: Mapping[str, Any]
    """Empty for rollouts."""
    number: int | None
    outcome: Outcome | None
    started_at: float
    ended_at: float
    reward: float | None
    work_s: float | None
    """Of a rollout: agent and verifier."""
    body: Body
    """`metrics`, `iterations`, `usage` and so on; empty unless bodies were asked for."""
    options: Mapping[str, Any]
    """Of the agent; empty for experiments."""


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


@decodes
def unpack(data: bytes) -> Any:
    """The inverse of `pack`."""
    return json.loads(data if data[:1] == b"{" else zlib.decompress(data))


@decodes
def unpack_all(documents: Iterable[bytes], *, late: bool = False) -> list[Any]:
    """Many at once: in one pass equal names become one string, which saves time and most of the memory.

    `late`: lists that most readers of many records never look at are decoded when somebody does.
    """
    texts = [data if data[:1] == b"{" else zlib.decompress(data) for data in documents]
    aside: list[Late[Any] | None] = []
    if late:
        split = [set_aside(text) for text in texts]
        texts, aside = [text for text, _ in split], [each for _, each in split]
    found: list[Any] = json.loads(b"[" + b",".join(texts) + b"]")
    for body, each in zip(found, aside, strict=False):
        if each is not None:
            body[each.part] = each
    return found


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


@decodes
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


def needs_of(info: RunInfo, memory_bytes: Mapping[str, int]) -> Callable[[PlannedTrial], dict[str, Any]]:
    """What each trial of a run needs of its worker, as columns: which sandbox, how much memory."""
    sandbox = info.resolved.get("sandbox") or {}
    backend = sandbox.get("backend") or "auto"
    run_bytes = sandbox.get("memory_bytes") or 0

    def needs(trial: PlannedTrial) -> dict[str, Any]:
        if trial.kind != "task":
            return {"backend": "", "memory_mb": 0}
        needed = run_bytes or memory_bytes.get(trial.subject_digest, 0)
        return {"backend": "" if backend == "auto" else backend, "memory_mb": -(-needed // _MB)}

    return needs


@decodes
def planned_trial(row: Row) -> PlannedTrial:
    """A planned trial from `queries.TRIAL_COLUMNS`."""
    return _trial(row, json.loads(row[10]))


@decodes_each
def planned_trials(page: Sequence[Row]) -> Iterator[PlannedTrial]:
    """Many of them; what they have in common they share."""
    yield from map(_trial, page, json.loads(f"[{','.join([row[10] for row in page])}]"))


def _trial(row: Row, doc: Mapping[str, Any]) -> PlannedTrial:
    path = doc["path"]
    return PlannedTrial(
        index=row[0],
        key=row[1],
        kind="task" if row[2] == "task" else "experiment",
        subject=intern(row[3]),
        subject_digest=intern(row[4]),
        body=row[5],
        agent=row[6] and intern(row[6]),
        agent_version=row[7] and intern(row[7]),
        model=row[8] and intern(row[8]),
        rollout=row[9],
        params=doc["params"],
        overrides=doc["overrides"],
        seed=doc["seed"],
        path=path and intern(path),
    )


def record_body(record: AttemptRecord) -> bytes:
    """What of a record is not a column. Empty parts are left out."""
    return pack(
        ordered(
            {
                "phases_s": record.phases_s,
                "image": record.image,
                "system_changes": record.system_changes,
                "suspect": record.suspect,
                "metrics": record.metrics,
                "iterations": record.iterations,
                "ledger": record.ledger,
                "usage": record.usage,
                "notes": record.notes,
                "failure": _fields(record.failure) if record.failure else None,
                "artifacts": [_fields(each) for each in record.artifacts],
            }
        )
    )


def attempt_record(row: Row, key: str) -> AttemptRecord:
    """A record from `queries.ATTEMPT_COLUMNS`."""
    return record_of(row, key, unpack(row[7]))


@decodes
def record_of(row: Row, key: str, body: dict[str, Any]) -> AttemptRecord:
    """The same, of which the body is unpacked already."""
    failure = body.pop("failure", None)
    artifacts, iterations = body.pop("artifacts", ()), body.pop("iterations", ())
    return AttemptRecord(
        key=key,
        number=row[0],
        outcome=OUTCOMES[row[1]],
        started_at=row[3],
        ended_at=row[4],
        reward=row[5],
        worker=intern(row[6]),
        failure=Failure(**failure) if failure else None,
        artifacts=tuple([Artifact(**each) for each in artifacts]) if type(artifacts) is list else artifacts,
        iterations=tuple(iterations) if type(iterations) is list else iterations,
        notes=tuple(map(intern, body.pop("notes", ()))),
        **body,
    )


@decodes_each
def result_rows(page: Sequence[Row], *, bodies: bool) -> Iterator[ResultRow]:
    """Rows of `queries.RESULTS_PAGE`."""
    params: list[Any] = [_NOTHING] * len(page)
    if page and page[0][2] == "experiment":
        params = [doc["params"] for doc in json.loads(f"[{','.join([row[6] for row in page])}]")]
    for row, own in zip(page, params, strict=True):
        options = _NOTHING
        if _OPTIONS in row[6]:
            options = json.loads(row[6])["overrides"].get("agent_options") or _NOTHING
        _, key, _, subject, agent, model, _, number, outcome, *rest = row
        started_at, ended_at, reward, worked, *record = rest
        yield ResultRow(
            key,
            subject,
            agent,
            model,
            own,
            number,
            OUTCOMES[outcome] if outcome else None,
            started_at or 0.0,
            ended_at or 0.0,
            reward,
            worked,
            Body(record[0]) if bodies and record[0] else _NO_BODY,
            options,
        )


@decodes
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
