"""One call of an agent, from budget to record: wait for a turn, ask the provider, try again, pass on."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

import aiohttp

from proctor.errors import StoreError
from proctor.gateway.answer import Answer
from proctor.gateway.apis import is_lasting, is_model_missing, said
from proctor.gateway.asked import Asked
from proctor.gateway.bounds import Flight
from proctor.gateway.budget import Books, ExhaustedError, Reservation
from proctor.gateway.client import Client
from proctor.gateway.lasting_refusals import ABOUT_KEY, LastingRefusals
from proctor.gateway.limiter import OVERLOADED, Limiter, Retry, Turn, asked_pause_s
from proctor.gateway.meter import UNSENT, Call
from proctor.gateway.prices import Prices
from proctor.gateway.tape import Entry, Recorder
from proctor.gateway.tokens import Failure
from proctor.gateway.upstream import Upstream
from proctor.gateway.usage import Usage
from proctor.model.context_length import is_context_length

_LOG = logging.getLogger("proctor.gateway")
_SILENCE_S = 600.0
"""After how long without a byte a provider counts as gone."""


_LONG_WAIT_S = 60.0
"""An agent that gives up a call after it waited so long for a budget is not to blame for it."""


class Refusal(NamedTuple):
    """What a provider, or the way to it, answered instead of an answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    message: str
    reached: bool = True
    """Whether it came from the provider."""

    @property
    def may_pass(self) -> bool:
        """Whether asking again can help."""
        if not self.reached:
            return True
        return (self.status == 429 or self.status >= 500) and not is_lasting(self.status, self.body)


@dataclass(kw_only=True, eq=False)
class Exchange:
    """One call on its way."""

    asked: Asked
    client: Client
    upstream: Upstream
    limiter: Limiter
    prices: Prices
    books: Books | None
    recorder: Recorder | None
    retry: Retry
    flight: Flight
    lasting: LastingRefusals
    failure: str = ""
    message: str = ""
    retries: int = 0
    lost: int = 0
    calling: bool = False
    """Whether the provider has the call, or had it."""
    refusal: str = ""
    """What the provider, or the way to it, said to the last try."""
    started: float = field(default_factory=time.monotonic)
    started_at: float = field(default_factory=time.time)
    worked_s: float = 0.0
    budget_wait_s: float = 0.0
    ends_attempt: bool = False
    """Whether the provider is asked no more in this run, so that the agent cannot go on."""
    answer: Answer = field(init=False)

    def __post_init__(self) -> None:
        self.answer = Answer(self.asked, self.client, self.started, self.flight)

    async def run(self) -> None:
        """All of it; never raises but when cancelled before anything was booked."""
        reservation: Reservation | None = None
        try:
            if await self._is_barred():
                return
            if self.books and self.asked.route.action == "generate":
                reservation = await self._reserve(self.books)
                if reservation is None:
                    return
            await self._tries()
        except asyncio.CancelledError:
            # The attempt has ended, or the agent went away: what is known so far is booked all the same.
            self._fail("given_up", self._unfinished())
        finally:
            await self.client.quiet()
            await self._close(reservation)
            if self.ends_attempt and self.asked.access.on_exhausted:
                self.asked.access.on_exhausted(self.message)

    def leave(self, drain_s: float, task: asyncio.Task[None]) -> None:
        """The agent went away. What the provider still sends is read: it is paid for, and metered."""
        self.client.gone = True
        if self.calling:
            asyncio.get_running_loop().call_later(drain_s, task.cancel)
        else:
            task.cancel()

    # Before

    async def _is_barred(self) -> bool:
        """Whether the provider is asked no more in this run; then the agent is told, and nobody else."""
        access, provider = self.asked.access, self.asked.provider.name
        status, reason = self.lasting.reason(access.run_id, provider)
        if status:
            self._fail("barred", reason)
            self.ends_attempt = True
            await self.client.fail(status, f"Proctor: {reason}", "provider_refused")
        return bool(status)

    async def _reserve(self, books: Books) -> Reservation | None:
        asked, began = self.asked, time.monotonic()
        try:
            made = await books.reserve(
                asked.access,
                asked.model,
                prompt_bytes=len(asked.body),
                prompt_tokens=asked.wanted.references * asked.access.longest_tokens,
                limit=asked.wanted.limit,
                away_s=self._patience_s(),
            )
        except ExhaustedError as error:
            message = str(error)
            self._fail("budget", message)
            # 400, because what clients take for a busy service they ask again and again.
            await self.client.fail(400, f"Proctor: {message}", "budget_exhausted")
            asked.access.exhaust(message, error.scope)
        except StoreError:
            self._fail("refused", "the books of the run cannot be written")
            await self.client.fail(503, "Proctor: the books of the run cannot be written", "store_failed")
        except asyncio.CancelledError:
            self.budget_wait_s = time.monotonic() - began
            raise
        else:
            self.budget_wait_s = made.waited_s
            return made
        return None

    def _patience_s(self) -> float:
        """How long this call may wait for a turn and between tries before its answer begins."""
        return self.retry.within_s if self.client.keeps_alive else self.retry.silent_within_s

    # The call

    async def _tries(self) -> None:
        deadline = time.monotonic() + self._patience_s()
        for tries in count():
            try:
                async with asyncio.timeout_at(_on_loop(deadline)) as patience:
                    async with self.limiter.turn(*self.asked.access.place) as turn:
                        patience.reschedule(None)
                        if await self._is_barred():
                            return None
                        refusal = await self._try(turn)
            except TimeoutError:
                message = f"no turn at {self.asked.provider.name} within the time"
                return await self._refused(Refusal(503, {}, b"", message, reached=False))
            if refusal is None:
                return None
            self.refusal = blame(self.asked, refusal)[1]
            pause_s = self.retry.pause_s(tries, asked_pause_s(refusal.headers))
            late = time.monotonic() + pause_s > deadline
            if not refusal.may_pass or tries >= self.retry.most or late or self.client.gone:
                return await self._refused(refusal)
            self.retries += 1
            self.calling = False
            await asyncio.sleep(pause_s)
        return None

    async def _try(self, turn: Turn) -> Refusal | None:
        """Ask once. What was passed on needs no other try, whatever became of it."""
        began = time.monotonic()
        self.calling = True
        try:
            async with asyncio.timeout(_SILENCE_S) as silence, self.upstream.ask(self.asked) as response:
                if response.status < 300:
                    self.limiter.answered(turn)
                    self.lasting.answered(self.asked.access.run_id, self.asked.provider.name)
                    await self.answer.take(response, silence, _SILENCE_S)
                    if self.answer.failure:
                        self._fail("provider_failed", self.answer.failure)
                    return None
                body = self.asked.provider.without_keys(await response.content.read(1 << 20))
                passed = self.asked.provider.key_filter().headers(response.headers)
                headers = {name.lower(): value for name, value in passed.items()}
                refusal = Refusal(response.status, headers, body, said(body))
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            message = self._broken(error)
            if self.answer.size:
                await self.answer.cut(message)
                self._fail("provider_failed", message)
                return None
            self.lost += bool(self.answer.status)
            self.answer = Answer(self.asked, self.client, self.started, self.flight)
            refusal = Refusal(502, {}, b"", message, reached=False)
        finally:
            self.worked_s += time.monotonic() - began
        if refusal.status in OVERLOADED:
            self.limiter.refused(turn.epoch, asked_pause_s(refusal.headers))
        return refusal

    def _broken(self, error: Exception) -> str:
        """What went wrong on the way, without the address: it may hold what is secret."""
        kind = type(error).__name__
        where = self.asked.provider.name
        if isinstance(error, TimeoutError):
            return f"no answer from {where} in time"
        return f"the connection to {where} failed ({kind})"

    async def _refused(self, refusal: Refusal) -> None:
        """The last word of a provider: passed on, but never with what it says about keys."""
        kind, message = blame(self.asked, refusal)
        access, name = self.asked.access, self.asked.provider.name
        if refusal.reached and not refusal.may_pass and kind == "provider_failed":
            self.ends_attempt = self.lasting.refused(
                access.run_id, access.place[1], name, refusal.status, message
            )
        self._fail(kind, message)
        self.answer.status = refusal.status
        self.answer.usage = Usage()
        plain = refusal.reached and refusal.status not in ABOUT_KEY and refusal.body
        if plain and not self.client.has_headers:
            self.answer.headers = {"content-type": refusal.headers.get("content-type", "application/json")}
            self.answer.took(refusal.body)
            await self.client.whole(refusal.status, refusal.headers, refusal.body)
            return
        told = await self.client.fail(refusal.status, message, kind)
        if not self.client.gone:
            self.answer.took(told)

    def _unfinished(self) -> str:
        """What had become of a call that nobody waits for any more."""
        waited_s = time.monotonic() - self.started
        name = self.asked.provider.name
        before = f"; before that: {self.refusal}" if self.refusal else ""
        return f"{name} had not answered a call when it was given up after {waited_s:.0f} s{before}"

    def _fail(self, kind: str, message: str) -> None:
        self.failure, self.message = kind, message

    # After

    async def _close(self, reservation: Reservation | None) -> None:
        """Book, record and tape what came of it."""
        never = self.failure == "given_up" and not self.calling
        usage = Usage() if never else self.answer.usage
        nano_usd = None if usage is None else self.prices.nano_usd(self.asked.model, usage)
        if usage == Usage():
            nano_usd = 0
        call = self._call(usage, nano_usd)
        if self.asked.route.action == "generate":
            self._record(call)
        self._tape()
        if not reservation or not self.books:
            return
        try:
            if never and not self.retries:
                await self.books.release(reservation)
            else:
                await self.books.settle(reservation, call)
        except StoreError:
            # It goes on counting at what was held back for it.
            _LOG.error("a call could not be settled: the store cannot be written")

    def _call(self, usage: Usage | None, nano_usd: int | None) -> Call:
        asked, elapsed_s = self.asked, time.monotonic() - self.started
        made = self.failure not in UNSENT
        return Call(
            model=asked.model,
            api=asked.route.api,
            streamed=asked.wanted.streamed,
            translated=asked.translated,
            status=self.client.status,
            usage=usage if made else None,
            nano_usd=nano_usd if made else None,
            request_bytes=len(asked.body),
            response_bytes=self.answer.size,
            started_at=self.started_at,
            first_token_s=self.answer.first_token_s,
            waited_s=max(0.0, elapsed_s - self.worked_s),
            budget_wait_s=self.budget_wait_s,
            worked_s=self.worked_s,
            retries=self.retries,
            lost=self.lost,
            failure=self.failure,
            message=self.message,
        )

    def _record(self, call: Call) -> None:
        access = self.asked.access
        access.add(call)
        if self.ends_attempt:
            access.failure = Failure("barred", self.message)
        elif self.failure == "model_missing":
            access.failure = Failure("model_missing", self.message)
        elif self.failure == "provider_failed":
            access.failure = Failure("provider_failed", self.message)
        elif self.failure == "given_up" and self.client.gone and self.budget_wait_s > _LONG_WAIT_S:
            message = f"the agent gave up a call that had waited {self.budget_wait_s:.0f} s for a budget"
            access.failure = Failure("provider_failed", message)
        elif self.failure not in {"budget", "refused", "given_up"}:
            access.failure = None

    def _tape(self) -> None:
        if self.recorder is None or not self.answer.status:
            return
        asked, answer = self.asked, self.answer
        if not answer.complete:
            self.recorder.leave_out()
            return
        self.recorder.add(
            lambda number: Entry(
                n=number,
                api=asked.route.api,
                action=asked.route.action,
                model=asked.model,
                streamed=asked.wanted.streamed,
                request=asked.sent.decode(),
                status=answer.status,
                headers=answer.headers,
                chunks=tuple((round(at, 4), size) for at, size in answer.chunks),
                response=b"".join(answer.pieces),
                usage=answer.usage,
                given_up=self.client.gone,
            )
        )


def blame(asked: Asked, refusal: Refusal) -> tuple[str, str]:
    """What a refusal is, as `Call.failure` names it, and the sentence that says so."""
    name, detail = asked.provider.name, f": {refusal.message}" if refusal.message else ""
    if not refusal.reached:
        return "provider_failed", refusal.message
    if is_model_missing(refusal.status, refusal.body):
        return "model_missing", f"{name} has no model '{asked.provider_model}'{detail}"
    if refusal.status in ABOUT_KEY:
        check = f"; check {asked.provider.key_env}" if asked.provider.key_env else ""
        return "provider_failed", f"{name} refuses the key that Proctor has for it ({refusal.status}){check}"
    answer = f"{name} answered {refusal.status}{detail}"
    if is_context_length(refusal.status, refusal.body[:4096].decode(errors="replace")):
        return "context_length", answer
    # What the agent itself named is missing: the path and the model have worked before.
    own = refusal.status == 404 and any(call.answered for call in asked.access.calls)
    if not own and (refusal.status in {402, 404, 408, 429} or not 400 <= refusal.status < 500):
        return "provider_failed", answer
    return "rejected", answer


def _on_loop(deadline: float) -> float:
    """A moment of the monotonic clock on the loop's own."""
    return asyncio.get_running_loop().time() + deadline - time.monotonic()
