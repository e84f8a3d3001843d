"""One call of an agent, from budget to record: wait for a turn, ask the provider, try again, pass on."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import aiohttp
from yarl import URL

from proctor.errors import StoreError
from proctor.gateway.apis import Api, Route, is_lasting, is_model_missing, said
from proctor.gateway.body import Wanted
from proctor.gateway.budget import Books, ExhaustedError, Reservation
from proctor.gateway.client import EVENT_STREAM, Client
from proctor.gateway.limiter import OVERLOADED, Limiter, Retry, asked_pause_s
from proctor.gateway.meter import Call
from proctor.gateway.prices import Prices
from proctor.gateway.providers import Provider
from proctor.gateway.tape import Entry, Recorder
from proctor.gateway.tokens import Access, Failure
from proctor.gateway.usage import StreamMeter, Usage, usage_of

if TYPE_CHECKING:
    from proctor.gateway.app import Upstream

_MOST_ANSWER = 256 << 20
_SILENCE_S = 600.0
"""After how long without a byte a provider counts as gone."""
_KEPT_HEADERS = ("content-type", "request-id", "x-request-id")


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


@dataclass(kw_only=True)
class Asked:
    """One request, and all that is known of it before it is made."""

    access: Access
    route: Route
    wanted: Wanted
    model: str
    provider: Provider
    provider_model: str
    text: str
    """The body as the agent sent it."""
    body: bytes
    """The body as the provider gets it."""
    query: str
    headers: Mapping[str, str]


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
    usage: Usage | None = None
    failure: str = ""
    message: str = ""
    retries: int = 0
    lost: int = 0
    calling: bool = False
    """Whether the provider has the call, or had it."""
    started: float = field(default_factory=time.monotonic)
    started_at: float = field(default_factory=time.time)
    worked_s: float = 0.0
    first_token_s: float | None = None
    _chunks: list[tuple[float, int]] = field(default_factory=list)
    _answer: list[bytes] = field(default_factory=list)
    _headers: dict[str, str] = field(default_factory=dict)
    _status: int = 0
    _silence: asyncio.Timeout | None = None
    _heard_s: float = 0.0

    async def run(self) -> None:
        """All of it; never raises but when cancelled before anything was booked."""
        reservation: Reservation | None = None
        try:
            if self.books and self.asked.route.action == "generate":
                reservation = await self._reserve(self.books)
                if reservation is None:
                    return
            await self._tries()
        except asyncio.CancelledError:
            # The attempt has ended, or the agent went away: what is known so far is booked all the same.
            self._fail("given_up", "the call was given up before its end")
        finally:
            await self.client.quiet()
            await self._close(reservation)

    def leave(self, drain_s: float, task: asyncio.Task[None]) -> None:
        """The agent went away. What the provider still sends is read: it is paid for, and metered."""
        self.client.gone = True
        if self.calling:
            asyncio.get_running_loop().call_later(drain_s, task.cancel)
        else:
            task.cancel()

    # Before

    async def _reserve(self, books: Books) -> Reservation | None:
        asked = self.asked
        try:
            async with asyncio.timeout(self._patience_s()):
                return await books.reserve(
                    asked.access,
                    asked.model,
                    prompt_bytes=len(asked.body),
                    max_tokens=asked.wanted.max_tokens,
                )
        except (ExhaustedError, TimeoutError) as error:
            message = str(error) or "the budget is held by calls that take too long"
            self._fail("budget", message)
            # 400, because what clients take for a busy service they ask again and again.
            await self.client.fail(400, f"Proctor: {message}", "budget_exhausted")
            asked.access.exhaust(message)
        except StoreError:
            self._fail("refused", "the books of the run cannot be written")
            await self.client.fail(503, "Proctor: the books of the run cannot be written", "store_failed")
        return None

    def _patience_s(self) -> float:
        """How long this call may wait in all before its answer begins."""
        stream = self.asked.wanted.streamed and self.asked.route.api is not Api.GEMINI
        return self.retry.within_s if stream else self.retry.silent_within_s

    # The call

    async def _tries(self) -> None:
        deadline = self.started + self._patience_s()
        for tries in count():
            try:
                async with asyncio.timeout_at(_on_loop(deadline)) as patience:
                    async with self.limiter.turn(self.asked.access.run_id) as epoch:
                        patience.reschedule(None)
                        refusal = await self._try(epoch)
            except TimeoutError:
                refusal = Refusal(
                    503, {}, b"", f"no turn at {self.asked.provider.name} within the time", False
                )
                return await self._refused(refusal)
            if refusal is None:
                return None
            pause_s = self.retry.pause_s(tries, asked_pause_s(refusal.headers))
            late = time.monotonic() + pause_s > deadline
            if not refusal.may_pass or tries >= self.retry.most or late or self.client.gone:
                return await self._refused(refusal)
            self.retries += 1
            self.calling = False
            await asyncio.sleep(pause_s)
        return None

    async def _try(self, epoch: int) -> Refusal | None:
        """Ask once. What was passed on needs no other try, whatever became of it."""
        began = time.monotonic()
        self.calling = True
        try:
            async with asyncio.timeout(_SILENCE_S) as silence, self.upstream.ask(self.asked) as response:
                if response.status < 300:
                    self.limiter.answered()
                    self._silence = silence
                    return await self._pass_on(response)
                body = await response.content.read(1 << 20)
                headers = {name.lower(): value for name, value in response.headers.items()}
                refusal = Refusal(response.status, headers, body, said(body))
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            refusal = Refusal(502, {}, b"", self._broken(error), False)
        finally:
            self.worked_s += time.monotonic() - began
        if refusal.status in OVERLOADED:
            self.limiter.refused(epoch, asked_pause_s(refusal.headers))
        return refusal

    def _broken(self, error: Exception) -> str:
        """What went wrong on the way, without the address: it may hold what is secret."""
        kind = type(error).__name__
        where = self.asked.provider.name
        if isinstance(error, TimeoutError):
            return f"no answer from {where} in time"
        return f"the connection to {where} failed ({kind})"

    # What came

    async def _pass_on(self, response: aiohttp.ClientResponse) -> Refusal | None:
        self._status = response.status
        self._headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
        if response.content_type == EVENT_STREAM:
            return await self._pass_stream(response)
        if self.asked.wanted.streamed and self.asked.route.api is Api.GEMINI:
            return await self._pass_pieces(response)
        try:
            body = await _read(response)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            self.lost += 1
            return Refusal(502, {}, b"", self._broken(error), False)
        self._took(body)
        self._read_usage(body)
        await self.client.whole(response.status, response.headers, body)
        return None

    async def _pass_stream(self, response: aiohttp.ClientResponse) -> Refusal | None:
        meter = StreamMeter(self.asked.route.api, drops_usage=self.asked.wanted.adds_usage)
        try:
            async for chunk in response.content.iter_any():
                passed = meter.feed(chunk)
                self.usage = meter.usage if meter.finished else None
                if not self._chunks:
                    await self.client.begin(response.status, response.headers)
                if passed:
                    self._took(passed, data=meter.began)
                    await self.client.piece(passed)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            if not self._chunks:
                self.lost += 1
                return Refusal(502, {}, b"", self._broken(error), False)
            await self._cut(meter, self._broken(error))
            return None
        await self._rest(meter)
        if not self._chunks:
            await self.client.begin(response.status, response.headers)
        if meter.error:
            self._fail("provider_failed", meter.error)
        elif not meter.finished:
            self._fail("provider_failed", "the stream ended before its end")
        return None

    async def _rest(self, meter: StreamMeter) -> None:
        if rest := meter.end():
            self._took(rest)
            await self.client.piece(rest)
        self.usage = meter.usage if meter.finished else None

    async def _cut(self, meter: StreamMeter, message: str) -> None:
        """The stream broke after some of it was passed on: nobody can take that back."""
        await self._rest(meter)
        self._fail("provider_failed", message)
        await self.client.fail(502, f"Proctor: {message}", "stream_cut")

    async def _pass_pieces(self, response: aiohttp.ClientResponse) -> Refusal | None:
        """A stream that is one array in JSON."""
        await self.client.begin(response.status, response.headers)
        try:
            async for chunk in response.content.iter_any():
                self._took(chunk)
                await self.client.piece(chunk)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self._fail("provider_failed", self._broken(error))
        self._read_usage(b"".join(self._answer))
        return None

    def _took(self, piece: bytes, *, data: bool = True) -> None:
        now = time.monotonic() - self.started
        if data and self.first_token_s is None:
            self.first_token_s = now
        self._chunks.append((now, len(piece)))
        self._answer.append(piece)
        if self._silence and now > self._heard_s + _SILENCE_S / 10:
            # Seldom: a timer for each piece would cost more than the piece.
            self._heard_s = now
            self._silence.reschedule(asyncio.get_running_loop().time() + _SILENCE_S)

    def _read_usage(self, body: bytes) -> None:
        try:
            self.usage = usage_of(self.asked.route.api, json.loads(body))
        except ValueError:
            self._fail("provider_failed", "the answer is not JSON")

    async def _refused(self, refusal: Refusal) -> None:
        """The last word of a provider: passed on, but never with what it says about keys."""
        kind, message = blame(self.asked, refusal)
        self._fail(kind, message)
        self._status = refusal.status
        self.usage = Usage()
        plain = refusal.reached and refusal.status not in {401, 403} and refusal.body
        if plain and not self.client.has_headers:
            self._headers = {"content-type": refusal.headers.get("content-type", "application/json")}
            self._took(refusal.body)
            await self.client.whole(refusal.status, refusal.headers, refusal.body)
            return
        await self.client.fail(refusal.status, message or refusal.message, kind or "")
        if not self.client.gone and self.client.response is not None:
            answer = getattr(self.client.response, "body", None)
            self._took(answer if isinstance(answer, bytes) else b"")

    def _fail(self, kind: str, message: str) -> None:
        self.failure, self.message = kind, message

    # After

    async def _close(self, reservation: Reservation | None) -> None:
        """Book, record and tape what came of it."""
        asked = self.asked
        if self.failure == "given_up" and not self.calling:
            self.usage = Usage()
        nano_usd = None if self.usage is None else self.prices.nano_usd(asked.model, self.usage)
        if self.usage == Usage():
            nano_usd = 0
        if asked.route.action == "generate":
            self._record(nano_usd)
        self._tape()
        if reservation and self.books:
            if self.failure == "given_up" and not self.calling and not self.retries:
                await self.books.release(reservation)
            else:
                await self.books.settle(reservation, self.usage, nano_usd)

    def _record(self, nano_usd: int | None) -> None:
        asked, elapsed_s = self.asked, time.monotonic() - self.started
        made = self.failure not in {"budget", "refused"}
        call = Call(
            model=asked.model,
            api=asked.route.api,
            streamed=asked.wanted.streamed,
            status=self.client.status,
            usage=self.usage if made else None,
            nano_usd=nano_usd if made else None,
            request_bytes=len(asked.body),
            response_bytes=sum(size for _, size in self._chunks),
            started_at=self.started_at,
            first_token_s=self.first_token_s,
            waited_s=max(0.0, elapsed_s - self.worked_s),
            worked_s=self.worked_s,
            retries=self.retries,
            lost=self.lost,
            failure=self.failure,
            message=self.message,
        )
        asked.access.calls.append(call)
        if self.failure in {"provider_failed", "model_missing"}:
            missing = self.failure == "model_missing"
            asked.access.failure = Failure("model_missing" if missing else "provider_failed", self.message)
        elif made and self.failure != "given_up":
            asked.access.failure = None

    def _tape(self) -> None:
        if self.recorder is None or not self._status:
            return
        asked, recorder = self.asked, self.recorder
        recorder.add(
            lambda number: Entry(
                n=number,
                api=asked.route.api,
                action=asked.route.action,
                model=asked.model,
                streamed=asked.wanted.streamed,
                request=asked.text,
                status=self._status,
                headers=self._headers,
                chunks=tuple((round(at, 4), size) for at, size in self._chunks),
                response=b"".join(self._answer),
                usage=self.usage,
                given_up=self.client.gone,
            )
        )


def blame(asked: Asked, refusal: Refusal) -> tuple[str, str]:
    """Whether a refusal is the provider's doing, and the sentence that says so; empty: it is the agent's."""
    name, detail = asked.provider.name, f": {refusal.message}" if refusal.message else ""
    if not refusal.reached:
        return "provider_failed", refusal.message
    if is_model_missing(refusal.status, refusal.body):
        return "model_missing", f"{name} has no model '{asked.provider_model}'{detail}"
    if refusal.status in {401, 403}:
        return "provider_failed", f"{name} refuses the key that Proctor has for it ({refusal.status})"
    if refusal.status in {402, 404, 408, 429} or refusal.status >= 500 or refusal.status < 400:
        return "provider_failed", f"{name} answered {refusal.status}{detail}"
    return "", ""


def _on_loop(deadline: float) -> float:
    """A moment of the monotonic clock on the loop's own."""
    return asyncio.get_running_loop().time() + deadline - time.monotonic()


async def _read(response: aiohttp.ClientResponse) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        parts.append(chunk)
        size += len(chunk)
        if size > _MOST_ANSWER:
            raise ValueError("the answer is too large")
    return b"".join(parts)


def address(asked: Asked) -> URL:
    """Where the provider's call goes."""
    base = f"{asked.provider.base_url}{asked.route.path(asked.provider_model)}"
    return URL(f"{base}?{asked.query}" if asked.query else base, encoded=True)
