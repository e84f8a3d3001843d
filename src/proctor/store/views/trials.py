"""Trials as a server shows them: states and results from columns, records only of the few that are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.store import queries, rows
from proctor.store.database import Database, Row, decodes_each

_PAGE = 2000
_JOIN = "LEFT JOIN attempts a ON a.run_id = t.run_id AND a.idx = t.idx AND a.counts = 1"
_PLAN = """
SELECT t.idx, t.key, t.kind, t.subject, t.subject_digest, t.body, t.agent, t.agent_version, t.model,
       t.rollout, t.doc
FROM trials t WHERE t.run_id = :run AND t.idx > :idx ORDER BY t.idx LIMIT :limit
"""
_RESULTS = """
SELECT idx, outcome, reward, COALESCE(work_s, ended_at - started_at), started_at
FROM attempts WHERE run_id = :run AND counts = 1
"""
_STATES = f"""
SELECT t.idx, t.state, a.outcome, a.reward, COALESCE(a.work_s, a.ended_at - a.started_at), a.number
FROM trials t {_JOIN} WHERE t.run_id = :run ORDER BY t.idx
"""
_PASSED = f"""
SELECT a.idx, a.number, a.record FROM attempts a WHERE a.run_id = :run AND a.counts = 1 AND {queries.IS_PASS}
"""
_LIFE = "t.state, t.attempts, t.started_at, t.worker, t.outcome"
_SHOWN = f"""
SELECT {queries.TRIAL_COLUMNS}, {_LIFE}, {queries.ATTEMPT_COLUMNS}, a.work_s
FROM trials t {_JOIN} WHERE t.run_id = :run AND t.idx IN ({{ids}})
"""
_ORDER = f"SELECT t.idx FROM trials t {_JOIN} WHERE t.run_id = :run AND {{where}} ORDER BY {{order}}, t.idx"
_NEXT_FAILURE = f"""
SELECT min(t.idx) FROM trials t {_JOIN}
WHERE t.run_id = :run AND t.idx > :idx AND t.state = 'done' AND a.counts = 1 AND NOT {queries.IS_PASS}
"""
_ATTEMPTS = f"""
SELECT {queries.ATTEMPT_COLUMNS} FROM attempts a WHERE a.run_id = :run AND a.idx = :idx ORDER BY a.number
"""
_FAILURES = f"""
SELECT a.idx, t.subject, a.record, a.outcome FROM attempts a
JOIN trials t ON t.run_id = a.run_id AND t.idx = a.idx
WHERE a.run_id = :run AND a.counts = 1 AND NOT {queries.IS_PASS} ORDER BY a.idx
"""
_PHASE = """
SELECT at, data FROM events
WHERE run_id = :run AND idx = :idx AND kind = 'attempt.phase' ORDER BY id DESC LIMIT 1
"""
_LABELS = "SELECT label, author, at FROM trial_labels WHERE run_id = :run AND idx = :idx ORDER BY label"
_COMMENTS = """
SELECT id, author, at, body FROM trial_comments WHERE run_id = :run AND idx = :idx ORDER BY at, id
"""
CONDITIONS = {
    "state": "t.state = :state",
    "outcome": "t.outcome = :outcome",
    "task": "t.subject = :task",
    "agent": "t.agent = :agent",
    "model": "t.model = :model",
    "q": "lower(t.subject || ' ' || COALESCE(t.agent, '') || ' ' || COALESCE(t.model, '') || ' ' || "
    "COALESCE(t.outcome, t.state) || ' ' || t.doc) LIKE lower(:q) ESCAPE '!'",
}
ORDERS = {
    "index": "t.idx",
    "task": "t.subject",
    "agent": "t.agent",
    "model": "t.model",
    "state": "t.state",
    "outcome": "t.outcome",
    "reward": "a.reward",
    "took": "COALESCE(a.work_s, a.ended_at - a.started_at)",
    "started": "a.started_at",
    "ended": "a.ended_at",
    "attempts": "t.attempts",
}
"""What trials may be sorted by → the column."""


class State(msgspec.Struct, frozen=True, gc=False):
    """Where a trial is, and what it came to so far."""

    index: int
    state: str
    outcome: str | None
    reward: float | None
    took_s: float | None
    number: int | None
    """Of the attempt that counts."""


class Shown(NamedTuple):
    """A trial with the attempt that counts."""

    planned: PlannedTrial
    state: str
    attempts: int
    started_at: float | None
    worker: str | None
    record: AttemptRecord | None
    work_s: float | None


class _Kind(msgspec.Struct, gc=False):
    """What of a trial's document tells its kind; the rest is passed over."""

    overrides: msgspec.Raw
    path: str | None = None


class _Suspect(msgspec.Struct, gc=False):
    suspect: bool = False


class Failed(msgspec.Struct, gc=False):
    """What of a record says how it failed."""

    failure: msgspec.Raw = msgspec.Raw(b"null")


class TrialViews:
    """What a server reads about trials."""

    def __init__(self, db: Database) -> None:
        self._db = db

    @decodes_each
    def kinds(self, run_id: str) -> Iterator[tuple[object, int, Callable[[], PlannedTrial]]]:
        """Every trial in plan order: what it has in common with its siblings, its rollout, itself."""
        decoder, last = rows.decoder(_Kind), -1
        while page := self._db.read(_PLAN, {"run": run_id, "idx": last, "limit": _PAGE}):
            for row in page:
                about = decoder.decode(row[10])
                kind = (*row[3:5], *row[6:9], about.path, bytes(about.overrides))
                yield kind, row[9], partial(rows.planned_trial, row)
            last = page[-1][0]

    def results(self, run_id: str) -> Sequence[Row]:
        """Index, outcome, reward, seconds and start of every attempt that counts."""
        return self._db.read(_RESULTS, {"run": run_id})

    def states(self, run_id: str) -> list[State]:
        """Every trial in plan order."""
        return [State(*row) for row in self._db.read(_STATES, {"run": run_id})]

    @decodes_each
    def suspects(self, run_id: str, known: Mapping[int, int]) -> Iterator[tuple[int, int, bool]]:
        """Of passed trials: index, attempt and whether it is suspect; without those in `known`."""
        for index, number, record in self._db.read(_PASSED, {"run": run_id}):
            if known.get(index) != number:
                yield index, number, rows.decode(record, _Suspect).suspect

    def ordered(
        self, run_id: str, *, sort: str, only: Mapping[str, str], outcomes: Sequence[str]
    ) -> list[int]:
        """The indices of the trials that fit, in order. `sort` is a name of `ORDERS`, with `-` the other way.

        Those without a value come last.
        """
        by = ORDERS[sort.removeprefix("-")]
        order = f"{by} IS NULL, {by}{' DESC' * sort.startswith('-')}"
        where = [CONDITIONS[name] for name in only] + (["t.outcome IN ({outcomes})"] if outcomes else [])
        sql = _ORDER.format(where=" AND ".join(where) or "1 = 1", order=order)
        sql, params = queries.listed(sql, outcomes=outcomes)
        texts = {name: rows.column(value) for name, value in only.items()}
        texts |= {"q": rows.pattern(f"*{texts['q']}*")} if "q" in texts else {}
        return [row[0] for row in self._db.read(sql, {**params, **texts, "run": run_id})]

    def shown(self, run_id: str, indices: Sequence[int]) -> list[Shown]:
        """These trials whole, in the order in which they are named; those that do not exist are left out."""
        if not indices:
            return []
        sql, params = queries.listed(_SHOWN, ids=indices)
        found = {row[0]: _shown(row) for row in self._db.read(sql, {**params, "run": run_id})}
        return [found[index] for index in indices if index in found]

    def attempts(self, run_id: str, index: int, key: str) -> list[tuple[AttemptRecord, bool]]:
        """Every attempt at a trial, and whether it counts."""
        found = self._db.read(_ATTEMPTS, {"run": run_id, "idx": index})
        return [(rows.attempt_record(row, key), bool(row[2])) for row in found]

    def next_failure(self, run_id: str, index: int) -> int | None:
        """The next trial that ended and did not pass."""
        found: int | None = self._db.read(_NEXT_FAILURE, {"run": run_id, "idx": index})[0][0]
        return found

    @decodes_each
    def failures(self, run_id: str) -> Iterator[tuple[int, str, str, Mapping[str, Any] | None]]:
        """Of every trial that did not pass: index, task, outcome and what is recorded as its failure."""
        for index, task, record, outcome in self._db.read(_FAILURES, {"run": run_id}):
            raw = rows.decode(record, Failed).failure
            yield index, task, outcome, msgspec.json.decode(raw)

    def phase(self, run_id: str, index: int) -> tuple[float, str] | None:
        """When the present phase of a running trial began, and its name."""
        found = self._db.read(_PHASE, {"run": run_id, "idx": index})
        if not found:
            return None
        return float(found[0][0]), str(msgspec.json.decode(found[0][1]).get("phase", ""))

    def labels(self, run_id: str, index: int) -> list[dict[str, Any]]:
        """What people put on the trial."""
        found = self._db.read(_LABELS, {"run": run_id, "idx": index})
        return [{"label": row[0], "author": row[1], "at": row[2]} for row in found]

    def comments(self, run_id: str, index: int) -> list[dict[str, Any]]:
        """What people wrote about the trial, oldest first."""
        found = self._db.read(_COMMENTS, {"run": run_id, "idx": index})
        return [{"id": row[0], "author": row[1], "at": row[2], "body": row[3]} for row in found]


def _shown(row: Row) -> Shown:
    life, attempt = row[queries.TRIAL_WIDTH :], row[queries.TRIAL_WIDTH + 5 :]
    planned = rows.planned_trial(row)
    record = rows.attempt_record(attempt, planned.key) if attempt[0] is not None else None
    return Shown(planned, life[0], life[1], life[2], life[3], record, attempt[8])
