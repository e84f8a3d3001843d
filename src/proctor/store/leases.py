"""The life of a trial in the store: claim, begin, renew, finish, and what happens when a worker is lost.

Each function is one transaction. A result is written only under the current fence, so work may be
delivered twice and is still counted once. Every moment that decides something is the database's: workers
whose clocks differ would otherwise take each other's trials.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from proctor.errors import FenceError
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord, Failure, work_s
from proctor.model.trial import Lease, Offers, TrialState
from proctor.store import queries
from proctor.store.database import Database, Params, Row, Transaction
from proctor.store.rows import column, dump, planned_trial, record_body, unpack


class Taken(NamedTuple):
    """Trials that have begun, and which one would be next."""

    begun: list[tuple[Lease, PlannedTrial]]
    upcoming: PlannedTrial | None


def claim(db: Database, run_id: str, *, worker: str, lease_s: float, limit: int) -> list[Lease]:
    """Take up to `limit` pending trials, first in plan order."""
    worker = column(worker)
    with db.write() as tx:
        found = tx.execute(queries.CLAIMABLE, {"run": run_id, "limit": limit})
        leases = [
            Lease(run_id, key, idx, worker, fence + 1, attempts + 1, now + lease_s)
            for idx, key, fence, attempts, now in found
        ]
        for lease in leases:
            tx.change(
                queries.CLAIM,
                {
                    "run": run_id,
                    "idx": lease.index,
                    "fence": lease.fence,
                    "worker": worker,
                    "expires": lease.expires_at,
                },
            )
            _event(tx, run_id, "trial.leased", lease.index, _attempt_of(lease.attempt, worker))
    return leases


def take(
    db: Database, run_id: str, *, worker: str, lease_s: float, limit: int, keys: Sequence[str] | None
) -> Taken:
    """Claim and begin at once, and look at the trial that comes after them."""
    if keys is None:
        return _take(db, run_id, queries.TAKEABLE, {}, worker=worker, lease_s=lease_s, limit=limit)
    sql, params = queries.listed(queries.TAKEABLE_KEYS, keys=keys)
    return _take(db, run_id, sql, params, worker=worker, lease_s=lease_s, limit=limit)


def take_any(db: Database, offers: Offers, *, worker: str, lease_s: float, limit: int) -> Taken:
    """Claim and begin trials of the oldest running run that has some for this worker."""
    lists = {"kinds": offers.kinds, "backends": offers.backends}
    sql, params = queries.listed(queries.RUNS_TO_WORK_ON, **lists)
    params["memory_mb"] = offers.memory_mb
    within, _ = queries.listed(queries.TAKEABLE_WITHIN, **lists)
    for (run_id,) in db.read(sql, params):
        taken = _take(db, run_id, within, params, worker=worker, lease_s=lease_s, limit=limit)
        if taken.begun:  # else others were quicker, and the next run may have some
            return taken
    return Taken([], None)


def _take(
    db: Database, run_id: str, sql: str, params: Params, *, worker: str, lease_s: float, limit: int
) -> Taken:
    worker = column(worker)
    with db.write() as tx:
        found = tx.execute(sql, {**params, "run": run_id, "limit": limit + 1})
        trials = [planned_trial(row) for row in found]
        begun = [
            (
                Lease(run_id, trial.key, trial.index, worker, row[-3] + 1, row[-2] + 1, row[-1] + lease_s),
                trial,
            )
            for row, trial in zip(found[:limit], trials, strict=False)
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


def begin(db: Database, lease: Lease) -> None:
    """The work starts: from here on a lost worker is a lost attempt."""
    with db.write() as tx:
        if not tx.change(queries.BEGIN, _held(lease)):
            raise _passed_on(lease)
        _event(tx, lease.run_id, "trial.running", lease.index, _attempt_of(lease.attempt))


def renew(db: Database, leases: Sequence[Lease], *, lease_s: float) -> list[Lease]:
    """Push the leases' end forward; those that are no longer ours are returned."""
    ordered = sorted(leases, key=lambda lease: (lease.run_id, lease.index))
    with db.write() as tx:
        return [
            lease for lease in ordered if not tx.change(queries.RENEW, {**_held(lease), "lease_s": lease_s})
        ]


def lost(db: Database, leases: Sequence[Lease]) -> list[Lease]:
    """Those that are no longer ours: one read by primary key per run."""
    held: set[tuple[str, int, int]] = set()
    for run_id in {lease.run_id for lease in leases}:
        mine = [lease.index for lease in leases if lease.run_id == run_id]
        sql, params = queries.listed(queries.STILL_HELD, idxs=mine)
        held |= {(run_id, idx, fence) for idx, fence in db.read(sql, {**params, "run": run_id})}
    return [lease for lease in leases if (lease.run_id, lease.index, lease.fence) not in held]


def give_back(db: Database, lease: Lease) -> None:
    """Return a trial that was not started; no attempt is recorded."""
    with db.write() as tx:
        if not tx.change(queries.GIVE_BACK, _held(lease)):
            raise _passed_on(lease)
        _event(tx, lease.run_id, "trial.pending", lease.index, dump({"reason": "given back"}))


def finish(db: Database, lease: Lease, record: AttemptRecord, *, counts: bool, delay_s: float) -> None:
    """Write one attempt and move its trial on, or raise FenceError and write nothing."""
    body = record_body(record)
    state = TrialState.DONE if counts else TrialState.PENDING
    with db.write() as tx:
        moved = tx.change(
            queries.FINISH,
            {
                **_held(lease),
                "state": state.value,
                "number": lease.attempt,
                "outcome": record.outcome.value if counts else None,
                "delay_s": delay_s,
            },
        )
        if not moved:
            raise _passed_on(lease)
        insert_attempt(tx, lease.run_id, lease.index, record, body, number=lease.attempt, counts=counts)
        if counts:
            count(tx, lease.run_id, state, record.outcome, 1)
        _attempt_ended(tx, lease.run_id, lease.index, record, lease.attempt, state)


def reap(db: Database, run_id: str | None, *, again: bool) -> list[Lease]:
    """Return trials whose lease has ended. What was running leaves a `worker_lost` attempt."""
    where = queries.EXPIRED if run_id is None else f"{queries.EXPIRED} AND {queries.OF_RUN}"
    return _take_back(db, where, {"run": run_id}, "sent no heartbeat before its lease expired", again=again)


def release_worker(db: Database, worker: str, *, again: bool) -> list[Lease]:
    """Return at once every trial of a worker that is known to be dead."""
    return _take_back(db, queries.OF_WORKER, {"worker": worker}, "is dead", again=again)


def cancel(db: Database, run_id: str) -> int:
    """Nothing more of the run will start; what runs loses its lease. How many trials that ended."""
    held_of_run = queries.HELD.format(where=queries.OF_RUN, tail="ORDER BY t.idx {wait_lock}")
    failure = _failure("Cancelled", "the run was cancelled")
    number = 0
    with db.write() as tx:
        # Again until nothing is left: in PostgreSQL others claim and give back between two statements.
        while True:
            waiting = tx.change(queries.CANCEL_PENDING, {"run": run_id})
            held = tx.execute(held_of_run, {"run": run_id})
            for row in held:
                _unfence(tx, row, TrialState.CANCELLED, failure)
            if not waiting and not held:
                break
            number += waiting + len(held)
        if number:
            count(tx, run_id, TrialState.CANCELLED, Outcome.CANCELLED, number)
            _event(tx, run_id, "trials.cancelled", None, dump({"trials": number}))
    return number


def reopen_lost(db: Database, run_id: str) -> int:
    """Reopen trials that ended in an infrastructure or provider error; returns how many."""
    with db.write() as tx:
        number = tx.change(queries.REOPEN_LOST, {"run": run_id})
        if number:
            tx.change(queries.UNCOUNT_LOST, {"run": run_id})
            tx.change(queries.FORGET_LOST, {"run": run_id})
            _event(tx, run_id, "trials.pending", None, dump({"trials": number, "reason": "lost"}))
    return number


def count(tx: Transaction, run_id: str, state: TrialState, outcome: Outcome, number: int) -> None:
    """Keep the counters that `ls` reads instead of the trials."""
    tx.change(
        queries.COUNT_TRIALS,
        {"run": run_id, "state": state.value, "outcome": outcome.value, "trials": number},
    )


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
    """One attempt's row and its references to blobs."""
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
    if record.artifacts:
        tx.many(
            queries.REFER,
            [
                {"run": run_id, "digest": each.digest, "size_bytes": each.size_bytes}
                for each in sorted(record.artifacts, key=lambda artifact: artifact.digest)
            ],
        )


def _take_back(db: Database, where: str, params: dict[str, Any], why: str, *, again: bool) -> list[Lease]:
    """Take trials from a worker; one that was lost more often than its run allows ends as `worker_lost`.

    Several may do this at once: a row that another has locked is skipped, and one that it has taken back is
    no longer held.
    """
    # Looking first costs no write lock, and mostly there is nothing to take back.
    if not db.read(queries.HELD.format(where=where, tail="LIMIT 1"), params):
        return []
    taken: list[Lease] = []
    allowed: dict[str, int | None] = {}
    with db.write() as tx:
        held = tx.execute(queries.HELD.format(where=where, tail="{row_lock}"), params)
        for row in sorted(held, key=lambda each: (each[0], each[2])):
            run_id, key, idx, worker, fence, attempts, expires_at = row[:7]
            if run_id not in allowed:
                allowed[run_id] = None if again else _allowed_losses(tx, run_id)
            most = allowed[run_id]
            last = most is not None and row[7] == TrialState.RUNNING and attempts + 1 > most
            state = TrialState.DONE if last else TrialState.PENDING
            _unfence(tx, row, state, _failure("WorkerLost", f"worker {worker} {why}"))
            if last:
                count(tx, run_id, state, Outcome.WORKER_LOST, 1)
            taken.append(Lease(run_id, key, idx, worker, fence, attempts + 1, expires_at))
    return taken


def _allowed_losses(tx: Transaction, run_id: str) -> int | None:
    """How often the run's own policy tries a trial again that lost its worker; None when it has no policy."""
    found = tx.execute(queries.RETRIES, {"run": run_id})
    resolved = unpack(found[0][0]).get("resolved") or {}
    allowed: int | None = (resolved.get("retries") or {}).get("infrastructure")
    return allowed


def _unfence(tx: Transaction, row: Row, state: TrialState, failure: Failure) -> None:
    """Take a held trial from its worker. Only one that had begun leaves an attempt."""
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
    elif not cancelled:
        _event(tx, run_id, "trial.pending", idx, dump({"reason": failure.message}))


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


def _event(tx: Transaction, run_id: str, kind: str, idx: int | None, data: str) -> None:
    tx.events(queries.INSERT_EVENT, (_event_of(run_id, kind, idx, data),))


def _event_of(run_id: str, kind: str, idx: int | None, data: str) -> dict[str, Any]:
    return {"run": run_id, "kind": kind, "idx": idx, "data": data}


@lru_cache(maxsize=64)
def _attempt_of(number: int, worker: str | None = None) -> str:
    """What the events of a lease say: mostly the same for thousands of trials."""
    return dump({"attempt": number} if worker is None else {"attempt": number, "worker": worker})


def _held(lease: Lease) -> dict[str, Any]:
    return {"run": lease.run_id, "idx": lease.index, "key": lease.key, "fence": lease.fence}


def _failure(kind: str, message: str) -> Failure:
    return Failure(phase="work", type=kind, message=message)


def _passed_on(lease: Lease) -> FenceError:
    return FenceError(
        f"trial {lease.key[:12]} of run {lease.run_id}: the lease of worker {lease.worker} "
        f"(fence {lease.fence}) is no longer valid; nothing was written"
    )
