"""What calls of models cost, by attempt, run and day; reserved before each call, settled after it.

A call is a row from before it is made. One that is never settled, because its process died, goes on counting
as a call made, at its upper estimate. Many reservations and settlements go into
one transaction, which locks the totals that they touch in one order.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

from proctor.store.again import repeatable
from proctor.store.database import Database, Transaction

_NANO = 1_000_000_000
_NOW = "SELECT {now}"
_TOTAL = """
SELECT t.requests, t.tokens, t.nano_usd, t.held_tokens, t.held_nano_usd FROM spending t
WHERE t.scope = :scope AND t.name = :name"""
_LOCKED_TOTAL = f"{_TOTAL} {{wait_lock}}"
_FIRST = """
INSERT INTO spending (scope, name, run_id, requests, tokens, nano_usd, held_tokens, held_nano_usd)
VALUES (:scope, :name, :run, 0, 0, 0, 0, 0) ON CONFLICT (scope, name) DO NOTHING
"""
_SET = """
UPDATE spending SET requests = :requests, tokens = :tokens, nano_usd = :nano_usd,
  held_tokens = :held_tokens, held_nano_usd = :held_nano_usd
WHERE scope = :scope AND name = :name
"""
_RESERVE = """
INSERT INTO model_calls (id, run_id, idx, number, at, model, held_tokens, held_nano_usd, settled)
VALUES (:id, :run, :idx, :number, :at, :model, :tokens, :nano_usd, 0)
"""
_SETTLE = """
UPDATE model_calls SET settled = 1, prompt_tokens = :prompt, completion_tokens = :completion,
  cached_tokens = :cached, cache_write_tokens = :cache_write, reasoning_tokens = :reasoning,
  nano_usd = :nano_usd, waited_s = :waited_s, first_token_s = :first_token_s, worked_s = :worked_s,
  retries = :retries, status = :status
WHERE id = :id AND settled = 0
"""
_RELEASE = "DELETE FROM model_calls WHERE id = :id AND settled = 0"
_SUMS = """
SELECT {columns}, count(*), sum(CASE WHEN settled = 0 THEN 1 ELSE 0 END),
  sum(CASE WHEN prompt_tokens IS NULL THEN 1 ELSE 0 END), sum(CASE WHEN nano_usd IS NULL THEN 1 ELSE 0 END),
  CAST(COALESCE(sum(prompt_tokens), 0) AS BIGINT), CAST(COALESCE(sum(completion_tokens), 0) AS BIGINT),
  CAST(COALESCE(sum(cached_tokens), 0) AS BIGINT), CAST(COALESCE(sum(cache_write_tokens), 0) AS BIGINT),
  CAST(COALESCE(sum(reasoning_tokens), 0) AS BIGINT), CAST(COALESCE(sum(nano_usd), 0) AS BIGINT)
FROM model_calls WHERE run_id = :run GROUP BY {columns} ORDER BY {columns}
"""
_CALLS = """
SELECT c.model, count(*) FROM model_calls c LEFT JOIN run_service s ON s.run_id = c.run_id
WHERE CAST(:project AS text) IS NULL OR COALESCE(s.project, 'default') = CAST(:project AS text)
GROUP BY c.model
"""
_SUM_NAMES = (
    "requests", "unsettled", "unknown_usage", "unknown_cost", "prompt_tokens", "completion_tokens",
    "cached_tokens", "cache_write_tokens", "reasoning_tokens", "nano_usd",
)  # fmt: skip


class Scope(NamedTuple):
    """What a total is kept of: an attempt, a run, a day."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most that may be spent within a scope. What is None has no limit. The day's scope is `DAY`."""

    scope: Scope
    usd: float | None = None
    tokens: int | None = None
    requests: int | None = None


DAY = Scope("day", "")
"""The day on which a call is made, in UTC, by the database's clock."""


@dataclass(slots=True, kw_only=True)
class Total:
    """What was spent within a scope, and what is held back for calls that are not settled."""

    requests: int = 0
    tokens: int = 0
    nano_usd: int = 0
    held_tokens: int = 0
    held_nano_usd: int = 0

    @property
    def cost_usd(self) -> float:
        """What settled calls with a known price cost."""
        return self.nano_usd / _NANO


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """Ask for one call."""

    id: str
    run_id: str
    trial: int
    attempt: int
    model: str
    scopes: tuple[Scope, ...]
    budgets: tuple[Budget, ...] = ()
    tokens: int
    """The most that it will use."""
    nano_usd: int | None
    """The most that it will cost; None: unknown."""


class Reserved(NamedTuple):
    """The answer to a `Reserve`."""

    day: str
    refusal: str = ""
    """Which budget does not allow it; empty: it is reserved."""
    waits: bool = False
    """Whether it may be allowed once others are settled below their estimates."""
    scope: str = ""
    """Whose budget refuses it: `attempt`, `run` or `day`."""


class Timing(NamedTuple):
    """How a call went; what is None nobody knows."""

    waited_s: float | None = None
    """In the queue, at the limiter and between retries."""
    first_token_s: float | None = None
    """From the call's arrival until the first data of an answer."""
    worked_s: float | None = None
    """While the provider had the call."""
    retries: int | None = None
    status: int | None = None
    """What the agent got; 0 when it went away before."""


UNTIMED = Timing()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle:
    """Say what a reserved call used; `tokens` None: nobody knows, the estimate stays."""

    reserve: Reserve
    day: str
    tokens: Mapping[str, int] | None
    """prompt, completion, cached, cache_write and reasoning; the first two are what budgets count."""
    nano_usd: int | None
    timing: Timing = UNTIMED


@dataclass(frozen=True, slots=True)
class Release:
    """A reserved call was never made."""

    reserve: Reserve
    day: str


Operation = Reserve | Settle | Release


@repeatable
class Spending:
    """The books of one store."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def total(self, scope: Scope) -> Total:
        """What was spent within a scope so far."""
        found = self._db.read(_TOTAL, {"scope": scope.kind, "name": scope.name})
        return _total(found[0]) if found else Total()

    def today(self) -> Scope:
        """The scope of this day."""
        return Scope("day", _day(float(self._db.read(_NOW)[0][0])))

    def by(self, run_id: str, *columns: str) -> list[dict[str, int | str]]:
        """A run's calls summed by `idx`, `number`, `model` or several of them."""
        assert set(columns) <= {"idx", "number", "model"}
        assert columns
        names = (*columns, *_SUM_NAMES)
        found = self._db.read(_SUMS.replace("{columns}", ", ".join(columns)), {"run": run_id})
        return [dict(zip(names, row, strict=True)) for row in found]

    def calls_by_model(self, project: str | None = None) -> dict[str, int]:
        """How many calls of each model there were, in all runs or in those of a project."""
        found = self._db.read(_CALLS, {"project": project})
        return {str(model): int(count) for model, count in found}

    def apply(self, operations: Sequence[Operation]) -> list[Reserved | None]:
        """All of them in one transaction; the answer to each."""
        with self._db.write() as tx:
            now = float(tx.execute(_NOW)[0][0])
            book = _Book(tx, now)
            book.lock(operations)
            answers = [book.enter(each) for each in operations]
            book.write()
        return answers


class _Book:
    """The totals that one transaction changes."""

    def __init__(self, tx: Transaction, now: float) -> None:
        self._tx = tx
        self._now = now
        self._day = _day(now)
        self._totals: dict[Scope, Total] = {}

    def lock(self, operations: Sequence[Operation]) -> None:
        """Read the totals for writing, in one order: two that wait for each other wait for ever."""
        runs: dict[Scope, str | None] = {}
        for each in operations:
            reserve = each if isinstance(each, Reserve) else each.reserve
            for scope in self._scopes(each):
                runs[scope] = None if scope.kind == "day" else reserve.run_id
        for scope in sorted(runs):
            place = {"scope": scope.kind, "name": scope.name}
            found = self._tx.execute(_LOCKED_TOTAL, place)
            if not found:
                self._tx.change(_FIRST, {**place, "run": runs[scope]})
                found = self._tx.execute(_LOCKED_TOTAL, place)
            self._totals[scope] = _total(found[0])

    def enter(self, operation: Operation) -> Reserved | None:
        """Carry out one."""
        if isinstance(operation, Reserve):
            return self._reserve(operation)
        if isinstance(operation, Release):
            if self._tx.change(_RELEASE, {"id": operation.reserve.id}):
                self._add(operation, requests=-1, held=-1)
        elif self._tx.change(_SETTLE, {"id": operation.reserve.id, **_columns(operation)}):
            self._settle(operation)
        return None

    def write(self) -> None:
        """Store the totals."""
        self._tx.many(
            _SET,
            [
                {
                    "scope": scope.kind,
                    "name": scope.name,
                    **{each.name: getattr(total, each.name) for each in fields(total)},
                }
                for scope, total in self._totals.items()
            ],
        )

    def _scopes(self, operation: Operation) -> tuple[Scope, ...]:
        if isinstance(operation, Reserve):
            return (*operation.scopes, Scope("day", self._day))
        return (*operation.reserve.scopes, Scope("day", operation.day))

    def _reserve(self, wanted: Reserve) -> Reserved:
        for budget in wanted.budgets:
            scope = Scope("day", self._day) if budget.scope == DAY else budget.scope
            refusal, waits = _refusal(budget, self._totals[scope], wanted)
            if refusal:
                return Reserved(self._day, refusal, waits, budget.scope.kind)
        self._tx.change(
            _RESERVE,
            {
                "id": wanted.id,
                "run": wanted.run_id,
                "idx": wanted.trial,
                "number": wanted.attempt,
                "at": self._now,
                "model": wanted.model,
                "tokens": wanted.tokens,
                "nano_usd": wanted.nano_usd,
            },
        )
        self._add(wanted, requests=1, held=1)
        return Reserved(self._day)

    def _settle(self, operation: Settle) -> None:
        if operation.tokens is None:
            return
        self._add(operation, requests=0, held=-1)
        for scope in self._scopes(operation):
            total = self._totals[scope]
            total.tokens += operation.tokens["prompt"] + operation.tokens["completion"]
            total.nano_usd += operation.nano_usd or 0

    def _add(self, operation: Operation, *, requests: int, held: int) -> None:
        reserve = operation if isinstance(operation, Reserve) else operation.reserve
        for scope in self._scopes(operation):
            total = self._totals[scope]
            total.requests += requests
            total.held_tokens += held * reserve.tokens
            total.held_nano_usd += held * (reserve.nano_usd or 0)


def _refusal(budget: Budget, total: Total, wanted: Reserve) -> tuple[str, bool]:
    """Why a budget does not allow a call, and whether that may change when others are settled."""
    what = f"the {budget.scope.kind}'s budget of"
    if budget.requests is not None and total.requests + 1 > budget.requests:
        return f"{what} {budget.requests:,} requests is spent", False
    if budget.tokens is not None:
        left = budget.tokens - total.tokens
        if wanted.tokens > left - total.held_tokens:
            return (
                f"{what} {budget.tokens:,} tokens does not allow another call: {max(0, left):,} are left, "
                f"and it may need {wanted.tokens:,}"
            ), wanted.tokens <= left
    if budget.usd is not None:
        if wanted.nano_usd is None:
            return f"{what} ${budget.usd:g} cannot be kept: the price of '{wanted.model}' is unknown", False
        nano_left = round(budget.usd * _NANO) - total.nano_usd
        if wanted.nano_usd > nano_left - total.held_nano_usd:
            return (
                f"{what} ${budget.usd:g} does not allow another call: ${max(0, nano_left) / _NANO:.4f} is "
                f"left, and it may cost ${wanted.nano_usd / _NANO:.4f}"
            ), wanted.nano_usd <= nano_left
    return "", False


def _columns(settle: Settle) -> dict[str, float | None]:
    tokens = settle.tokens
    names = ("prompt", "completion", "cached", "cache_write", "reasoning")
    used = {name: None if tokens is None else tokens[name] for name in names}
    return {**used, "nano_usd": settle.nano_usd, **settle.timing._asdict()}


def _total(row: Sequence[int]) -> Total:
    return Total(
        requests=int(row[0]),
        tokens=int(row[1]),
        nano_usd=int(row[2]),
        held_tokens=int(row[3]),
        held_nano_usd=int(row[4]),
    )


def _day(now: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(now))
