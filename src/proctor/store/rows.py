"""Between rows and nouns: what is a column, what is JSON, and what is compressed."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from sys import intern
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field

from proctor.errors import StoreError
from proctor.model.canonical import encode
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord, Failure
from proctor.model.run import Event, RunInfo
from proctor.model.trial import RunStatus
from proctor.store.database import Row, decodes, decodes_each

T = TypeVar("T")

_MB = 1 << 20
COMPRESS_FROM_BYTES = 2048
"""Shorter documents gain nothing from zlib."""

_HEAD = ("seed", "tags", "notes", "folder", "plan_digest", "execution")
_DETAIL = ("spec", "resolved", "environment", "vcs", "versions")
_COLUMNS = frozenset(("key", "number", "outcome", "blame", "started_at", "ended_at", "reward", "worker"))
_NOTHING: Mapping[str, Any] = {}
_OPTIONS = '"agent_options"'
OUTCOMES = {outcome.value: outcome for outcome in Outcome}


class Measured(Struct, frozen=True, gc=False):
    """What readers of very many results want of a record; the rest of it is passed over."""

    written_metrics: msgspec.Raw = field(name="metrics", default=msgspec.Raw(b"{}"))
    """As JSON: the values are mostly in the iterations, and a digest wants the text."""
    iterations: tuple[dict[str, Any], ...] = ()
    ledger: dict[str, Any] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)
    failure: Failure | None = None
    suspect: bool = False

    @property
    def metrics(self) -> dict[str, Any]:
        """The aggregates, decoded."""
        return decoder(Plain).decode(self.written_metrics)


class ResultRow(Struct, frozen=True, gc=False):
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
    options: Mapping[str, Any]
    """Of the agent; empty for experiments."""
    subject_digest: str
    """Of the task's content, or of the experiment's code."""
    measured: Measured
    """Empty unless bodies were asked for, and where there is no result yet."""


class _TrialDocument(Struct, gc=False):
    """What of a planned trial is not a column."""

    params: dict[str, Any]
    overrides: dict[str, Any]
    seed: int
    path: str | None


Plain = dict[str, Any]
_DECODERS: dict[Any, Any] = {}


def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """The decoder of a type, made when first needed: that takes a millisecond, and commands need few."""
    found: msgspec.json.Decoder[T] | None = _DECODERS.get(kind)
    if found is None:
        found = _DECODERS[kind] = msgspec.json.Decoder(kind)
    return found


def dump(value: Any) -> str:
    """JSON in ASCII: whatever text holds, NUL and lone surrogates too, both databases take it."""
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"a value cannot be stored as JSON: {error}") from error


def pack(value: Any) -> bytes:
    """JSON bytes, compressed when long. The first byte tells which."""
    try:
        data = encode(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"a value cannot be stored as JSON: {error}") from error
    return data if len(data) < COMPRESS_FROM_BYTES else zlib.compress(data, 1)


@decodes
def unpack(data: bytes) -> dict[str, Any]:
    """The inverse of `pack`."""
    return decode(data, Plain)


def decode(data: bytes, kind: type[T]) -> T:
    """What a type says of packed JSON; the rest is passed over."""
    text = data if data[:1] == b"{" else zlib.decompress(data)
    try:
        return decoder(kind).decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Earlier versions wrote NaN, and Python writes lone surrogates: JSON for Python only.
        return msgspec.convert(json.loads(text), kind)


def column(text: str) -> str:
    """Text that both databases accept in a column; where it matters the JSON beside it is exact."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def pattern(text: str) -> str:
    """Text with `*` for SQL's LIKE, with `!` as its escape."""
    for special in "!%_":
        text = text.replace(special, f"!{special}")
    return column(text).replace("*", "%")


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
    head = decode(row[8].encode(), Plain)
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


def words(labels: Iterable[str]) -> str:
    """Labels as one text: `|gpu||arch=x86_64|`, so that SQL can take those away that a worker has."""
    return "".join(f"|{each}|" for each in sorted(set(labels)))


def needs_of(
    info: RunInfo, memory_bytes: Mapping[str, int] = _NOTHING, cpus: Mapping[str, float] = _NOTHING
) -> Callable[[PlannedTrial], dict[str, Any]]:
    """What each trial of a run needs of its worker, as columns: which sandbox, memory, processors, labels.

    `memory_bytes`, `cpus`: what tasks ask for by themselves, by digest; what the spec says goes before it.
    """
    sandbox = info.resolved.get("sandbox") or {}
    backend = sandbox.get("backend") or "auto"
    run_bytes, run_cpus = sandbox.get("memory_bytes") or 0, sandbox.get("cpus") or 0.0
    labels = words(info.resolved.get("labels") or ())

    def needs(trial: PlannedTrial) -> dict[str, Any]:
        if trial.kind != "task":
            return {"backend": "", "memory_mb": 0, "cpus": 0.0, "labels": labels}
        needed = run_bytes or memory_bytes.get(trial.subject_digest, 0)
        return {
            "backend": "" if backend == "auto" else backend,
            "memory_mb": -(-needed // _MB),
            "cpus": float(run_cpus or cpus.get(trial.subject_digest, 0.0)),
            "labels": labels,
        }

    return needs


@decodes
def planned_trial(row: Row) -> PlannedTrial:
    """A planned trial from `queries.TRIAL_COLUMNS`; what many have in common they share."""
    about = decode(row[10].encode(), _TrialDocument)
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
        params=about.params,
        overrides=about.overrides or _NOTHING,
        seed=about.seed,
        path=about.path and intern(about.path),
    )


def record_body(record: AttemptRecord) -> bytes:
    """What of a record is not a column. Empty parts are left out."""
    return pack(
        {name: value for name, value in record.to_mapping().items() if value and name not in _COLUMNS}
    )


@decodes
def attempt_record(row: Row, key: str) -> AttemptRecord:
    """A record from `queries.ATTEMPT_COLUMNS`: columns and body become one text, read in one pass."""
    columns = {
        "key": key,
        "number": row[0],
        "outcome": row[1],
        "started_at": row[3],
        "ended_at": row[4],
        "reward": row[5],
        "worker": row[6],
    }
    body = row[7] if row[7][:1] == b"{" else zlib.decompress(row[7])
    rest = b"}" if body == b"{}" else b"," + body[1:]
    return decode(msgspec.json.encode(columns)[:-1] + rest, AttemptRecord)


def brief_record(row: Row, key: str) -> AttemptRecord:
    """A record from `queries.BRIEF_PAGE`: with what are columns. All the work is in the agent's phase."""
    return AttemptRecord(
        key=key,
        number=row[0],
        outcome=OUTCOMES[row[1]],
        started_at=row[3],
        ended_at=row[4],
        reward=row[5],
        worker=intern(row[6]),
        phases_s={} if row[8] is None else {"agent": row[8]},
    )


@decodes_each
def result_rows(page: Sequence[Row]) -> Iterator[ResultRow]:
    """Rows of `queries.RESULTS_PAGE`, with or without bodies."""
    nothing = Measured()
    for row in page:
        doc = row[6]
        about = decode(doc.encode(), _TrialDocument) if row[2] == "experiment" or _OPTIONS in doc else None
        yield ResultRow(
            key=row[1],
            subject=row[3],
            agent=row[4],
            model=row[5],
            params=about.params if about and row[2] == "experiment" else _NOTHING,
            number=row[7],
            outcome=OUTCOMES[row[8]] if row[8] else None,
            started_at=row[9] or 0.0,
            ended_at=row[10] or 0.0,
            reward=row[11],
            work_s=row[12],
            options=(about.overrides.get("agent_options") if about else None) or _NOTHING,
            subject_digest=row[13],
            measured=_measured(row[14]) if len(row) > 14 and row[14] else nothing,
        )


def _measured(data: bytes) -> Measured:
    text = data if data[:1] == b"{" else zlib.decompress(data)
    try:
        return decoder(Measured).decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # As in `decode`; metrics are wanted as text, so it is written again as JSON for everybody.
        return decoder(Measured).decode(encode(json.loads(text), escape=False).encode("utf-8", "replace"))


@decodes
def event(row: Row) -> Event:
    """An event from `queries.EVENTS`."""
    data = decode(row[5].encode(), Plain)
    return Event(id=row[0], run_id=row[1], at=row[2], kind=row[3], trial_key=row[4], data=data)


_ENCODER = json.JSONEncoder(separators=(",", ":"), default=dict)
"""Made once: `json.dumps` with options makes one per call, which costs more than a short document."""
