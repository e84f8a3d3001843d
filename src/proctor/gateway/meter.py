"""The record of one call, and the sums of many. What is unknown is said to be, and never 0."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from proctor.gateway.apis import Api
from proctor.gateway.prices import NANO
from proctor.gateway.usage import Usage

UNSENT = frozenset({"refused", "budget", "barred"})
"""Failures of calls that no provider has seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of an agent, as the gateway saw it."""

    model: str
    """The full name, with the provider first."""
    api: Api
    streamed: bool
    status: int
    """What the agent got; 0 when it went away before."""
    usage: Usage | None
    """None: the provider did not say, or the call was given up before it did."""
    nano_usd: int | None
    request_bytes: int
    response_bytes: int
    started_at: float
    first_token_s: float | None
    """From the call's arrival until the first data of an answer."""
    waited_s: float
    """In the queue, at the limiter and between retries."""
    worked_s: float
    """While the provider had the call."""
    retries: int
    budget_wait_s: float = 0.0
    """Of `waited_s`, the time until a budget had what it needs."""
    lost: int = 0
    """Tries that broke off after the provider had begun to answer: what they used nobody knows."""
    translated: bool = False
    """LiteLLM stood between the agent's API and the provider's; tokens are those that it told."""
    failure: str = ""
    """Why it came to nothing: `provider_failed`, `model_missing`, `rejected` (the provider takes no such
    request), `context_length`, `barred` (the provider is asked no more), `budget`, `refused`, `given_up`;
    empty when all went well."""
    message: str = ""

    @property
    def answered(self) -> bool:
        """Whether the agent got what a model said."""
        return not self.failure and 200 <= self.status < 300

    @property
    def cost_usd(self) -> float | None:
        """The cost in dollars; None: unknown."""
        return None if self.nano_usd is None else self.nano_usd / NANO

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for records and logs."""
        values = {name: value for name, value in asdict(self).items() if name not in {"usage", "nano_usd"}}
        return {**values, **(asdict(self.usage) if self.usage else {}), "cost_usd": self.cost_usd}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """What some calls used together."""

    requests: int = 0
    retries: int = 0
    lost: int = 0
    """Tries that broke off after the provider had begun to answer; what they used is not in the sums."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    waited_s: float = 0.0
    budget_wait_s: float = 0.0
    worked_s: float = 0.0
    nano_usd: int = 0
    unknown_usage: int = 0
    """Calls whose tokens nobody knows; they are not in the sums."""
    unknown_cost: int = 0
    """Calls whose cost nobody knows."""
    translated: int = 0
    """Calls that LiteLLM translated between the agent's API and the provider's."""

    @property
    def cost_usd(self) -> float | None:
        """The cost in dollars; None when that of any call is unknown."""
        return None if self.unknown_cost else self.nano_usd / NANO

    @classmethod
    def of(cls, calls: Iterable[Call]) -> Sums:
        """Of these calls. One that was refused here never reached a provider and is not counted."""
        found = [each for each in calls if each.failure not in UNSENT]
        usages = [each.usage for each in found if each.usage]
        return cls(
            requests=len(found),
            retries=sum(each.retries for each in found),
            lost=sum(each.lost for each in found),
            prompt_tokens=sum(each.prompt_tokens for each in usages),
            completion_tokens=sum(each.completion_tokens for each in usages),
            cached_tokens=sum(each.cached_tokens for each in usages),
            cache_write_tokens=sum(each.cache_write_tokens for each in usages),
            reasoning_tokens=sum(each.reasoning_tokens for each in usages),
            request_bytes=sum(each.request_bytes for each in found),
            response_bytes=sum(each.response_bytes for each in found),
            waited_s=sum(each.waited_s for each in found),
            budget_wait_s=sum(each.budget_wait_s for each in found),
            worked_s=sum(each.worked_s for each in found),
            nano_usd=sum(each.nano_usd or 0 for each in found),
            unknown_usage=sum(each.usage is None for each in found),
            unknown_cost=sum(each.nano_usd is None for each in found),
            translated=sum(each.translated for each in found),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with the names that records use."""
        values = {name: value for name, value in asdict(self).items() if name != "nano_usd"}
        return {**values, "cost_usd": self.cost_usd}
