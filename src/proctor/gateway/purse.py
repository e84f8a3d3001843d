"""What this process may spend without asking the store, by scope, for as long as its lease lasts.

Only arithmetic: what is free goes to calls, what calls did not use is free again.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from proctor.store.portions import LEASE_S, Amount, Scope
from proctor.store.spending import DAY, Budget, Reserve, Reserved, Settle, day_of

_SURE_S = LEASE_S * 2 / 3
"""For how long after it asked the process relies on its lease: the store's clock may run faster."""
_IDLE_S = 2.0
"""A portion from which nothing was taken for so long is given back."""


class Purse:
    """The portions of one gateway."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self.begin_anew()

    def begin_anew(self) -> None:
        """Nothing is held any more, and the next lease is another gateway's."""
        self.holder = secrets.token_hex(16)
        self.joined = False
        self._until = 0.0
        self._ahead_s = 0.0
        self._free: dict[Scope, Amount] = {}
        self._bound: dict[Scope, Amount] = {}
        self._used_at: dict[Scope, float] = {}

    @property
    def holds(self) -> bool:
        """Whether the lease lasts."""
        return self._now() < self._until

    @property
    def empty(self) -> bool:
        """Whether there is nothing to give back."""
        return not self._free

    def renewed(self, asked_at: float, store_now: float) -> None:
        """There is a lease, asked for at this moment of the process's clock."""
        self.joined = True
        self._until = asked_at + _SURE_S
        self._ahead_s = store_now - asked_at

    def day(self) -> str:
        """The day by the store's clock."""
        return day_of(self._now() + self._ahead_s)

    def store_now(self) -> float:
        """The store's clock, as far as it is known here."""
        return self._now() + self._ahead_s

    def take(self, wanted: Reserve) -> str | None:
        """The day on which a call may be made out of what is held; None: the store must be asked."""
        if not self.holds:
            return None
        day = self.day()
        parts = {_at(budget, day): wanted.part(budget) for budget in wanted.budgets}
        for budget in wanted.budgets:
            scope = _at(budget, day)
            unknown = budget.usd is not None and wanted.nano_usd is None
            if unknown or scope not in self._free or not self._free[scope].covers(parts[scope]):
                return None
        for scope, part in parts.items():
            self._free[scope] = self._free[scope].plus(part, -1)
            self._bound[scope] = self._bound.get(scope, Amount()).plus(part)
            self._used_at[scope] = self._now()
        return day

    def refund(self, made: Reserve, day: str, settled: Settle | None) -> None:
        """What a call did not use is free again; None: it was not made at all."""
        for budget in made.budgets:
            scope, part = _at(budget, day), made.part(budget)
            if scope in self._free:
                spare = part.plus(_used(made, budget, settled), -1) if settled else part
                self._free[scope] = self._free[scope].plus(spare).floor()

    def booked(self, made: Reserve, day: str) -> None:
        """The store's totals have the call now."""
        for budget in made.budgets:
            scope = _at(budget, day)
            self._bound[scope] = self._bound.get(scope, Amount()).plus(made.part(budget), -1).floor()

    def give_back(self, asking: Iterable[Reserve]) -> dict[Scope, Amount]:
        """Let go of what is idle and of what did not suffice; what was let go, for when that fails."""
        now, day = self._now(), self.day()
        scopes = {_at(budget, day) for wanted in asking for budget in wanted.budgets}
        scopes |= {each for each in self._free if now - self._used_at.get(each, 0.0) > _IDLE_S}
        return {scope: self._free.pop(scope) for scope in scopes if scope in self._free}

    def put(self, some: Mapping[Scope, Amount]) -> None:
        """These are free to be spent."""
        for scope, amount in some.items():
            self._free[scope] = self._free.get(scope, Amount()).plus(amount)
            self._used_at[scope] = self._now()

    def held(self, changed: Iterable[Scope], booking: Sequence[tuple[Reserve, str]]) -> dict[Scope, Amount]:
        """All that is held of the scopes that change, once the calls of `booking` are booked."""
        leaving: dict[Scope, Amount] = {}
        for made, day in booking:
            for budget in made.budgets:
                scope = _at(budget, day)
                leaving[scope] = leaving.get(scope, Amount()).plus(made.part(budget))
        return {
            scope: self._free.get(scope, Amount())
            .plus(self._bound.get(scope, Amount()))
            .plus(leaving.get(scope, Amount()), -1)
            .floor()
            for scope in {*changed, *leaving}
        }

    def granted(self, answers: Iterable[Reserved | None]) -> None:
        """The store has given portions."""
        for answer in answers:
            if answer:
                self.put(answer.portions)


def _at(budget: Budget, day: str) -> Scope:
    return Scope("day", day) if budget.scope == DAY else budget.scope


def _used(made: Reserve, budget: Budget, settled: Settle) -> Amount:
    """What a call took of a budget; the most that it can be where nobody knows."""
    part = made.part(budget)
    if settled.tokens is None:
        return made.most(budget)
    tokens = settled.tokens["prompt"] + settled.tokens["completion"]
    return Amount(
        part.requests, tokens if part.tokens else 0, (settled.nano_usd or 0) if part.nano_usd else 0
    )
