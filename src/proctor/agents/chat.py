"""Ask a model through the gateway, by OpenAI's chat completions. The gateway retries; this does not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proctor.agents.base import AgentFailed, Ask
from proctor.errors import ProviderError
from proctor.model.context_length import is_context_length

_PATH = "/v1/chat/completions"
_SHOWN = 300


class ContextTooLong(AgentFailed):
    """The model cannot read so much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call of the model; `arguments` is JSON as it wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the model said, and what it used by its own account."""

    text: str
    message: Mapping[str, Any]
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Mapping[str, float] = field(default_factory=dict)
    reasoning: str = ""
    finish_reason: str = ""


class Chat:
    """A model at the gateway, asked out of this process."""

    def __init__(self, ask: Ask, *, timeout_s: float = 600.0) -> None:
        self._ask = ask
        self._timeout_s = timeout_s

    async def ask(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Reply:
        """The model's reply; AgentFailed when it was refused: the gateway knows whose fault that is."""
        payload = {"model": model, "messages": list(messages), **(options or {})}
        if tools:
            payload["tools"] = list(tools)
        status, body = await self._post(payload)
        if status != 200:
            why = refusal(body)
            kind = ContextTooLong if is_context_length(status, why) else AgentFailed
            raise kind(f"the model's service refused: status {status}: {why}")
        return _reply(body)

    async def _post(self, payload: Any) -> tuple[int, bytes]:
        import asyncio

        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._ask(_PATH, json.dumps(payload).encode())
        except TimeoutError as error:
            raise ProviderError(f"no answer of the model within {self._timeout_s:g} s") from error


def refusal(body: bytes) -> str:
    """Why a service said no, in its own words, cut short."""
    try:
        error = json.loads(body)["error"]
        return str(error["message"] if isinstance(error, dict) else error)[:_SHOWN]
    except (ValueError, KeyError, TypeError):
        return body[:_SHOWN].decode(errors="replace")


def _reply(answer: bytes) -> Reply:
    try:
        body = json.loads(answer)
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
            reasoning=str(message.get("reasoning_content") or message.get("reasoning") or ""),
            tool_calls=calls,
            usage={
                "prompt_tokens": int(usage.get("prompt_tokens", 0)),
                "completion_tokens": int(usage.get("completion_tokens", 0)),
                "cached_tokens": int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0),
                "cost_usd": float(usage.get("cost") or 0.0),
            },
            finish_reason=str(choice.get("finish_reason") or ""),
        )
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise ProviderError(f"the model's service sent an answer that cannot be read: {error!r}") from error
