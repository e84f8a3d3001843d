"""Ask a model through an OpenAI-compatible endpoint; rate limits and passing faults are waited out."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from proctor.agents.http import Endpoint, HttpError, Response
from proctor.errors import ProviderError

_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_SHOWN = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call of the model; `arguments` is JSON as it wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the model said, and what it cost."""

    text: str
    message: Mapping[str, Any]
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Mapping[str, float] = field(default_factory=dict)
    finish_reason: str = ""


class Chat:
    """One endpoint. Never puts its key anywhere but in the header."""

    def __init__(
        self,
        base_url: str,
        key: str,
        *,
        attempts: int = 6,
        timeout_s: float = 600.0,
        backoff_s: float = 1.0,
        max_wait_s: float = 120.0,
        ca_bundle: str = "",
    ) -> None:
        try:
            self._endpoint = Endpoint(f"{base_url.rstrip('/')}/chat/completions", ca_bundle=ca_bundle)
        except HttpError as error:
            raise ProviderError(f"the model's service cannot be reached: {error}") from error
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._attempts = attempts
        self._timeout_s = timeout_s
        self._backoff_s = backoff_s
        self._max_wait_s = max_wait_s

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._endpoint.close()

    async def ask(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        options: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> Reply:
        """The model's reply, or ProviderError once patience is spent or the service says a final no."""
        payload = {"model": model, "messages": list(messages), **(options or {})}
        if tools:
            payload["tools"] = list(tools)
        dice = random.Random(seed)  # noqa: S311 - jitter, not a secret
        problem = ""
        for attempt in range(self._attempts):
            try:
                response = await self._endpoint.post_json(payload, self._headers, timeout_s=self._timeout_s)
            except HttpError as error:
                problem, wait_s = str(error), self._wait_s(attempt, dice, None)
            else:
                if response.status == 200:
                    return _reply(response)
                problem = f"status {response.status}: {refusal(response)}"
                if response.status not in _PASSING:
                    raise ProviderError(f"the model's service refused: {problem}")
                wait_s = self._wait_s(attempt, dice, response)
            if attempt + 1 < self._attempts:
                await asyncio.sleep(wait_s)
        raise ProviderError(
            f"the model's service failed {self._attempts} times; the last error was: {problem}"
        )

    def _wait_s(self, attempt: int, dice: random.Random, response: Response | None) -> float:
        """What the service asks for, else doubling; a little jitter keeps many agents apart."""
        asked = response.headers.get("retry-after", "") if response else ""
        try:
            wait_s = float(asked)
        except ValueError:
            wait_s = self._backoff_s * 2**attempt
        return min(self._max_wait_s, max(0.0, wait_s)) * dice.uniform(1.0, 1.25)


def refusal(response: Response) -> str:
    """Why a service said no, in its own words, cut short."""
    try:
        error = response.json()["error"]
        return str(error["message"] if isinstance(error, dict) else error)[:_SHOWN]
    except (HttpError, KeyError, TypeError):
        return response.body[:_SHOWN].decode(errors="replace")


def _reply(response: Response) -> Reply:
    try:
        body = response.json()
        choice = body["choices"][0]
        message = choice["message"]
        calls = tuple(
            ToolCall(
                id=str(call.get("id", number)),
                name=str(call["function"]["name"]),
                arguments=str(call["function"].get("arguments", "{}")),
            )
            for number, call in enumerate(message.get("tool_calls") or (), 1)
        )
        usage = body.get("usage") or {}
        return Reply(
            text=str(message.get("content") or ""),
            message=message,
            tool_calls=calls,
            usage={
                "prompt_tokens": int(usage.get("prompt_tokens", 0)),
                "completion_tokens": int(usage.get("completion_tokens", 0)),
                "cached_tokens": int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0),
                "cost_usd": float(usage.get("cost") or 0.0),
            },
            finish_reason=str(choice.get("finish_reason") or ""),
        )
    except (HttpError, KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise ProviderError(f"the model's service sent an answer that cannot be read: {error!r}") from error
