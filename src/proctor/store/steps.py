"""What one step in the life of a trial writes, inside a transaction that the caller has begun."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any, NamedTuple
from zlib import crc32

from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import Artifact, AttemptRecord, Failure, work_s
from proctor.model.trial import Lease, TrialState
from proctor.store import queries
from proctor.store.database import Params, Row, Transaction
from proctor.store.inputs import Input
from proctor.store.rows import column, dump, planned_trial, record_body, unpack

_SHARDS = 16
"""Over how many rows the counter of an outcome is spread, so that workers do not wait for each other."""


class Taken(NamedTuple):
    """Trials that have begun, and which one would be next."""

    begun: list[tuple[Lease, PlannedTrial]]
    upcoming: PlannedTrial | None


class Ended(NamedTuple):
    """An attempt to be written under its lease. If it counts its trial is done, else it waits `delay_s`."""

    lease: Lease
    record: AttemptRecord
    counts: bool = True
    delay_s: float = 0.0


def take(
    tx: Transaction, run_id: str, sql: str, params: Params, *, worker: str, lease_s: float, limit: int
) -> Taken:
    """Lease and begin up to `limit` of the trials that a statement finds; one more is looked at."""
    found = tx.execute(sql, {**params, "run": run_id, "limit": limit + 1})
    return begin(tx, run_id, found, worker=worker, lease_s=lease_s, limit=limit)


def begin(
    tx: Transaction,
    run_id: str,
    found: Sequence[Row],
    *,
    worker: str,
    lease_s: float,
    limit: int,
    memory_mb: Sequence[int] = (),
) -> Taken:
    """Lease and begin the first rows; each ends with fence, attempts and the moment."""
    worker = column(worker)
    trials = [planned_trial(row) for row in found]
    begun = [
        (
            Lease(run_id, trial.key, trial.index, worker, row[-3] + 1, row[-2] + 1, row[-1] + lease_s, mb),
            trial,
        )
        for row, trial, mb in zip(found[:limit], trials, memory_mb or repeat(0), strict=False)
    ]
    for lease, _ in begun:
        tx.change(
            queries.TAKE,
            {
                "run": run_id,
                "idx": lease.index,
                "fence": lease.fence,
                "worker": worker,
                "expires": lease.expires_at,
                "started_at": lease.expires_at - lease_s,
            },
        )
        attempt = lease.attempt
        leased = _event_of(run_id, "trial.leased", lease.index, _attempt_of(attempt, worker))
        running = _event_of(run_id, "trial.running", lease.index, _attempt_of(attempt))
        tx.events(queries.INSERT_EVENT, (leased, running))
    return Taken(begun, trials[limit] if len(trials) > limit else None)


def finish(tx: Transaction, ended: Ended, body: bytes) -> bool:
    """Write one attempt and move its trial on; False, and nothing written, when the lease has passed on.

    What others may write too comes in `tally`.
    """
    lease, record, counts, delay_s = ended
    state = TrialState.DONE if counts else TrialState.PENDING
    moved = tx.change(
        queries.FINISH,
        {
            **held(lease),
            "state": state.value,
            "number": lease.attempt,
            "outcome": record.outcome.value if counts else None,
            "delay_s": delay_s,
        },
    )
    if not moved:
        return False
    insert_attempt(tx, lease.run_id, lease.index, record, body, number=lease.attempt, counts=counts)
    _attempt_ended(tx, lease.run_id, lease.index, record, lease.attempt, state)
    return True


def count(
    tx: Transaction,
    run_id: str,
    state: TrialState,
    outcome: Outcome,
    trials: int,
    worker: str = "",
    took_s: Sequence[float] = (),
) -> None:
    """Keep the counters that `ls` and monitors read instead of trials and attempts.

    `took_s` is of all attempts, also of those that were tried again.
    """
    tx.change(
        queries.COUNT_TRIALS,
        {
            "run": run_id,
            "state": state.value,
            "outcome": outcome.value,
            "shard": shard_of(worker),
            "trials": trials,
            "attempts": len(took_s),
            "seconds": sum(took_s, 0.0),
        },
    )


def shard_of(worker: str) -> int:
    """Which row of a counter a worker writes."""
    return crc32(worker.encode("utf-8", "replace")) % _SHARDS


def insert_attempt(
    tx: Transaction,
    run_id: str,
    idx: int,
    record: AttemptRecord,
    body: bytes,
    *,
    number: int,
    counts: bool,
) -> None:
    """One attempt's row."""
    tx.change(
        queries.INSERT_ATTEMPT,
        {
            "run": run_id,
            "idx": idx,
            "number": number,
            "outcome": record.outcome.value,
            "counts": int(counts),
            "started_at": record.started_at,
            "ended_at": record.ended_at,
            "reward": record.reward,
            "worker": column(record.worker),
            "record": body,
            "work_s": work_s(record.phases_s),
        },
    )


def tally(tx: Transaction, run_id: str, worker: str, written: Sequence[tuple[AttemptRecord, bool]]) -> None:
    """Counters and references to blobs of attempts that were written, each with whether it counts.

    In one order for everybody: two workers that write the same rows in turns would block each other.
    """
    trials = Counter(record.outcome for record, counts in written if counts)
    took_s: dict[Outcome, list[float]] = {}
    for record, _ in written:
        took_s.setdefault(record.outcome, []).append(record.ended_at - record.started_at)
    for outcome in sorted(took_s):
        count(tx, run_id, TrialState.DONE, outcome, trials[outcome], worker, took_s[outcome])
    artifacts = {artifact.digest: artifact for record, _ in written for artifact in record.artifacts}
    if artifacts:
        refer(tx, run_id, artifacts.values())


def refer(tx: Transaction, run_id: str, blobs: Iterable[Artifact | Input]) -> None:
    """A run needs these blobs."""
    tx.many(
        queries.REFER,
        [
            {"run": run_id, "digest": each.digest, "size_bytes": each.size_bytes}
            for each in sorted(blobs, key=lambda blob: blob.digest)
        ],
    )


def allowed_losses(tx: Transaction, run_id: str) -> int | None:
    """How often the run's own policy tries a trial again that lost its worker; None when it has no policy."""
    found = tx.execute(queries.RETRIES, {"run": run_id})
    resolved = unpack(found[0][0]).get("resolved") or {}
    allowed: int | None = (resolved.get("retries") or {}).get("infrastructure")
    return allowed


def unfence(tx: Transaction, row: Row, state: TrialState, failure: Failure) -> list[float]:
    """Take a held trial from its worker. Only one that had begun leaves an attempt: how long it took."""
    run_id, key, idx, worker, _, attempts, _, held_state, started_at, now = row
    begun = held_state == TrialState.RUNNING
    cancelled = state is TrialState.CANCELLED
    ended = state is not TrialState.PENDING
    outcome = Outcome.CANCELLED if cancelled else Outcome.WORKER_LOST
    number = attempts + 1 if begun else attempts
    tx.change(
        queries.UNFENCE,
        {
            "run": run_id,
            "idx": idx,
            "state": state.value,
            "attempts": number,
            "outcome": outcome.value if ended else None,
        },
    )
    if begun:
        record = AttemptRecord(
            key=key,
            number=number,
            outcome=outcome,
            started_at=started_at,
            ended_at=max(now, started_at),
            failure=failure,
            worker=worker,
        )
        insert_attempt(tx, run_id, idx, record, record_body(record), number=number, counts=ended)
        _attempt_ended(tx, run_id, idx, record, number, state)
        return [record.ended_at - record.started_at]
    if not cancelled:
        write_event(tx, run_id, "trial.pending", {"reason": failure.message}, idx)
    return []


def _attempt_ended(
    tx: Transaction, run_id: str, idx: int, record: AttemptRecord, number: int, state: TrialState
) -> None:
    data = dump(
        {
            "attempt": number,
            "outcome": record.outcome.value,
            "reward": record.reward,
            "duration_s": None if (took_s := record.took_s) is None else round(took_s, 6),
            "state": state.value,
        }
    )
    events = [_event_of(run_id, "attempt.ended", idx, data)]
    if state is TrialState.DONE:
        events.append(_event_of(run_id, "trial.done", idx, data))
    tx.events(queries.INSERT_EVENT, events)


def write_event(
    tx: Transaction, run_id: str, kind: str, data: Mapping[str, Any], idx: int | None = None
) -> None:
    """An event of a run, or of one of its trials."""
    tx.events(queries.INSERT_EVENT, (_event_of(run_id, kind, idx, dump(data)),))


def _event_of(run_id: str, kind: str, idx: int | None, data: str) -> dict[str, Any]:
    return {"run": run_id, "kind": kind, "idx": idx, "data": data}


@lru_cache(maxsize=64)
def _attempt_of(number: int, worker: str | None = None) -> str:
    """What the events of a lease say: mostly the same for thousands of trials."""
    return dump({"attempt": number} if worker is None else {"attempt": number, "worker": worker})


def held(lease: Lease) -> dict[str, Any]:
    """The parameters that name a trial under its lease."""
    return {"run": lease.run_id, "idx": lease.index, "key": lease.key, "fence": lease.fence}


def failure(kind: str, message: str) -> Failure:
    """Why a worker did not come to the end of an attempt."""
    return Failure(phase="work", type=kind, message=message)
