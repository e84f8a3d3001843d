"""One turn in the words of each API: as a whole answer, and as the events of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from proctor.gateway.apis import Api, Route
from proctor.gateway.call_options import Wanted
from proctor.gateway.provider.script import Asking, Turn
from proctor.gateway.usage import Usage


def asking(route: Route, wanted: Wanted, body: Mapping[str, Any]) -> Asking:
    """What a request says, whichever API it uses."""
    items = _items(route.api, body)
    texts = [_text(item) for item in items]
    instructions = [_text(body.get(name)) for name in ("system", "instructions", "systemInstruction")]
    return Asking(
        api=route.api,
        model=wanted.model,
        streamed=wanted.streamed,
        turn=_turns(route.api, items),
        last=texts[-1] if texts else "",
        prompt="\n".join(filter(None, (*instructions, *texts))),
        body=body,
    )


def _items(api: Api, body: Mapping[str, Any]) -> list[Any]:
    name = {Api.RESPONSES: "input", Api.GEMINI: "contents"}.get(api, "messages")
    found = body.get(name)
    if isinstance(found, str):
        return [{"role": "user", "content": found}]
    return found if isinstance(found, list) else []


def _turns(api: Api, items: list[Any]) -> int:
    """How often the model has spoken: what it said in a row, with its calls of tools, was one turn."""
    turns, speaking = 0, False
    for item in items:
        role = item.get("role") if isinstance(item, Mapping) else ""
        kind = item.get("type") if isinstance(item, Mapping) else ""
        mine = role in {"assistant", "model"} or kind in {"function_call", "reasoning", "custom_tool_call"}
        turns += mine and not (speaking and api is Api.RESPONSES)
        speaking = mine
    return turns


def _text(value: Any) -> str:
    """All text in a value."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(filter(None, map(_text, value)))
    if isinstance(value, Mapping):
        names = ("content", "text", "output", "parts", "functionResponse", "response", "result")
        return "\n".join(filter(None, (_text(value.get(name)) for name in names)))
    return ""


def counted(turn: Turn, asked: Asking) -> Usage:
    """What the turn says that it used, or four characters to a token."""
    if turn.usage and asked.api is Api.MESSAGES:
        return replace(turn.usage, reasoning_tokens=0)  # this API does not say it
    if turn.usage:
        return replace(turn.usage, cache_write_tokens=0) if asked.api is Api.GEMINI else turn.usage
    said = turn.text + "".join(json.dumps(dict(tool.arguments)) for tool in turn.tools)
    return Usage(prompt_tokens=len(asked.prompt) // 4, completion_tokens=len(said) // 4 + 1)


def pieces(turn: Turn) -> list[str]:
    """The text as it comes in a stream."""
    if not turn.text:
        return []
    if turn.pieces:
        size = -(-len(turn.text) // turn.pieces)
        return [turn.text[at : at + size] for at in range(0, len(turn.text), size)]
    words = turn.text.split(" ")
    return [*(f"{word} " for word in words[:-1]), words[-1]]


def whole(asked: Asking, turn: Turn, number: int) -> dict[str, Any]:
    """The answer to a request that is not streamed."""
    return _WHOLE[asked.api](asked, turn, counted(turn, asked), number)


def events(asked: Asking, turn: Turn, number: int) -> Iterator[bytes]:
    """The events of the stream."""
    for name, data in _EVENTS[asked.api](asked, turn, counted(turn, asked), number):
        text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"), ensure_ascii=False)
        yield (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


Events = Iterator[tuple[str, Any]]


# Chat completions


def _chat_usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": _cache(usage),
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _cache(usage: Usage) -> dict[str, int]:
    written = {"cache_write_tokens": usage.cache_write_tokens} if usage.cache_write_tokens else {}
    return {"cached_tokens": usage.cached_tokens, **written}


def _chat_calls(turn: Turn, number: int) -> list[dict[str, Any]]:
    return [
        {
            "id": f"call_{number}_{place}",
            "type": "function",
            "function": {"name": tool.name, "arguments": json.dumps(dict(tool.arguments))},
        }
        for place, tool in enumerate(turn.tools)
    ]


def _chat_whole(asked: Asking, turn: Turn, usage: Usage, number: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": turn.text or (None if turn.tools else "")}
    if turn.tools:
        message["tool_calls"] = _chat_calls(turn, number)
    reason = "tool_calls" if turn.tools else "stop"
    choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1,
        "model": asked.model,
        "choices": [choice],
        "usage": _chat_usage(usage),
    }


def _chat_events(asked: Asking, turn: Turn, usage: Usage, number: int) -> Events:
    head = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 1, "model": asked.model}

    def chunk(delta: Mapping[str, Any], reason: str | None = None) -> tuple[str, Any]:
        return "", {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    yield chunk({"role": "assistant", "content": ""})
    for piece in pieces(turn):
        yield chunk({"content": piece})
    for place, call in enumerate(_chat_calls(turn, number)):
        yield chunk({"tool_calls": [{"index": place, **call}]})
    yield chunk({}, "tool_calls" if turn.tools else "stop")
    options = asked.body.get("stream_options")
    if isinstance(options, Mapping) and options.get("include_usage"):
        yield "", {**head, "choices": [], "usage": _chat_usage(usage)}
    yield "", "[DONE]"


# Responses


def _response(
    asked: Asking, usage: Usage | None, number: int, output: list[Any], status: str
) -> dict[str, Any]:
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": asked.model,
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": usage
        and {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": _cache(usage),
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            "total_tokens": usage.total_tokens,
        },
    }


def _output(turn: Turn, number: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if turn.text or not turn.tools:
        part = {"type": "output_text", "text": turn.text, "annotations": []}
        found.append(
            {
                "id": f"msg_{number}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [part],
            }
        )
    for place, tool in enumerate(turn.tools):
        found.append(
            {
                "id": f"fc_{number}_{place}",
                "type": "function_call",
                "status": "completed",
                "call_id": f"call_{number}_{place}",
                "name": tool.name,
                "arguments": json.dumps(dict(tool.arguments)),
            }
        )
    return found


def _responses_whole(asked: Asking, turn: Turn, usage: Usage, number: int) -> dict[str, Any]:
    return _response(asked, usage, number, _output(turn, number), "completed")


def _responses_events(asked: Asking, turn: Turn, usage: Usage, number: int) -> Events:
    output = _output(turn, number)
    listed: list[tuple[str, dict[str, Any]]] = []
    listed += [("response.created", {"response": _response(asked, None, number, [], "in_progress")})]
    for place, item in enumerate(output):
        where = {"output_index": place, "item_id": item["id"]}
        started: dict[str, Any] = {**item, "status": "in_progress"}
        started["content" if "content" in item else "arguments"] = [] if "content" in item else ""
        listed.append(("response.output_item.added", {"output_index": place, "item": started}))
        listed += _text_events(turn, where) if item["type"] == "message" else _call_events(item, where)
        listed.append(("response.output_item.done", {"output_index": place, "item": item}))
    listed.append(("response.completed", {"response": _response(asked, usage, number, output, "completed")}))
    for sequence, (kind, data) in enumerate(listed):
        yield kind, {"type": kind, "sequence_number": sequence, **data}


def _text_events(turn: Turn, where: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    empty = {"type": "output_text", "text": "", "annotations": []}
    place = {**where, "content_index": 0}
    return [
        ("response.content_part.added", {**place, "part": empty}),
        *(("response.output_text.delta", {**place, "delta": each, "logprobs": []}) for each in pieces(turn)),
        ("response.output_text.done", {**place, "text": turn.text, "logprobs": []}),
        ("response.content_part.done", {**place, "part": {**empty, "text": turn.text}}),
    ]


def _call_events(item: Mapping[str, Any], where: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    arguments = item["arguments"]
    return [
        ("response.function_call_arguments.delta", {**where, "delta": arguments}),
        ("response.function_call_arguments.done", {**where, "arguments": arguments, "name": item["name"]}),
    ]


# Messages


def _messages_usage(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }


def _blocks(turn: Turn, number: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"type": "text", "text": turn.text}] if turn.text or not turn.tools else []
    return found + [
        {
            "type": "tool_use",
            "id": f"toolu_{number}_{place}",
            "name": tool.name,
            "input": dict(tool.arguments),
        }
        for place, tool in enumerate(turn.tools)
    ]


def _messages_whole(asked: Asking, turn: Turn, usage: Usage, number: int) -> dict[str, Any]:
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": asked.model,
        "content": _blocks(turn, number),
        "stop_reason": "tool_use" if turn.tools else "end_turn",
        "stop_sequence": None,
        "usage": _messages_usage(usage),
    }


def _messages_events(asked: Asking, turn: Turn, usage: Usage, number: int) -> Events:
    final = _messages_whole(asked, turn, usage, number)
    first = {**final, "content": [], "stop_reason": None, "usage": {**final["usage"], "output_tokens": 1}}
    yield "message_start", {"type": "message_start", "message": first}
    yield "ping", {"type": "ping"}
    for place, block in enumerate(final["content"]):
        here = {"index": place}
        if block["type"] == "text":
            empty = {**block, "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces(turn)]
        else:
            empty = {**block, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        yield "content_block_start", {"type": "content_block_start", **here, "content_block": empty}
        for delta in deltas:
            yield "content_block_delta", {"type": "content_block_delta", **here, "delta": delta}
        yield "content_block_stop", {"type": "content_block_stop", **here}
    stop = {"stop_reason": final["stop_reason"], "stop_sequence": None}
    used = {"output_tokens": usage.completion_tokens}
    yield "message_delta", {"type": "message_delta", "delta": stop, "usage": used}
    yield "message_stop", {"type": "message_stop"}


# Gemini


def _gemini_answer(
    asked: Asking, number: int, parts: list[Any], usage: Usage | None, *, last: bool
) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    answer: dict[str, Any] = {
        "candidates": [candidate],
        "modelVersion": asked.model,
        "responseId": f"r{number}",
    }
    if last:
        candidate["finishReason"] = "STOP"
    if usage:
        answer["usageMetadata"] = {
            "promptTokenCount": usage.prompt_tokens,
            "candidatesTokenCount": usage.completion_tokens - usage.reasoning_tokens,
            "thoughtsTokenCount": usage.reasoning_tokens,
            "cachedContentTokenCount": usage.cached_tokens,
            "totalTokenCount": usage.total_tokens,
        }
    return answer


def _gemini_calls(turn: Turn) -> list[dict[str, Any]]:
    return [{"functionCall": {"name": tool.name, "args": dict(tool.arguments)}} for tool in turn.tools]


def _gemini_whole(asked: Asking, turn: Turn, usage: Usage, number: int) -> dict[str, Any]:
    parts = [{"text": turn.text}] if turn.text or not turn.tools else []
    return _gemini_answer(asked, number, parts + _gemini_calls(turn), usage, last=True)


def _gemini_events(asked: Asking, turn: Turn, usage: Usage, number: int) -> Events:
    for piece in pieces(turn):
        yield "", _gemini_answer(asked, number, [{"text": piece}], None, last=False)
    rest = _gemini_calls(turn) or [{"text": ""}]
    yield "", _gemini_answer(asked, number, rest, usage, last=True)


_WHOLE = {
    Api.CHAT: _chat_whole,
    Api.RESPONSES: _responses_whole,
    Api.MESSAGES: _messages_whole,
    Api.GEMINI: _gemini_whole,
}
_EVENTS = {
    Api.CHAT: _chat_events,
    Api.RESPONSES: _responses_events,
    Api.MESSAGES: _messages_events,
    Api.GEMINI: _gemini_events,
}
