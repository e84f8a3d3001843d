"""What calls of models cost, by attempt, run and day; reserved before each call, settled after it.

A call is a row from before it is made. One that is never settled, because its process died, goes on counting
as a call made, at what was held back for it. How totals are changed is in `booking.py`, who may
spend without asking in `portions.py`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from proctor.store import portions
from proctor.store.again import repeatable
from proctor.store.database import Database
from proctor.store.portions import Amount, Scope

if TYPE_CHECKING:
    from proctor.store.limits import Limits

NANO = 1_000_000_000
_NOW = "SELECT {now}"
_TOTAL = """
SELECT t.requests, t.tokens, t.nano_usd, t.held_tokens, t.held_nano_usd FROM spending t
WHERE t.scope = :scope AND t.name = :name"""
LOCKED_TOTAL = f"{_TOTAL} {{wait_lock}}"
_UNBOOKED = """
SELECT scopes, held_tokens, held_nano_usd FROM model_calls WHERE holder IS NOT NULL AND scopes LIKE :like
"""
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
        return self.nano_usd / NANO


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
    """What is held back for it."""
    nano_usd: int | None
    """The same in money; None: unknown."""
    most_tokens: int = 0
    """What it counts as when nobody knows what it used, unless more is held back."""
    most_nano_usd: int = 0
    holder: str | None = None
    """The gateway that asks, where it may be given portions for more."""

    def part(self, budget: Budget) -> Amount:
        """What is held back for the call of a budget's units."""
        return self._amount(budget, self.tokens, self.nano_usd or 0)

    def most(self, budget: Budget) -> Amount:
        """What the call takes of a budget's units at most."""
        return self._amount(
            budget, max(self.tokens, self.most_tokens), max(self.nano_usd or 0, self.most_nano_usd)
        )

    def unheld(self) -> tuple[int, int]:
        """What it may use above what is held back: tokens and money."""
        return max(0, self.most_tokens - self.tokens), max(0, self.most_nano_usd - (self.nano_usd or 0))

    def _amount(self, budget: Budget, tokens: int, nano_usd: int) -> Amount:
        return Amount(
            0 if budget.requests is None else 1,
            0 if budget.tokens is None else tokens,
            0 if budget.usd is None else nano_usd,
        )


@dataclass(frozen=True, slots=True)
class Note:
    """A call is about to be made out of portions; the totals hear of it when it is booked."""

    reserve: Reserve
    day: str
    holder: str


class Reserved(NamedTuple):
    """The answer to a `Reserve`."""

    day: str
    at: float = 0.0
    """When, by the database's clock."""
    refusal: str = ""
    """Which budget does not allow it; empty: it is reserved."""
    waits: bool = False
    """Whether it may be allowed once others are settled below their estimates."""
    scope: str = ""
    """Whose budget refuses it: `attempt`, `run` or `day`."""
    elsewhere: bool = False
    """Whether other gateways hold some of it, which may come back."""
    portions: Mapping[Scope, Amount] = MappingProxyType({})
    """What the gateway may spend from now on without asking, by scope."""


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
    """Say what a reserved call used; `tokens` None: nobody knows, and it counts as the most it can be."""

    reserve: Reserve
    day: str
    tokens: Mapping[str, int] | None
    """prompt, completion, cached, cache_write and reasoning; the first two are what budgets count."""
    nano_usd: int | None
    timing: Timing = UNTIMED
    noted: bool = False
    """Whether it is in no total yet."""


@dataclass(frozen=True, slots=True)
class Release:
    """A reserved call was never made."""

    reserve: Reserve
    day: str
    noted: bool = False


Operation = Reserve | Settle | Release


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a gateway says of itself along with its operations."""

    holder: str
    joins: bool = False
    """Whether it is new, or was gone for so long that it begins anew."""
    portions: Mapping[Scope, Amount] = field(default_factory=dict)
    """All that it still holds of these scopes, for calls that are under way and for those to come."""


@repeatable
class Spending:
    """The books of one store."""

    def __init__(self, db: Database) -> None:
        self._db = db

    @property
    def limits(self) -> Limits:
        """How many calls providers get at a time from all gateways together."""
        from proctor.store.limits import Limits

        return Limits(self._db)

    def total(self, scope: Scope) -> Total:
        """What was spent within a scope so far; calls that no total has yet count at their estimates."""
        found = self._db.read(_TOTAL, {"scope": scope.kind, "name": scope.name})
        total = total_in(found[0]) if found else Total()
        for scopes, tokens, nano_usd in self._db.read(_UNBOOKED, {"like": f'%"{scope.kind}"%'}):
            if scope in portions.scopes_in(scopes):
                total.requests += 1
                total.held_tokens += int(tokens)
                total.held_nano_usd += int(nano_usd or 0)
        return total

    def today(self) -> Scope:
        """The scope of this day."""
        return Scope("day", day_of(float(self._db.read(_NOW)[0][0])))

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

    def now(self) -> float:
        """The database's clock."""
        return float(self._db.read(_NOW)[0][0])

    def apply(self, operations: Sequence[Operation], held: Held | None = None) -> list[Reserved | None]:
        """All of them in one transaction; the answer to each. LapsedError: what is held is not, any more."""
        from proctor.store.booking import book

        with self._db.write() as tx:
            return book(tx, float(tx.execute(_NOW)[0][0]), operations, held)

    def note(self, calls: Sequence[Note], now: float) -> None:
        """Write down calls that are about to be made out of portions; no total is touched."""
        from proctor.store.booking import note

        with self._db.write() as tx:
            note(tx, calls, now)

    def renew(self, holder: str) -> float:
        """Another lease for a gateway; the database's clock before it."""
        with self._db.write() as tx:
            now = float(tx.execute(_NOW)[0][0])
            portions.renew(tx, holder)
            return now

    def leave(self, holder: str) -> None:
        """A gateway goes: what it holds returns, and what it did not settle counts at its estimate."""
        from proctor.store.booking import take_over

        with self._db.write() as tx:
            take_over(tx, [holder])

    def reap(self) -> list[str]:
        """Take back what gateways held whose leases have ended; which they were."""
        from proctor.store.booking import take_over

        with self._db.write() as tx:
            found = portions.dead(tx)
            take_over(tx, found)
            return found


def total_in(row: Sequence[int]) -> Total:
    """A total from its row."""
    return Total(
        requests=int(row[0]),
        tokens=int(row[1]),
        nano_usd=int(row[2]),
        held_tokens=int(row[3]),
        held_nano_usd=int(row[4]),
    )


def day_of(now: float) -> str:
    """The day of a moment, in UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime(now))
