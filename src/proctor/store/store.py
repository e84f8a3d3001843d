"""The store of runs, trials, attempts and events, on SQLite or PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType, TracebackType
from typing import Any, Self

from proctor.errors import NotFoundError, UsageError
from proctor.model.describe import percentile
from proctor.model.event import Event
from proctor.model.outcome import Outcome
from proctor.model.plan import Plan, PlannedTrial
from proctor.model.record import AttemptRecord, AttemptRow
from proctor.model.run import RunInfo
from proctor.model.trial import Lease, Offers, RunStatus, TrialState
from proctor.store import leases, queries, refs, rows
from proctor.store.coordination import Coordination
from proctor.store.damage import decodes_each
from proctor.store.database import ConflictError, Database, Row, Transaction
from proctor.store.leases import Taken
from proctor.store.notes import Notes
from proctor.store.rows import ResultRow

_PAGE = 500
_PAGE_BYTES = 1 << 20
"""How much of the attempts to hold at once while streaming them."""
_FIRST_WAIT_S, _LAST_WAIT_S = 0.05, 0.5
"""How long a reader of events waits between two looks, unless it is woken: not every commit wakes it."""
_STATUS_EVENTS = {
    RunStatus.PENDING: "run.pending",
    RunStatus.RUNNING: "run.started",
    RunStatus.DONE: "run.finished",
    RunStatus.INTERRUPTED: "run.interrupted",
    RunStatus.CANCELLED: "run.cancelled",
}


class Store:
    """Runs, trials, attempts and events. Safe between threads and between processes."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._notes = Notes(db)

    @property
    def coordination(self) -> Coordination:
        """Who coordinates which run."""
        return Coordination(self._db)

    @property
    def where(self) -> str:
        """The store's address, without a password."""
        return self._db.where

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the database."""
        self._db.close()

    def check(self) -> list[str]:
        """What is wrong with the store; empty when it is sound."""
        found = self._db.check()
        if not found:
            found += [
                f"run {row[0]}: the counters do not match the trials" for row in self._db.read(queries.DRIFT)
            ]
            found += [
                f"run {row[0]}: a trial is done without a result" for row in self._db.read(queries.UNANSWERED)
            ]
        return found

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Everything this thread writes in the block commits together: one commit instead of several.

        Nothing may be awaited inside: another task of the thread would write into the same transaction.
        A FenceError caught inside leaves the rest of the batch as it is; one that escapes undoes it all.
        """
        with self._db.write():
            self._notes.write()
            yield

    # Runs

    def create_run(self, info: RunInfo, plan: Plan) -> None:
        """A run, all its trials and the event, in one transaction."""
        with self._new_run(info.id) as tx:
            self._insert_run(tx, info, plan.trials, plan.warnings, len(plan), plan.memory_bytes)
            self._event(tx, info.id, "run.created", {"name": info.name, "trials": len(plan)})

    def import_run(
        self,
        info: RunInfo,
        planned: Iterable[PlannedTrial],
        attempts: Iterable[tuple[AttemptRecord, bool]],
        *,
        warnings: Sequence[str] = (),
    ) -> None:
        """A run that happened elsewhere, whole. Trials that no attempt answers can be resumed."""
        with self._new_run(info.id) as tx:
            self._insert_run(tx, info, planned, tuple(warnings), info.total)
            for record, counts in attempts:
                self._import_attempt(tx, info.id, record, counts=counts)
            if info.status is RunStatus.CANCELLED:
                left = tx.change(queries.CANCEL_PENDING, {"run": info.id})
                leases.count(tx, info.id, TrialState.CANCELLED, Outcome.CANCELLED, left)
            self._event(tx, info.id, "run.imported", {"name": info.name})

    def runs(
        self,
        *,
        limit: int = 50,
        name: str | None = None,
        status: RunStatus | str | None = None,
        before: str | None = None,
    ) -> list[RunInfo]:
        """The newest runs, without spec and environment. `name` may have `*`; `before` is a run's id."""
        where = [queries.ANY]
        where += [queries.ONE_NAME] if name is not None else []
        where += [queries.ONE_STATUS] if status is not None else []
        where += [queries.BEFORE] if before is not None else []
        page = " AND ".join(where)
        params = {
            "limit": limit,
            "name": _pattern(name or ""),
            "status": RunStatus(status).value if status is not None else "",
            "before": before,
        }
        found = self._db.read(queries.RUNS.format(where=page), params)
        counts: dict[str, dict[tuple[str, str], int]] = {}
        for run_id, state, outcome, number in self._db.read(
            queries.COUNTS_OF_RUNS.format(where=page), params
        ):
            counts.setdefault(run_id, {})[state, outcome] = number
        return [rows.run_info(row, counts.get(row[0], {})) for row in found]

    def run(self, ref: str) -> RunInfo:
        """One run, whole: by id, beginning of id, name, `latest`, `latest~1` or folder."""
        run_id = refs.resolve(self._db, ref)
        row, detail = self._run_row(run_id)
        return rows.run_info(row, self._counts(run_id), detail)

    def warnings(self, run_id: str) -> tuple[str, ...]:
        """What the plan warned of."""
        return tuple(self._run_row(run_id)[1].get("warnings", ()))

    def set_status(self, run_id: str, status: RunStatus) -> None:
        """The status of the run. The first start and the last end are kept; a cancelled run stays it."""
        starts = status is RunStatus.RUNNING
        ends = status in {RunStatus.DONE, RunStatus.INTERRUPTED, RunStatus.CANCELLED}
        with self._db.write() as tx:
            before = tx.execute(queries.STARTED, {"run": run_id})
            if not before:
                raise self._no_run(run_id)
            changed = tx.change(
                queries.SET_STATUS,
                {"run": run_id, "status": status.value, "starts": int(starts), "ends": int(ends)},
            )
            if changed:
                resumed = starts and before[0][0] is not None
                self._event(tx, run_id, "run.resumed" if resumed else _STATUS_EVENTS[status], {})

    def stalled(self, quiet_s: float = 60.0) -> set[str]:
        """Runs that say they are running although nothing has moved in them and no lease holds."""
        return {str(row[0]) for row in self._db.read(queries.STALLED, {"quiet_s": quiet_s})}

    def delete_run(self, run_id: str) -> list[str]:
        """Remove a run's rows. The digests of the blobs that no other run refers to are returned."""
        with self._db.write() as tx:
            orphans = [str(row[0]) for row in tx.execute(queries.ORPHANS, {"run": run_id})]
            if not tx.change(queries.DELETE_RUN, {"run": run_id}):
                raise self._no_run(run_id)
        return orphans

    def live_blobs(self) -> set[str]:
        """The digests of every blob that some run refers to."""
        return {str(row[0]) for row in self._db.read(queries.REFERRED)}

    def blob_bytes(self, run_id: str) -> int:
        """How much a run's blobs weigh, shared ones included."""
        return int(self._db.read(queries.BYTES_OF_RUN, {"run": run_id})[0][0])

    # The life of a trial

    def claim(self, run_id: str, *, worker: str, lease_s: float, limit: int = 1) -> list[Lease]:
        """Lease up to `limit` pending trials, in plan order."""
        return leases.claim(self._db, run_id, worker=worker, lease_s=lease_s, limit=limit)

    def take(
        self, run_id: str, *, worker: str, lease_s: float, limit: int = 1, keys: Sequence[str] | None = None
    ) -> Taken:
        """Lease and begin in one step, for workers that start at once. `keys`: these trials only."""
        return leases.take(self._db, run_id, worker=worker, lease_s=lease_s, limit=limit, keys=keys)

    def take_any(self, offers: Offers, *, worker: str, lease_s: float, limit: int = 1) -> Taken:
        """As `take`, of the oldest run with work for this worker; only runs that are running have any."""
        return leases.take_any(self._db, offers, worker=worker, lease_s=lease_s, limit=limit)

    def begin(self, lease: Lease) -> None:
        """The work starts. FenceError when the lease is no longer valid."""
        leases.begin(self._db, lease)

    def renew(self, held: Sequence[Lease], *, lease_s: float) -> list[Lease]:
        """Heartbeat. Returns the leases that were lost: stop that work, its result would be refused."""
        return leases.renew(self._db, held, lease_s=lease_s) if held else []

    def lost(self, held: Sequence[Lease]) -> list[Lease]:
        """As `renew`, without renewing: one cheap read, to learn soon of a cancellation."""
        return leases.lost(self._db, held)

    def finish(self, lease: Lease, record: AttemptRecord, *, counts: bool, delay_s: float = 0.0) -> None:
        """Record the attempt. If it counts the trial is done; if not it can be claimed after `delay_s`."""
        self._notes.write()
        leases.finish(self._db, lease, record, counts=counts, delay_s=delay_s)

    def note(self, lease: Lease, kind: str, data: Mapping[str, Any]) -> None:
        """An event of an attempt that runs. It is written with the next commit, or by `write_notes`."""
        self._notes.add(lease, kind, data)

    def write_notes(self) -> None:
        """Write what `note` has gathered, in one transaction; costs nothing when there is nothing."""
        self._notes.write()

    def give_back(self, lease: Lease) -> None:
        """Return a trial that was not started."""
        leases.give_back(self._db, lease)

    def reap(self, run_id: str | None = None, *, again: bool = False) -> list[Lease]:
        """Return trials whose lease expired: to be done again, with the lost attempt kept.

        A trial with more attempts than its run's own policy allows has ended with that. `again`: whatever the
        policy says. Anybody may do this at any time.
        """
        return leases.reap(self._db, run_id, again=again)

    def release_worker(self, worker: str, *, again: bool = False) -> list[Lease]:
        """As `reap`, at once, for the trials of a worker that is known to be dead."""
        return leases.release_worker(self._db, worker, again=again)

    def holders(self, run_id: str) -> dict[str, float]:
        """Who holds leases of a run now, and until when at most."""
        return {str(row[0]): float(row[1]) for row in self._db.read(queries.HOLDERS, {"run": run_id})}

    def workers(self, run_id: str | None = None) -> list[str]:
        """Who holds leases now."""
        where = queries.ANY if run_id is None else queries.OF_RUN
        return [str(row[0]) for row in self._db.read(queries.WORKERS.format(where=where), {"run": run_id})]

    def cancel(self, run_id: str) -> int:
        """End every trial that has not ended; how many that were. The run's status is the caller's to set."""
        return leases.cancel(self._db, run_id)

    def reopen_lost(self, run_id: str) -> int:
        """Reopen trials that failed because of infrastructure or a provider; returns how many.

        Their attempts stay and no longer count. What an agent, a task or a person ended stays as it is.
        """
        return leases.reopen_lost(self._db, run_id)

    # Reading

    def trial(self, run_id: str, key: str) -> PlannedTrial:
        """One planned trial by its key."""
        found = self._db.read(queries.TRIAL, {"run": run_id, "key": key})
        if not found:
            raise NotFoundError(f"run {run_id} in {self.where} has no trial {key}")
        return rows.planned_trial(found[0])

    def planned(self, run_id: str) -> Iterator[PlannedTrial]:
        """Every trial in plan order, a page at a time."""
        last = -1
        while page := self._db.read(queries.TRIALS_PAGE, {"run": run_id, "idx": last, "limit": _PAGE}):
            yield from map(rows.planned_trial, page)
            last = page[-1][0]

    def attempts(self, run_id: str, *, counted_only: bool = False) -> Iterator[AttemptRow]:
        """Every attempt in plan order, a page at a time; no cursor stays open between pages."""
        place, limit = (-1, 0), 8
        while page := self._db.read(
            queries.ATTEMPTS_PAGE,
            {"run": run_id, "idx": place[0], "number": place[1], "counts": int(counted_only), "limit": limit},
        ):
            yield from map(_attempt_row, page)
            last = page[-1]
            place = last[0], last[queries.TRIAL_WIDTH]
            limit = _next_limit([len(row[-1]) for row in page])

    def records(self, run_id: str, keys: Sequence[str]) -> Iterator[tuple[int, AttemptRecord, bool]]:
        """Every attempt as (index of its trial, record, whether it counts), without the trials themselves.

        Half the cost of `attempts`: no trial is read again for each attempt. `keys` are the trials' own, in
        the order of the plan.
        """
        place, limit = (-1, 0), 8
        while page := self._db.read(
            queries.RECORDS_PAGE, {"run": run_id, "idx": place[0], "number": place[1], "limit": limit}
        ):
            for row in page:
                yield row[8], rows.attempt_record(row, keys[row[8]]), bool(row[2])
            place = page[-1][8], page[-1][0]
            limit = _next_limit([len(row[7]) for row in page])

    @decodes_each
    def brief_records(self, run_id: str, keys: Sequence[str]) -> Iterator[tuple[int, AttemptRecord, bool]]:
        """As `records`, with what are columns: nothing is decoded."""
        place = (-1, 0)
        while page := self._db.read(
            queries.BRIEF_PAGE, {"run": run_id, "idx": place[0], "number": place[1], "limit": _PAGE}
        ):
            for row in page:
                yield row[7], rows.brief_record(row, keys[row[7]]), bool(row[2])
            place = page[-1][7], page[-1][0]

    def results(self, run_id: str, *, bodies: bool = True) -> Iterator[ResultRow]:
        """Every trial in plan order with the attempt that counts; without `bodies` only what are columns."""
        sql = queries.RESULTS_PAGE.format(body=queries.WITH_BODY if bodies else "")
        last, limit = -1, 8 if bodies else _PAGE
        while page := self._db.read(sql, {"run": run_id, "idx": last, "limit": limit}):
            yield from rows.result_rows(page)
            last = page[-1][0]
            if bodies:
                limit = _next_limit([len(row[13] or b"") for row in page])

    def attempts_of(self, run_id: str, key: str) -> list[AttemptRow]:
        """Every attempt at one trial, first to last."""
        return [
            _attempt_row(row) for row in self._db.read(queries.ATTEMPTS_OF_TRIAL, {"run": run_id, "key": key})
        ]

    def counts(self, run_id: str) -> dict[str, int]:
        """How many trials ended with each outcome."""
        found: dict[str, int] = {}
        for (_, outcome), number in self._counts(run_id).items():
            found[outcome] = found.get(outcome, 0) + number
        return found

    def state_counts(self, run_id: str) -> dict[str, int]:
        """How many trials are in each state; every state is named."""
        known = {str(row[0]): int(row[1]) for row in self._db.read(queries.STATES, {"run": run_id})}
        total = known.pop("total", 0)
        found = dict.fromkeys((state.value for state in TrialState), 0) | known
        found[TrialState.PENDING] = total - sum(known.values())
        return found

    def events(self, *, after: int = 0, run_id: str | None = None, limit: int = 1000) -> list[Event]:
        """What happened after an event, oldest first. None is ever skipped: read on from the last id."""
        sql = queries.EVENTS.format(where=queries.ANY if run_id is None else queries.EVENT_OF_RUN)
        return [
            rows.event(row) for row in self._db.read(sql, {"after": after, "run": run_id, "limit": limit})
        ]

    def wait_events(self, after: int, timeout_s: float, *, run_id: str | None = None) -> bool:
        """Wait until `events` has something after an event; False when nothing came in time."""
        deadline, patience_s = time.monotonic() + timeout_s, _FIRST_WAIT_S
        while True:
            mark = self._db.mark()
            if self.events(after=after, run_id=run_id, limit=1):
                return True
            if (left_s := deadline - time.monotonic()) <= 0:
                return False
            self._db.wait(mark, min(left_s, patience_s))
            patience_s = min(patience_s * 2, _LAST_WAIT_S)

    def last_event(self, run_id: str) -> int:
        """The id of a run's newest event, which `events` may have yet to show; 0 when there is none."""
        found = self._db.read(queries.LAST_EVENT, {"run": run_id})
        return int(found[0][0]) if found else 0

    def history(self, subjects: Iterable[str], *, limit: int = 400) -> Mapping[str, float]:
        """Median seconds per trial of late: for each subject, and for each label among its trials.

        Of rollouts agent and verifier alone: an image is built once, and queueing depends on the run.
        """
        found: dict[str, float] = {}
        for subject in sorted(set(subjects)):
            times: dict[str, list[float]] = {}
            recent = self._db.read(
                queries.RECENT_OF_SUBJECT, {"subject": rows.column(subject), "limit": limit}
            )
            for duration_s, outcome, *trial in recent:
                if Outcome(outcome).scored:
                    for name in {subject, rows.planned_trial(trial).label}:
                        times.setdefault(name, []).append(duration_s)
            found |= {name: percentile(sorted(values), 50) for name, values in times.items()}
        return found

    def recent(self, subject: str, *, limit: int = 400) -> list[tuple[PlannedTrial, Outcome]]:
        """How the latest trials of a subject ended, newest first."""
        found = self._db.read(queries.RECENT_OF_SUBJECT, {"subject": rows.column(subject), "limit": limit})
        return [(rows.planned_trial(trial), Outcome(outcome)) for _, outcome, *trial in found]

    # Inside

    def _counts(self, run_id: str) -> dict[tuple[str, str], int]:
        return {(row[0], row[1]): row[2] for row in self._db.read(queries.COUNTS, {"run": run_id})}

    def _run_row(self, run_id: str) -> tuple[Row, dict[str, Any]]:
        found = self._db.read(queries.RUN, {"run": run_id})
        if not found:
            raise self._no_run(run_id)
        return found[0], rows.unpack(found[0][-1])

    def _no_run(self, run_id: str) -> NotFoundError:
        return NotFoundError(f"no run {run_id} in {self.where}; see 'proctor ls'")

    @contextmanager
    def _new_run(self, run_id: str) -> Iterator[Transaction]:
        try:
            with self._db.write() as tx:
                yield tx
        except ConflictError as error:
            raise UsageError(
                f"run {run_id} cannot be added to {self.where}: it already exists, "
                f"or its plan has two trials with one key ({error})"
            ) from error

    def _insert_run(
        self,
        tx: Transaction,
        info: RunInfo,
        planned: Iterable[PlannedTrial],
        warnings: tuple[str, ...],
        total: int,
        memory_bytes: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        tx.execute(queries.INSERT_RUN, {**rows.run_params(info, warnings), "total": total})
        needs = rows.needs_of(info, memory_bytes)
        tx.many(queries.INSERT_TRIAL, (rows.trial_params(info.id, trial) | needs(trial) for trial in planned))

    def _import_attempt(self, tx: Transaction, run_id: str, record: AttemptRecord, *, counts: bool) -> None:
        found = tx.execute(
            queries.IMPORT_TRIAL_STATE,
            {
                "run": run_id,
                "key": record.key,
                "number": record.number,
                "counts": int(counts),
                "outcome": record.outcome.value,
            },
        )
        if not found:
            raise UsageError(
                f"an attempt of run {run_id} belongs to trial {record.key}, which its plan does not have"
            )
        body = rows.record_body(record)
        leases.insert_attempt(tx, run_id, found[0][0], record, body, number=record.number, counts=counts)
        if counts:
            leases.count(tx, run_id, TrialState.DONE, record.outcome, 1)

    def _event(self, tx: Transaction, run_id: str, kind: str, data: Mapping[str, Any]) -> None:
        event = {"run": run_id, "kind": kind, "idx": None, "data": rows.dump(data)}
        tx.events(queries.INSERT_EVENT, (event,))


def _attempt_row(row: Row) -> AttemptRow:
    attempt, trial = row[queries.TRIAL_WIDTH :], rows.planned_trial(row)
    return AttemptRow(rows.attempt_record(attempt, trial.key), counts=bool(attempt[2]), trial=trial)


def _next_limit(sizes: Sequence[int]) -> int:
    """How many rows to ask for next, from how large the last ones were."""
    return max(1, min(_PAGE, _PAGE_BYTES * len(sizes) // (sum(sizes) + 1)))


def _pattern(name: str) -> str:
    """A name with `*` for SQL's LIKE."""
    for special in "!%_":
        name = name.replace(special, f"!{special}")
    return rows.column(name).replace("*", "%")
