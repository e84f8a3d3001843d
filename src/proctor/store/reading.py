"""Read a store: trials, attempts, events and what they amount to. Everything large comes in pages."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self

from proctor.errors import NotFoundError
from proctor.model.describe import percentile
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord, AttemptRow
from proctor.model.run import Event
from proctor.model.trial import TrialState
from proctor.store import queries, rows
from proctor.store.database import Database, Row, decodes_each
from proctor.store.rows import ResultRow

_PAGE = 500
_PAGE_BYTES = 1 << 20
"""How much of the attempts to hold at once while streaming them."""
_FIRST_WAIT_S, _LAST_WAIT_S = 0.05, 0.5
"""How long a reader of events waits between two looks, unless it is woken: not every commit wakes it."""


class Reader:
    """What can be read of a store. It owns the database."""

    def __init__(self, db: Database) -> None:
        self._db = db

    @property
    def where(self) -> str:
        """The store's address, without a password."""
        return self._db.where

    @property
    def remote(self) -> bool:
        """Whether a call waits for another machine: then an event loop calls in a thread."""
        return self._db.remote

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the database."""
        self._db.close()

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

    def attempts_page(
        self, run_id: str, after: tuple[int, int], limit: int, *, counted_only: bool = False
    ) -> list[AttemptRow]:
        """Attempts in plan order after one of them, named by its trial's index and its number."""
        place = {"idx": after[0], "number": after[1], "counts": int(counted_only), "limit": limit}
        return [_attempt_row(row) for row in self._db.read(queries.ATTEMPTS_PAGE, {"run": run_id, **place})]

    def planned_page(self, run_id: str, after: int, limit: int) -> list[PlannedTrial]:
        """Trials in plan order after one of them, named by its index."""
        found = self._db.read(queries.TRIALS_PAGE, {"run": run_id, "idx": after, "limit": limit})
        return [rows.planned_trial(row) for row in found]

    @decodes_each
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
                limit = _next_limit([len(row[14] or b"") for row in page])

    def attempts_of(self, run_id: str, *keys: str) -> list[AttemptRow]:
        """Every attempt at one trial or several, in plan order, first to last."""
        sql, params = queries.listed(queries.ATTEMPTS_OF_TRIALS, keys=keys)
        return [_attempt_row(row) for row in self._db.read(sql, {**params, "run": run_id})]

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

    def _counts(self, run_id: str) -> dict[tuple[str, str], int]:
        return {(row[0], row[1]): row[2] for row in self._db.read(queries.COUNTS, {"run": run_id})}


def _attempt_row(row: Row) -> AttemptRow:
    attempt, trial = row[queries.TRIAL_WIDTH :], rows.planned_trial(row)
    return AttemptRow(rows.attempt_record(attempt, trial.key), counts=bool(attempt[2]), trial=trial)


def _next_limit(sizes: Sequence[int]) -> int:
    """How many rows to ask for next, from how large the last ones were."""
    return max(1, min(_PAGE, _PAGE_BYTES * len(sizes) // (sum(sizes) + 1)))
