"""Keep calls within budgets: what a call will probably use is held back before it, and settled after it.

A call is paid out of portions that this process holds, or the store is asked for it; then the store also
hands out portions for calls to come. How and when that is written is in `ledger.py`.

An attempt may have one call at a time for which less is held back than it can use. So a budget is overdrawn
by one call of each attempt at work and no more, whatever agents send. A call that a budget cannot have
while others hold some of it waits for them, in the order in which attempts came. Nobody who waits holds
anything back, and nobody who holds waits: calls under way end by themselves, and so does every wait.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import NamedTuple
from weakref import WeakValueDictionary

from proctor.errors import StoreError
from proctor.gateway.estimates import AnswerEstimates
from proctor.gateway.ledger import Ledger
from proctor.gateway.meter import Call
from proctor.gateway.output_limit import OutputLimit
from proctor.gateway.prices import Prices
from proctor.gateway.tokens import Access
from proctor.gateway.usage import Usage
from proctor.store.portions import Scope
from proctor.store.spending import DAY, Release, Reserve, Settle, Spending, Timing

_LOOK_AGAIN_S = 0.5
"""How often the first of those that wait for what other processes hold asks again."""


class ExhaustedError(Exception):
    """A budget does not allow the call; `scope` says whose: an attempt's, a run's or a day's."""

    def __init__(self, message: str, scope: str) -> None:
        super().__init__(message)
        self.scope = scope


@dataclass(frozen=True, slots=True)
class Reservation:
    """One call that may be made; to be settled or released."""

    access: Access
    reserve: Reserve
    day: str
    lends: bool = False
    """Whether less is held back than it can use."""
    waited_s: float = 0.0
    """How long it waited for the budgets."""


class _Refused(NamedTuple):
    """A budget does not have a call yet."""

    scope: Scope | None
    """Whose; None: the store does not answer."""
    elsewhere: bool
    """Whether other gateways hold some of it, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _BudgetRequest:
    """One call for which budgets are request."""

    access: Access
    model: str
    upper: Usage
    most: Usage
    id: str


class Books:
    """Reserves and settles for all attempts of a gateway."""

    def __init__(self, spending: Spending, prices: Prices) -> None:
        self._prices = prices
        self._estimates = AnswerEstimates()
        self._ledger = Ledger(spending, undoing=self._hold, undone=self._let_go)
        self._open: Counter[Scope] = Counter()
        """Calls of this process that hold some of a budget back."""
        self._waiting: set[asyncio.Future[None]] = set()
        """Who wants to know of the next settlement."""
        self._lines: WeakValueDictionary[Scope, asyncio.Lock] = WeakValueDictionary()
        """By budget. Whoever has the lock is the first of those that wait for it."""

    async def reserve(
        self,
        access: Access,
        model: str,
        *,
        prompt_bytes: int,
        limit: OutputLimit,
        prompt_tokens: int = 0,
        away_s: float = 0.0,
    ) -> Reservation:
        """Hold back what a call will probably use, once the budgets have it; ExhaustedError: one is spent.

        `prompt_tokens` are those of the prompt that the provider has already. A store that does not answer is
        waited for as long as `away_s`.
        """
        request = _BudgetRequest(
            access=access,
            model=model,
            upper=self._prices.upper(model, prompt_bytes, limit, prompt_tokens),
            most=self._prices.most(model, prompt_bytes, limit, prompt_tokens),
            id=secrets.token_hex(16),
        )
        if not access.short.locked() and self._line_of(access) is None:
            made = await self._once(request)
            if isinstance(made, Reservation):
                return made
        began = time.monotonic()
        with access.standstill.wait():
            async with access.short:
                made = await self._in_turn(request, away_s)
        return replace(made, waited_s=time.monotonic() - began)

    async def settle(self, made: Reservation, call: Call) -> None:
        """Say what a call used and how it went; usage None: nobody knows, it counts as the most it can be."""
        usage = call.usage
        tokens = usage and {
            "prompt": usage.prompt_tokens,
            "completion": usage.completion_tokens,
            "cached": usage.cached_tokens,
            "cache_write": usage.cache_write_tokens,
            "reasoning": usage.reasoning_tokens,
        }
        if usage:
            self._estimates.learn(made.reserve.run_id, made.reserve.model, usage.completion_tokens)
        timing = Timing(call.waited_s, call.first_token_s, call.worked_s, call.retries, call.status)
        settled = Settle(
            reserve=made.reserve, day=made.day, tokens=tokens or None, nano_usd=call.nano_usd, timing=timing
        )
        await self._done(made, settled)

    async def release(self, made: Reservation) -> None:
        """The call was never made."""
        await self._done(made, Release(made.reserve, made.day))

    async def flush(self) -> None:
        """Write what is settled and not in the store's totals yet."""
        await self._ledger.flush()

    async def close(self) -> None:
        """Write what is left, and give back what is held."""
        await self._ledger.close()

    # Waiting

    async def _in_turn(self, request: _BudgetRequest, away_s: float) -> Reservation:
        """Have the call when it is its turn; of the calls of an attempt one at a time is here."""
        access = request.access
        while lent := access.lent:
            # In full, where there is so much; else when the attempt's own call is over.
            made = await self._once(request) if self._line_of(access) is None else None
            if isinstance(made, Reservation):
                return made
            await lent.wait()
        deadline = time.monotonic() + away_s
        scope = self._line_of(access)
        while True:
            if scope is None:
                found = await self._once(request)
            else:
                line = self._lines.setdefault(scope, asyncio.Lock())
                async with line:
                    found = await self._first(request, scope)
            if isinstance(found, Reservation):
                return found
            scope = found.scope
            if scope is None:
                if time.monotonic() > deadline:
                    raise StoreError("the store does not answer")
                await asyncio.sleep(_LOOK_AGAIN_S)

    async def _first(self, request: _BudgetRequest, scope: Scope) -> Reservation | _Refused:
        """The first in a line asks again whenever that may help, until something else keeps it."""
        while True:
            with self._changes() as change:
                found = await self._ask(request, change)
                if isinstance(found, Reservation) or found.scope != scope:
                    return found
                await asyncio.wait([change], timeout=_LOOK_AGAIN_S if found.elsewhere else None)

    @contextmanager
    def _changes(self) -> Iterator[asyncio.Future[None]]:
        """Done with the next call that gives back what it held, from before one asks."""
        change = asyncio.get_running_loop().create_future()
        self._waiting.add(change)
        try:
            yield change
        finally:
            self._waiting.discard(change)

    def _line_of(self, access: Access) -> Scope | None:
        """A budget of the attempt for which others wait already."""
        for budget in access.budgets:
            if (line := self._lines.get(budget.scope)) and line.locked():
                return budget.scope
        return None

    # Asking

    async def _once(self, request: _BudgetRequest) -> Reservation | _Refused:
        with self._changes() as change:
            return await self._ask(request, change)

    async def _ask(self, request: _BudgetRequest, change: asyncio.Future[None]) -> Reservation | _Refused:
        """Ask once. ExhaustedError when no end of another call can help."""
        access = request.access
        in_full = access.lent is not None
        wanted = self._wanted(request)
        lends = access.lends and any(wanted.unheld())
        if lends:
            access.lent = asyncio.Event()
        made: Reservation | _Refused | None = None
        try:
            made = await self._answer(access, wanted, change, final=not in_full)
        finally:
            if lends and not isinstance(made, Reservation):
                access.take_back()
        return replace(made, lends=lends) if isinstance(made, Reservation) else made

    async def _answer(
        self, access: Access, wanted: Reserve, change: asyncio.Future[None], *, final: bool
    ) -> Reservation | _Refused:
        """`final`: whether the call cannot do with less."""
        day = await self._ledger.take(wanted)
        if day is None:
            try:
                answer = await self._ledger.ask(wanted)
            except StoreError:
                # The store was there before, and comes back most likely.
                if not self._ledger.known:
                    raise
                self._ledger.say_away()
                return _Refused(None, elsewhere=True)
            if answer.refusal:
                scope = next(each.scope for each in access.budgets if each.scope.kind == answer.scope)
                others = change.done() or self._open[scope] or answer.elsewhere
                if final and not (answer.waits and others):
                    raise ExhaustedError(answer.refusal, answer.scope)
                return _Refused(scope, answer.elsewhere)
            day = answer.day
        self._hold(wanted)
        access.standstill.begin_call()
        return Reservation(access, wanted, day)

    def _wanted(self, request: _BudgetRequest) -> Reserve:
        """What to hold back: the estimate, or all when a call of this attempt is held below its most."""
        access, model, most = request.access, request.model, request.most
        held = most
        if access.lent is None:
            answer = self._estimates.tokens(access.run_id, model)
            held = self._prices.probable(model, request.upper, answer)
        price = self._prices.of(model)
        return Reserve(
            id=request.id,
            run_id=access.run_id,
            trial=access.trial,
            attempt=access.attempt,
            model=model,
            scopes=access.scopes,
            budgets=access.budgets,
            tokens=held.total_tokens,
            nano_usd=price.nano_usd(held) if price else None,
            most_tokens=most.total_tokens,
            most_nano_usd=price.nano_usd(most) if price else 0,
        )

    async def _done(self, made: Reservation, operation: Settle | Release) -> None:
        try:
            if written := self._ledger.finish(operation):
                while not written.done():
                    # Whoever ends the attempt waits for its books.
                    with suppress(asyncio.CancelledError):
                        await asyncio.wait([written])
                written.result()
        finally:
            made.access.standstill.end_call()
            if made.lends:
                made.access.take_back()
            self._let_go(made.reserve)

    def _hold(self, made: Reserve) -> None:
        self._open.update((*made.scopes, DAY))

    def _let_go(self, made: Reserve) -> None:
        for scope in (*made.scopes, DAY):
            self._open[scope] -= 1
            if not self._open[scope]:
                del self._open[scope]
        for change in self._waiting:
            if not change.done():
                change.set_result(None)
