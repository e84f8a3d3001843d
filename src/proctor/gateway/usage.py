"""What a call used, read from a whole answer or, event by event, from a stream that passes by."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from proctor.gateway.apis import Api, said


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one call, as its provider counted them."""

    prompt_tokens: int = 0
    """All that went in: cached and cache-written ones are among them."""
    completion_tokens: int = 0
    """All that came out: reasoning is among them."""
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    stated_usd: float | None = None
    """The price, where the provider itself says it."""

    @property
    def total_tokens(self) -> int:
        """In and out."""
        return self.prompt_tokens + self.completion_tokens


def usage_of(api: Api, document: Any) -> Usage | None:
    """The usage in an answer; None when it says none."""
    if api is Api.GEMINI and isinstance(document, list):
        found = [usage for each in document if (usage := usage_of(api, each))]
        return found[-1] if found else None
    if not isinstance(document, Mapping):
        return None
    raw = document.get("usageMetadata" if api is Api.GEMINI else "usage")
    return _READERS[api](raw) if isinstance(raw, Mapping) and raw else None


def _int(raw: Mapping[str, Any], *path: str) -> int:
    found: Any = raw
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, int) and found > 0 else 0


def _cost(raw: Mapping[str, Any]) -> float | None:
    """What the provider says that it cost; less than nothing would fill up a budget."""
    cost = raw.get("cost")
    return float(cost) if isinstance(cost, int | float) and 0 <= cost < inf else None


def _chat(raw: Mapping[str, Any]) -> Usage:
    return Usage(
        prompt_tokens=_int(raw, "prompt_tokens"),
        completion_tokens=_int(raw, "completion_tokens"),
        cached_tokens=_int(raw, "prompt_tokens_details", "cached_tokens"),
        cache_write_tokens=_int(raw, "prompt_tokens_details", "cache_write_tokens"),
        reasoning_tokens=_int(raw, "completion_tokens_details", "reasoning_tokens"),
        stated_usd=_cost(raw),
    )


def _responses(raw: Mapping[str, Any]) -> Usage:
    return Usage(
        prompt_tokens=_int(raw, "input_tokens"),
        completion_tokens=_int(raw, "output_tokens"),
        cached_tokens=_int(raw, "input_tokens_details", "cached_tokens"),
        cache_write_tokens=_int(raw, "input_tokens_details", "cache_write_tokens"),
        reasoning_tokens=_int(raw, "output_tokens_details", "reasoning_tokens"),
        stated_usd=_cost(raw),
    )


def _messages(raw: Mapping[str, Any]) -> Usage:
    cached, written = _int(raw, "cache_read_input_tokens"), _int(raw, "cache_creation_input_tokens")
    return Usage(
        prompt_tokens=_int(raw, "input_tokens") + cached + written,
        completion_tokens=_int(raw, "output_tokens"),
        cached_tokens=cached,
        cache_write_tokens=written,
        stated_usd=_cost(raw),
    )


def _gemini(raw: Mapping[str, Any]) -> Usage:
    thoughts = _int(raw, "thoughtsTokenCount")
    return Usage(
        prompt_tokens=_int(raw, "promptTokenCount") + _int(raw, "toolUsePromptTokenCount"),
        completion_tokens=_int(raw, "candidatesTokenCount") + thoughts,
        cached_tokens=_int(raw, "cachedContentTokenCount"),
        reasoning_tokens=thoughts,
    )


_READERS = {Api.CHAT: _chat, Api.RESPONSES: _responses, Api.MESSAGES: _messages, Api.GEMINI: _gemini}
_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LONGEST_END = 4
_WORTH_READING = {
    Api.CHAT: (b'"usage"', b"[DONE]", b'"error"', b'_reason":"', b'_reason": "'),
    Api.RESPONSES: (b'"response.completed"', b'"response.incomplete"', b'"response.failed"', b'"error"'),
    Api.MESSAGES: (b'"message_', b'"error"'),
    Api.GEMINI: (b'"usageMetadata"', b'"finishReason"', b'"error"'),
}
"""Most events only carry text; those are not decoded."""
_MOST_HELD = 64 << 20


class StreamMeter:
    """Follows a stream of server-sent events: its usage, whether it ended as it should, whether it failed."""

    def __init__(self, api: Api, *, drops_usage: bool = False) -> None:
        self.usage: Usage | None = None
        self.finished = False
        """Whether the API's own sign of the end has come."""
        self.error = ""
        """What an error inside the stream said."""
        self.began = False
        """Whether any data has come; comments are none."""
        self._api = api
        self._drops = drops_usage
        self._needles = _WORTH_READING[api]
        self._held = bytearray()
        self._looked = 0
        """How far an end was looked for in it."""
        self._raw: dict[str, Any] = {}

    def feed(self, chunk: bytes) -> bytes:
        """What of the stream may be passed on now: all of it, unless an event that was not asked for goes."""
        if not self._held and chunk.endswith(b"\n\n") and not any(each in chunk for each in self._needles):
            # Whole events that say nothing, as most chunks are.
            self.began = self.began or b"data:" in chunk
            return chunk
        self._held += chunk
        kept: list[bytes] = []
        at = 0
        for end in _EVENT_END.finditer(self._held, self._looked):
            event = bytes(self._held[at : end.end()])
            at = end.end()
            if not self._is_extra(event) and self._drops:
                kept.append(event)
        del self._held[:at]
        self._looked = max(0, len(self._held) - _LONGEST_END + 1)
        if len(self._held) > _MOST_HELD:
            raise ValueError("an event of the stream is too large")
        return b"".join(kept) if self._drops else chunk

    def end(self) -> bytes:
        """The stream is over: what was held back of it."""
        rest, self._held, self._looked = bytes(self._held), bytearray(), 0
        if rest:
            self._is_extra(rest)
        return rest if self._drops else b""

    def _is_extra(self, event: bytes) -> bool:
        """Take note of an event; whether it is only there because the gateway asked for the usage."""
        if not self.began:
            self.began = b"data:" in event
        for needle in self._needles:
            if needle in event:
                return self._read(event)
        return False

    def _read(self, event: bytes) -> bool:
        data = b"\n".join(line[5:].strip() for line in event.splitlines() if line.startswith(b"data:"))
        if data == b"[DONE]":
            self.finished = True
            return False
        try:
            document = json.loads(data)
        except ValueError:
            return False
        if not isinstance(document, Mapping):
            return False
        try:
            return self._note(document, data)
        except (AttributeError, TypeError):  # not what the API describes; passed on all the same
            return False

    def _note(self, document: Mapping[str, Any], data: bytes) -> bool:
        if document.get("error") or document.get("type") == "error":
            self.error = said(data) or "the stream says that it failed"
            return False
        match self._api:
            case Api.CHAT:
                return self._chat(document)
            case Api.RESPONSES:
                self._response(document)
            case Api.MESSAGES:
                self._message(document)
            case Api.GEMINI:
                self.usage = usage_of(self._api, document) or self.usage
                candidates = document.get("candidates") or ()
                self.finished = self.finished or any(each.get("finishReason") for each in candidates)
        return False

    def _chat(self, document: Mapping[str, Any]) -> bool:
        found = usage_of(Api.CHAT, document)
        self.usage = found or self.usage
        choices = document.get("choices")
        if any(each.get("finish_reason") for each in choices or ()):
            self.finished = True
        return self._drops and found is not None and choices == []

    def _response(self, document: Mapping[str, Any]) -> None:
        kind, response = document.get("type"), document.get("response")
        if kind not in {"response.completed", "response.incomplete", "response.failed"}:
            return
        self.finished = True
        self.usage = usage_of(Api.RESPONSES, response) or self.usage
        if kind == "response.failed":
            self.error = said(json.dumps(response).encode()) or "the stream says that it failed"

    def _message(self, document: Mapping[str, Any]) -> None:
        kind = document.get("type")
        if kind == "message_stop":
            self.finished = True
        holder = document.get("message") if kind == "message_start" else document
        raw = holder.get("usage") if isinstance(holder, Mapping) else None
        if kind in {"message_start", "message_delta"} and isinstance(raw, Mapping):
            # Later figures are totals, and leave out what has not changed.
            self._raw |= {name: value for name, value in raw.items() if value is not None}
            self.usage = _messages(self._raw) if "input_tokens" in self._raw else None
