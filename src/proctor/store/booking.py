"""One transaction over the totals: calls reserved, settled, released, and portions given out.

Totals are locked in one order, so that two transactions never wait for each other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields

from proctor.store import portions
from proctor.store.database import Transaction
from proctor.store.portions import Amount, Scope
from proctor.store.spending import (
    DAY,
    LOCKED_TOTAL,
    NANO,
    Budget,
    Held,
    Note,
    Operation,
    Release,
    Reserve,
    Reserved,
    Settle,
    Total,
    day_of,
    total_in,
)

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
INSERT INTO model_calls
  (id, run_id, idx, number, at, model, held_tokens, held_nano_usd, settled, holder, scopes)
VALUES (:id, :run, :idx, :number, :at, :model, :tokens, :nano_usd, 0, :holder, :scopes)
"""
_SETTLE = """
UPDATE model_calls SET settled = 1, prompt_tokens = :prompt, completion_tokens = :completion,
  cached_tokens = :cached, cache_write_tokens = :cache_write, reasoning_tokens = :reasoning,
  nano_usd = :nano_usd, waited_s = :waited_s, first_token_s = :first_token_s, worked_s = :worked_s,
  retries = :retries, status = :status, holder = NULL, scopes = NULL
WHERE id = :id AND settled = 0
"""
_RELEASE = "DELETE FROM model_calls WHERE id = :id AND settled = 0"


def note(tx: Transaction, calls: Sequence[Note], now: float) -> None:
    """Rows of calls that are in no total yet."""
    rows = []
    for each in calls:
        scopes = portions.scopes_text((*each.reserve.scopes, Scope("day", each.day)))
        rows.append({**_row(each.reserve, now), "holder": each.holder, "scopes": scopes})
    tx.many(_RESERVE, rows)


def book(
    tx: Transaction, now: float, operations: Sequence[Operation], held: Held | None
) -> list[Reserved | None]:
    """Carry out operations; the answer to each."""
    if held:
        (portions.join if held.joins else portions.check)(tx, held.holder)
    found = _Book(tx, now)
    found.lock(operations)
    if held:
        portions.keep(tx, held.holder, held.portions)
    answers = [found.enter(each) for each in operations]
    if held:
        answers = found.portioned(operations, answers, held)
    found.write()
    return answers


def take_over(tx: Transaction, holders: Collection[str]) -> None:
    """Book what gateways left open at what was held back for it, and let go of all that they held."""
    holders = [each for each in holders if portions.is_known(tx, each)]
    calls = [call for holder in holders for call in portions.left_open(tx, holder)]
    found = _Book(tx, 0.0)
    found.lock_scopes({scope: _run_of(scope, call.run_id) for call in calls for scope in call.scopes})
    for call in calls:
        for scope in call.scopes:
            found.add(scope, 1, call.tokens, call.nano_usd)
    found.write()
    for holder in holders:
        portions.leave(tx, holder)


class _Book:
    """The totals that one transaction changes."""

    def __init__(self, tx: Transaction, now: float) -> None:
        self._tx = tx
        self._now = now
        self._day = day_of(now)
        self._totals: dict[Scope, Total] = {}

    def lock(self, operations: Sequence[Operation]) -> None:
        """Read the totals that operations touch for writing."""
        runs: dict[Scope, str | None] = {}
        for each in operations:
            reserve = each if isinstance(each, Reserve) else each.reserve
            runs |= {scope: _run_of(scope, reserve.run_id) for scope in self._scopes(each)}
        self.lock_scopes(runs)

    def lock_scopes(self, runs: Mapping[Scope, str | None]) -> None:
        """The same by scope → its run. In one order: two that wait for each other wait for ever."""
        for scope in sorted(runs):
            place = {"scope": scope.kind, "name": scope.name}
            found = self._tx.execute(LOCKED_TOTAL, place)
            if not found:
                self._tx.change(_FIRST, {**place, "run": runs[scope]})
                found = self._tx.execute(LOCKED_TOTAL, place)
            self._totals[scope] = total_in(found[0])

    def enter(self, operation: Operation) -> Reserved | None:
        """Carry out one."""
        if isinstance(operation, Reserve):
            return self._reserve(operation)
        if isinstance(operation, Release):
            if self._tx.change(_RELEASE, {"id": operation.reserve.id}) and not operation.noted:
                self._hold(operation, -1, requests=-1)
        elif self._tx.change(_SETTLE, {"id": operation.reserve.id, **_columns(operation)}):
            self._settle(operation)
        return None

    def add(self, scope: Scope, requests: int, held_tokens: int, held_nano_usd: int) -> None:
        """Count calls, and what is held back for them."""
        total = self._totals[scope]
        total.requests += requests
        total.held_tokens += held_tokens
        total.held_nano_usd += held_nano_usd

    def portioned(
        self, operations: Sequence[Operation], answers: Sequence[Reserved | None], held: Held
    ) -> list[Reserved | None]:
        """The answers, with portions for calls to come where budgets have enough for that."""
        found: list[Reserved | None] = []
        given: dict[Scope, Amount] = {}
        for operation, answer in zip(operations, answers, strict=True):
            if isinstance(operation, Reserve) and answer and not answer.refusal:
                fresh = self._portions(operation, given)
                given |= fresh
                answer = answer._replace(portions=fresh)  # noqa: PLW2901 - the same answer, with more in it
            found.append(answer)
        kept = {scope: held.portions.get(scope, Amount()).plus(some) for scope, some in given.items()}
        portions.keep(self._tx, held.holder, kept)
        return found

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

    def _portions(self, wanted: Reserve, given: Mapping[Scope, Amount]) -> dict[Scope, Amount]:
        """What budgets give for more calls like this one; nothing when one of them has too little."""
        found: dict[Scope, Amount] = {}
        for budget in wanted.budgets:
            scope = self._scope_of(budget)
            if scope in given:
                continue
            left = _left(budget, self._totals[scope]).plus(portions.held(self._tx, scope), -1).floor()
            # Nobody but the process of an attempt calls for it.
            some = portions.portion(left, wanted.most(budget), alone=scope.kind == "attempt")
            if not any(some):
                return {}
            found[scope] = some
        return found

    def _scope_of(self, budget: Budget) -> Scope:
        return Scope("day", self._day) if budget.scope == DAY else budget.scope

    def _scopes(self, operation: Operation) -> tuple[Scope, ...]:
        if isinstance(operation, Reserve):
            return (*operation.scopes, Scope("day", self._day))
        return (*operation.reserve.scopes, Scope("day", operation.day))

    def _reserve(self, wanted: Reserve) -> Reserved:
        for budget in wanted.budgets:
            scope = self._scope_of(budget)
            others = portions.held(self._tx, scope)
            refusal, waits = _refusal(budget, self._totals[scope], wanted, others)
            if refusal:
                run_id = None if scope.kind == "day" else wanted.run_id
                elsewhere = waits and (
                    any(others) or portions.others_at_work(self._tx, wanted.holder or "", run_id)
                )
                return Reserved(self._day, self._now, refusal, waits, budget.scope.kind, elsewhere)
        self._tx.change(_RESERVE, _row(wanted, self._now))
        self._hold(wanted, 1, requests=1)
        return Reserved(self._day, self._now)

    def _settle(self, operation: Settle) -> None:
        if operation.tokens is None:
            if operation.noted:
                self._hold(operation, 1, requests=1)
            for scope in self._scopes(operation):
                self.add(scope, 0, *operation.reserve.unheld())
            return
        if operation.noted:
            self._hold(operation, 0, requests=1)
        else:
            self._hold(operation, -1, requests=0)
        for scope in self._scopes(operation):
            total = self._totals[scope]
            total.tokens += operation.tokens["prompt"] + operation.tokens["completion"]
            total.nano_usd += operation.nano_usd or 0

    def _hold(self, operation: Operation, sign: int, *, requests: int) -> None:
        reserve = operation if isinstance(operation, Reserve) else operation.reserve
        for scope in self._scopes(operation):
            self.add(scope, requests, sign * reserve.tokens, sign * (reserve.nano_usd or 0))


def _left(budget: Budget, total: Total) -> Amount:
    """What a budget has left when every call that is under way uses all it may."""
    return Amount(
        0 if budget.requests is None else budget.requests - total.requests,
        0 if budget.tokens is None else budget.tokens - total.tokens - total.held_tokens,
        0 if budget.usd is None else round(budget.usd * NANO) - total.nano_usd - total.held_nano_usd,
    )


def _refusal(budget: Budget, total: Total, wanted: Reserve, others: Amount) -> tuple[str, bool]:
    """Why a budget does not allow a call, and whether that may change when others are settled."""
    what = f"the {budget.scope.kind}'s budget of"
    if budget.requests is not None and total.requests + others.requests + 1 > budget.requests:
        waits = total.requests + 1 <= budget.requests
        return f"{what} {budget.requests:,} requests is spent", waits
    if budget.tokens is not None:
        left = budget.tokens - total.tokens
        if wanted.tokens > left - total.held_tokens - others.tokens:
            return (
                f"{what} {budget.tokens:,} tokens does not allow another call: {max(0, left):,} are left, "
                f"and it may need {wanted.tokens:,}"
            ), wanted.tokens <= left
    if budget.usd is not None:
        if wanted.nano_usd is None:
            return f"{what} ${budget.usd:g} cannot be kept: the price of '{wanted.model}' is unknown", False
        nano_left = round(budget.usd * NANO) - total.nano_usd
        if wanted.nano_usd > nano_left - total.held_nano_usd - others.nano_usd:
            return (
                f"{what} ${budget.usd:g} does not allow another call: ${max(0, nano_left) / NANO:.4f} is "
                f"left, and it may cost ${wanted.nano_usd / NANO:.4f}"
            ), wanted.nano_usd <= nano_left
    return "", False


def _columns(settle: Settle) -> dict[str, float | None]:
    tokens = settle.tokens
    names = ("prompt", "completion", "cached", "cache_write", "reasoning")
    used = {name: None if tokens is None else tokens[name] for name in names}
    return {**used, "nano_usd": settle.nano_usd, **settle.timing._asdict()}


def _row(wanted: Reserve, now: float) -> dict[str, float | str | None]:
    return {
        "id": wanted.id,
        "run": wanted.run_id,
        "idx": wanted.trial,
        "number": wanted.attempt,
        "at": now,
        "model": wanted.model,
        "tokens": wanted.tokens,
        "nano_usd": wanted.nano_usd,
        "holder": wanted.holder,
        "scopes": None,
    }


def _run_of(scope: Scope, run_id: str) -> str | None:
    return None if scope.kind == "day" else run_id
