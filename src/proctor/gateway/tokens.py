"""What an attempt may do at the gateway: its token, models and limits; useless once it has ended."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

from proctor.gateway.bounds import Bounds
from proctor.gateway.meter import Call, Sums
from proctor.gateway.replay import Replay
from proctor.gateway.standstill import Standstill
from proctor.quota import Quota
from proctor.store.portions import Scope
from proctor.store.spending import DAY, Budget

PREFIX = "proctor-"
"""How tokens begin, so that a person who sees one knows what it is."""


class Failure(NamedTuple):
    """Why the attempt's last call came to nothing, in the gateway's word."""

    kind: Literal["provider_failed", "model_missing", "barred"]
    message: str


@dataclass(eq=False, kw_only=True)
class Access:
    """One attempt's way to its models. Made by `Gateway.issue`, ended by `Gateway.end`."""

    run_id: str
    trial: int
    """The trial's index in its run."""
    attempt: int
    models: tuple[str, ...]
    """Full names. Agents may leave out what comes before a slash."""
    token: str = field(default_factory=lambda: PREFIX + secrets.token_urlsafe(32), repr=False)
    budgets: tuple[Budget, ...] = ()
    on_exhausted: Callable[[str], None] | None = None
    """Called with a sentence when the attempt is to be ended, because a budget is spent or its provider is
    asked no more: no answer stops every agent."""
    replay: Replay | None = None
    """A tape that answers instead of providers."""
    pins: bool = False
    """Whether a call of any other model is made with the first of `models`, instead of being refused."""
    hosted_tools: bool = True
    """Whether tools that the provider runs, such as a web search, may be used."""
    purse: Scope | None = None
    """What its calls are booked on in place of the attempt and the run: a judge's are not the agent's."""
    calls: list[Call] = field(default_factory=list)
    longest_tokens: int = 0
    """Of the calls so far, the one with most; what a request refers to is part of one."""
    failure: Failure | None = None
    """Of the last call; None when it went well, or failed by the agent's own doing."""
    refusal: str = ""
    """Why the last request was refused that never became a call: nobody could have answered it."""
    exhausted: str = ""
    """Why it is to be ended: the budget that is spent, or where it left its tape."""
    exhausted_scope: str = ""
    """Whose budget that is: `attempt`, `run`, `judge` or `day`."""
    ended: bool = False
    bound: bool = False
    """Whether it is for listening sockets that were handed over, and for nobody else."""
    working: set[asyncio.Task[None]] = field(default_factory=set, repr=False)
    calls_under_way: Quota = field(default_factory=lambda: Bounds().calls_of_attempt(), repr=False)
    bytes_under_way: Quota = field(default_factory=lambda: Bounds().bytes_of_attempt(), repr=False)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)
    """For one body at a time, unless it is small: decoded it takes thirty times the memory."""
    short: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)
    """Of its calls that a budget cannot have yet, one asks again; the others wait for that."""
    lent: asyncio.Event | None = field(default=None, repr=False)
    """There while less is held back for one of its calls than that can use; set when the call is over."""
    standstill: Standstill = field(default_factory=Standstill, repr=False)
    """Its time in which all its calls waited for a budget."""

    @cached_property
    def scopes(self) -> tuple[Scope, ...]:
        """What its calls are booked on; the day comes with the booking."""
        extra = tuple(each.scope for each in self.budgets if each.scope != DAY)
        if self.purse:
            return tuple(dict.fromkeys((self.purse, *extra)))
        own = Scope("attempt", f"{self.run_id}/{self.trial}/{self.attempt}")
        return tuple(dict.fromkeys((own, Scope("run", self.run_id), *extra)))

    @cached_property
    def lends(self) -> bool:
        """Whether it has a budget of which more or less can be held back for a call."""
        return any(each.tokens is not None or each.usd is not None for each in self.budgets)

    @cached_property
    def place(self) -> tuple[str, str]:
        """Run and attempt, by which calls take turns."""
        return self.run_id, f"{self.trial}/{self.attempt}"

    def add(self, call: Call) -> None:
        """A call has ended."""
        self.calls.append(call)
        if call.usage:
            self.longest_tokens = max(self.longest_tokens, call.usage.total_tokens)

    def take_back(self) -> None:
        """The call that could use more than was held back for it is over."""
        if self.lent:
            self.lent.set()
        self.lent = None

    def resolve(self, name: str) -> str | None:
        """The full name of the model that a request means; None when the attempt may not use it."""
        for full in self.models:
            if full == name:
                return full
        near = {full for full in self.models if full.endswith(f"/{name}") or name.endswith(f"/{full}")}
        if len(near) == 1:
            return near.pop()
        return self.models[0] if self.pins and self.models else None

    def sums(self) -> Sums:
        """What it has used so far."""
        return Sums.of(self.calls)

    def exhaust(self, message: str, scope: str = "") -> None:
        """A budget is spent, or a tape was left: tell the owner, once."""
        if self.exhausted:
            return
        self.exhausted, self.exhausted_scope = message, scope
        if self.on_exhausted:
            self.on_exhausted(message)


class Tokens:
    """The tokens that are valid now."""

    def __init__(self) -> None:
        self._by_digest: dict[bytes, Access] = {}

    def add(self, access: Access) -> None:
        """From now on its token is good."""
        self._by_digest[_digest(access.token)] = access

    def find(self, token: str) -> Access | None:
        """Whose token it is. Looked up by its digest, so that the time it takes says nothing about it."""
        access = self._by_digest.get(_digest(token))
        if access is None or access.ended or not hmac.compare_digest(access.token.encode(), token.encode()):
            return None
        return access

    def all(self) -> Iterable[Access]:
        """Of every attempt that has not ended."""
        return list(self._by_digest.values())

    async def end(self, access: Access) -> None:
        """The attempt is over: the token is good for nothing, and what still runs is stopped and settled."""
        access.ended = True
        self._by_digest.pop(_digest(access.token), None)
        while working := [task for task in access.working if not task.done()]:
            for task in working:
                task.cancel()
            await asyncio.wait(working)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()
