"""Keep calls within budgets: an upper estimate is reserved before each, and settled after it.

A call is paid out of portions that this process holds, or the store is asked for it; then the store also
hands out portions for calls to come. How and when that is written is in `ledger.py`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

from proctor.errors import StoreError
from proctor.gateway.ledger import Ledger
from proctor.gateway.meter import Call
from proctor.gateway.output_limit import OutputLimit
from proctor.gateway.prices import Prices
from proctor.gateway.tokens import Access
from proctor.store.portions import Scope
from proctor.store.spending import Release, Reserve, Settle, Spending, Timing

_LOOK_AGAIN_S = 0.5
"""How often a call that waits for what other processes hold asks again."""


class ExhaustedError(Exception):
    """A budget does not allow the call; `scope` says whose: an attempt's, a run's or a day's."""

    def __init__(self, message: str, scope: str) -> None:
        super().__init__(message)
        self.scope = scope


@dataclass(frozen=True, slots=True)
class Reservation:
    """One call that may be made; to be settled or released."""

    reserve: Reserve
    day: str


class Books:
    """Reserves and settles for all attempts of a gateway."""

    def __init__(self, spending: Spending, prices: Prices) -> None:
        self._prices = prices
        self._ledger = Ledger(spending)
        self._open: Counter[Scope] = Counter()
        """Reservations of this process that are not settled."""
        self._waiting: set[asyncio.Future[None]] = set()
        """Who wants to know of the next settlement."""

    async def reserve(
        self, access: Access, model: str, *, prompt_bytes: int, limit: OutputLimit, prompt_tokens: int = 0
    ) -> Reservation:
        """Hold back the most that a call may use. ExhaustedError when a budget does not have it.

        `prompt_tokens` are those of the prompt that the provider has already.
        """
        upper = self._prices.upper(model, prompt_bytes, limit, prompt_tokens)
        wanted = Reserve(
            id=secrets.token_hex(16),
            run_id=access.run_id,
            trial=access.trial,
            attempt=access.attempt,
            model=model,
            scopes=access.scopes,
            budgets=access.budgets,
            tokens=upper.total_tokens,
            nano_usd=price.nano_usd(upper) if (price := self._prices.of(model)) else None,
        )
        made = None if access.short.locked() else await self._once(wanted)
        if made is None:
            async with access.short:
                while made is None:
                    made = await self._once(wanted)
        return made

    async def settle(self, made: Reservation, call: Call) -> None:
        """Say what a call used and how it went; usage None: nobody knows, and its upper estimate stays."""
        usage = call.usage
        tokens = usage and {
            "prompt": usage.prompt_tokens,
            "completion": usage.completion_tokens,
            "cached": usage.cached_tokens,
            "cache_write": usage.cache_write_tokens,
            "reasoning": usage.reasoning_tokens,
        }
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

    async def _once(self, wanted: Reserve) -> Reservation | None:
        """Try to have the call; None: something has changed, or may have, and it is worth another try."""
        change = asyncio.get_running_loop().create_future()
        self._waiting.add(change)
        try:
            made = await self._try(wanted, change)
        finally:
            self._waiting.discard(change)
        if made:
            self._open.update(wanted.scopes)
        return made

    async def _try(self, wanted: Reserve, change: asyncio.Future[None]) -> Reservation | None:
        if (day := await self._ledger.take(wanted)) is not None:
            return Reservation(wanted, day)
        try:
            answer = await self._ledger.ask(wanted)
        except StoreError:
            # The store was there before, and comes back most likely; who is in a hurry gives up by himself.
            if not self._ledger.known:
                raise
            self._ledger.say_away()
            await asyncio.wait([change], timeout=_LOOK_AGAIN_S)
            return None
        if not answer.refusal:
            return Reservation(wanted, answer.day)
        others = change.done() or any(self._open[scope] for scope in wanted.scopes)
        if not answer.waits or not (others or answer.elsewhere):
            raise ExhaustedError(answer.refusal, answer.scope)
        await asyncio.wait([change], timeout=_LOOK_AGAIN_S if answer.elsewhere else None)
        return None

    async def _done(self, made: Reservation, operation: Settle | Release) -> None:
        try:
            if written := self._ledger.finish(operation):
                while not written.done():
                    # Whoever ends the attempt waits for its books.
                    with suppress(asyncio.CancelledError):
                        await asyncio.wait([written])
                written.result()
        finally:
            for scope in made.reserve.scopes:
                self._open[scope] -= 1
                if not self._open[scope]:
                    del self._open[scope]
            for change in self._waiting:
                if not change.done():
                    change.set_result(None)
