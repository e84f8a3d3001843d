"""The life of a trial in the store: taken, renewed, finished, and what happens when a worker is lost.

Each method is one transaction. A result is written only under the current fence, so work may be delivered
twice and is still counted once. Every moment that decides something is the database's: workers whose clocks
differ would otherwise take each other's trials.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any

from proctor.errors import FenceError
from proctor.model.outcome import Outcome
from proctor.model.record import AttemptRecord
from proctor.model.trial import Lease, Offers, TrialState
from proctor.store import choice, queries, steps
from proctor.store.again import repeatable
from proctor.store.choice import OpenRun, Wish
from proctor.store.database import Database, Transaction
from proctor.store.reading import Reader
from proctor.store.rows import dump, record_body
from proctor.store.steps import Ended, Taken

_MOST = 10_000
"""Of more the oldest are dropped: they are for people who watch, and nothing depends on them."""


class Notes:
    """What workers say about an attempt while it runs: gathered, and written with whatever comes next.

    Each would otherwise be a commit of its own, and a rollout has several.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, dict[str, Any]]] = deque(maxlen=_MOST)

    def add(self, lease: Lease, kind: str, data: Mapping[str, Any]) -> None:
        """Keep an event of an attempt, with the moment at which it happened. Nothing is written."""
        event = {**steps.held(lease), "kind": kind, "data": dump({"attempt": lease.attempt, **data})}
        self._waiting.append((time.monotonic(), event))

    def __len__(self) -> int:
        return len(self._waiting)

    def write(self, tx: Transaction) -> None:
        """All of them. Those of leases that were lost meanwhile are dropped."""
        events: list[dict[str, Any]] = []
        now = time.monotonic()
        while self._waiting:
            happened, event = self._waiting.popleft()
            events.append({**event, "age_s": now - happened})
        if events:
            tx.events(queries.INSERT_NOTE, events, now=True)  # while their leases still hold


@repeatable
class TrialLife(Reader):
    """Everything that moves a trial from `pending` to its end."""

    def __init__(self, db: Database) -> None:
        super().__init__(db)
        self._notes = Notes()

    def take(
        self, run_id: str, *, worker: str, lease_s: float, limit: int = 1, keys: Sequence[str] | None = None
    ) -> Taken:
        """Lease up to `limit` pending trials in plan order, and begin them. `keys`: of these trials only."""
        sql, params = queries.listed(queries.TAKEABLE)
        if keys is not None:
            sql, params = queries.listed(queries.TAKEABLE_KEYS, keys=keys)
        with self._db.write() as tx:
            return steps.take(tx, run_id, sql, params, worker=worker, lease_s=lease_s, limit=limit)

    def runs_for(self, offers: Offers, soon_s: float = 0.0) -> list[OpenRun]:
        """Runs with trials for a worker, the one first from which to take next."""
        return choice.runs_for(self._db.read, offers, soon_s)

    def exchange(
        self, run_id: str, ended: Sequence[Ended], *, worker: str, lease_s: float, limit: int
    ) -> tuple[list[bool], Taken]:
        """Write attempts and take what comes next, in one transaction; which of them were written.

        One is not written when its lease has passed on; that changes nothing for the others.
        """
        bodies = [record_body(each.record) for each in ended]
        with self._db.write() as tx:
            written = self._write(tx, ended, bodies, worker)
            if limit <= 0:
                return written, Taken([], None)
            sql = queries.TAKEABLE
            return written, steps.take(tx, run_id, sql, {}, worker=worker, lease_s=lease_s, limit=limit)

    def exchange_any(
        self, ended: Sequence[Ended], wish: Wish | None, *, worker: str, lease_s: float
    ) -> tuple[list[bool], list[OpenRun], Taken]:
        """As `exchange`, of any runs: attempts of several, and what `choice.take_next` says comes next."""
        if not ended and not (wish and self.runs_for(wish.offers)):
            return [], [], Taken([], None)  # who only looks takes no lock
        bodies = [record_body(each.record) for each in ended]
        with self._db.write() as tx:
            written = self._write(tx, ended, bodies, worker)
            if not wish:
                return written, [], Taken([], None)
            return written, *choice.take_next(tx, wish, worker=worker, lease_s=lease_s)

    def _write(
        self, tx: Transaction, ended: Sequence[Ended], bodies: Sequence[bytes], worker: str
    ) -> list[bool]:
        self._notes.write(tx)
        written = [steps.finish(tx, each, body) for each, body in zip(ended, bodies, strict=True)]
        for run_id in sorted({each.lease.run_id for each in ended}):
            kept = [
                (each.record, each.counts)
                for each, done in zip(ended, written, strict=True)
                if done and each.lease.run_id == run_id
            ]
            steps.tally(tx, run_id, worker, kept)
        return written

    def finish(self, lease: Lease, record: AttemptRecord, *, counts: bool, delay_s: float = 0.0) -> None:
        """Write one attempt. FenceError, and nothing is written, when its lease has passed on."""
        ended = Ended(lease, record, counts, delay_s)
        written, _ = self.exchange(lease.run_id, [ended], worker=lease.worker, lease_s=0.0, limit=0)
        if not all(written):
            raise FenceError(
                f"trial {lease.key[:12]} of run {lease.run_id}: the lease of worker {lease.worker} "
                f"(fence {lease.fence}) is no longer valid; nothing was written"
            )

    def renew(self, held: Sequence[Lease], *, lease_s: float) -> list[Lease]:
        """Heartbeat. Returns the leases that were lost: stop that work, its result would be refused."""
        if not held:
            return []
        ordered = sorted(held, key=lambda lease: (lease.run_id, lease.index))
        with self._db.write() as tx:
            return [
                lease
                for lease in ordered
                if not tx.change(queries.RENEW, {**steps.held(lease), "lease_s": lease_s})
            ]

    def lost(self, held: Sequence[Lease]) -> list[Lease]:
        """As `renew`, without renewing: one read by primary key per run, to learn soon of a cancellation."""
        ours: set[tuple[str, int, int]] = set()
        for run_id in {lease.run_id for lease in held}:
            mine = [lease.index for lease in held if lease.run_id == run_id]
            sql, params = queries.listed(queries.STILL_HELD, idxs=mine)
            ours |= {(run_id, idx, fence) for idx, fence in self._db.read(sql, {**params, "run": run_id})}
        return [lease for lease in held if (lease.run_id, lease.index, lease.fence) not in ours]

    def note(self, lease: Lease, kind: str, data: Mapping[str, Any]) -> None:
        """An event of an attempt that runs. It is written with the next commit, or by `write_notes`."""
        self._notes.add(lease, kind, data)

    def write_notes(self) -> None:
        """Write what `note` has gathered, in one transaction; costs nothing when there is nothing."""
        if self._notes:
            with self._db.write() as tx:
                self._notes.write(tx)

    def reap(self, run_id: str | None = None, *, again: bool = False) -> list[Lease]:
        """Return trials whose lease expired: to be done again, with the lost attempt kept.

        A trial with more attempts than its run's own policy allows has ended with that. `again`: whatever the
        policy says. Anybody may do this at any time.
        """
        where = queries.EXPIRED if run_id is None else f"{queries.EXPIRED} AND {queries.OF_RUN}"
        why = "sent no heartbeat before its lease expired"
        return self._take_back(where, {"run": run_id}, why, again=again)

    def release_worker(self, worker: str, *, again: bool = False) -> list[Lease]:
        """As `reap`, at once, for the trials of a worker that is known to be dead."""
        return self._take_back(queries.OF_WORKER, {"worker": worker}, "is dead", again=again)

    def holders(self, run_id: str) -> dict[str, float]:
        """Who holds leases of a run now, and until when at most."""
        return {str(row[0]): float(row[1]) for row in self._db.read(queries.HOLDERS, {"run": run_id})}

    def workers(self, run_id: str) -> list[str]:
        """Who holds leases of a run now."""
        return list(self.holders(run_id))

    def cancel(self, run_id: str, why: str = "the run was cancelled") -> int:
        """End every trial that has not ended; what runs loses its lease. How many that were.

        The run's status is the caller's to set.
        """
        held_of_run = queries.HELD.format(where=queries.OF_RUN, tail="ORDER BY t.idx {wait_lock}")
        failure = steps.failure("Cancelled", why)
        number = 0
        took_s: list[float] = []
        with self._db.write() as tx:
            # Again until nothing is left: in PostgreSQL others claim and give back between two statements.
            while True:
                waiting = tx.change(queries.CANCEL_PENDING, {"run": run_id})
                held = tx.execute(held_of_run, {"run": run_id})
                for row in held:
                    took_s += steps.unfence(tx, row, TrialState.CANCELLED, failure)
                if not waiting and not held:
                    break
                number += waiting + len(held)
            if number:
                steps.count(tx, run_id, TrialState.CANCELLED, Outcome.CANCELLED, number, took_s=took_s)
                steps.write_event(tx, run_id, "trials.cancelled", {"trials": number})
        return number

    def reopen_lost(self, run_id: str) -> int:
        """Reopen trials that failed because of infrastructure or a provider; returns how many.

        Their attempts stay and no longer count. What an agent, a task or a person ended stays as it is.
        """
        with self._db.write() as tx:
            number = tx.change(queries.REOPEN_LOST, {"run": run_id})
            if number:
                tx.change(queries.UNCOUNT_LOST, {"run": run_id})
                tx.change(queries.FORGET_LOST, {"run": run_id})
                steps.write_event(tx, run_id, "trials.pending", {"trials": number, "reason": "lost"})
        return number

    def _take_back(self, where: str, params: dict[str, Any], why: str, *, again: bool) -> list[Lease]:
        """Take trials from a worker; one that was lost more often than its run allows ends as `worker_lost`.

        Several may do this at once: a row that another has locked is skipped, and one that it has taken back
        is no longer held.
        """
        # Looking first costs no write lock, and mostly there is nothing to take back.
        if not self._db.read(queries.HELD.format(where=where, tail="LIMIT 1"), params):
            return []
        taken: list[Lease] = []
        allowed: dict[str, int | None] = {}
        ended: Counter[tuple[str, str]] = Counter()
        took_s: dict[tuple[str, str], list[float]] = {}
        with self._db.write() as tx:
            held = tx.execute(queries.HELD.format(where=where, tail="{row_lock}"), params)
            for row in sorted(held, key=lambda each: (each[0], each[2])):
                run_id, key, idx, worker, fence, attempts, expires_at = row[:7]
                if run_id not in allowed:
                    allowed[run_id] = None if again else steps.allowed_losses(tx, run_id)
                most = allowed[run_id]
                last = most is not None and row[7] == TrialState.RUNNING and attempts + 1 > most
                state = TrialState.DONE if last else TrialState.PENDING
                failure = steps.failure("WorkerLost", f"worker {worker} {why}")
                took_s.setdefault((run_id, worker), []).extend(steps.unfence(tx, row, state, failure))
                ended[run_id, worker] += last
                taken.append(Lease(run_id, key, idx, worker, fence, attempts + 1, expires_at))
            # In the order of `tally`, so that nobody waits for the other way round.
            for run_id, worker in sorted(took_s, key=lambda each: (each[0], steps.shard_of(each[1]))):
                lost = ended[run_id, worker], worker, took_s[run_id, worker]
                steps.count(tx, run_id, TrialState.DONE, Outcome.WORKER_LOST, *lost)
        return taken
