"""What makes a provider act by itself: tools that it runs, and addresses that it would fetch.

Both reach networks that the task may not have. Tools of the agent pass; others are taken away, and addresses
are refused, because a message without its picture would be another message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from proctor.gateway.apis import Api
from proctor.gateway.body import BodyError

_OWN_TYPES = re.compile(
    r"function|custom|local_shell|apply_patch|tool_search|tool_search_tool_(?:regex|bm25)(?:_\d{8})?"
    r"|(?:bash|text_editor|memory)_\d{8}"
)
"""Tools that the agent runs itself, or that only choose among them."""
_HOSTED_TYPES = re.compile(
    r"(?:openrouter:)?(?:web_search|web_fetch|file_search|code_interpreter|code_execution|image_generation"
    r"|mcp|computer|datetime|shell)(?:_?[a-z0-9_]*)"
)
_OWN_KEYS = frozenset({"functionDeclarations", "function_declarations"})
_HOSTED_KEYS = frozenset({
    "googleSearch", "google_search", "googleSearchRetrieval", "google_search_retrieval", "urlContext",
    "url_context", "codeExecution", "code_execution", "fileSearch", "file_search", "googleMaps",
    "google_maps", "computerUse", "computer_use", "enterpriseWebSearch", "enterprise_web_search",
})  # fmt: skip
_CHAT_KEYS = frozenset({"type", "function", "custom", "cache_control"})
"""Of a tool; a translator reads others as tools of the provider."""
_CONTENT = {
    Api.CHAT: ("messages",),
    Api.RESPONSES: ("input", "instructions"),
    Api.MESSAGES: ("messages", "system"),
    Api.GEMINI: (
        "contents", "systemInstruction", "system_instruction", "generateContentRequest",
        "generate_content_request",
    ),
}  # fmt: skip
_WORDS = frozenset({
    "text", "content", "arguments", "output", "input", "thinking", "thought", "reasoning", "instructions",
    "reasoning_content", "refusal", "summary", "stdout", "stderr", "logs", "code", "command", "commands",
    "query", "title", "context", "description", "result", "signature", "encrypted_content", "system",
    "messages", "contents", "role", "type", "name", "id", "call_id", "tool_call_id", "tool_use_id",
})  # fmt: skip
"""Keys whose text is only read, or is a name."""
_DATA = frozenset({"args", "arguments", "response", "input", "action", "operation", "parameters", "schema"})
"""Keys below which an agent's tools have their own names for things."""
_ADDRESSES = frozenset({"url", "uri", "imageurl", "fileurl", "videourl", "audiourl", "fileuri", "fileid"})
"""Keys of what a provider fetches, without underlines and in small letters."""
_REMOTE = re.compile(r"(?:https?|ftp|file|gs|s3)\s*:|[a-z][a-z0-9+.\-]*://", re.IGNORECASE)
_BEFORE = re.compile(r"[\s\x00-\x1f\ufeff]*+")
_LONGEST_SCHEME = 256
"""A word of megabytes is none; looking through it would stop every other call for as long."""


def allowed_tools(api: Api, tools: Any, *, hosted: bool) -> list[Any]:
    """The tools that the provider gets; those that it would run itself only where that may be."""
    if not isinstance(tools, list) or not all(isinstance(tool, Mapping) for tool in tools):
        raise BodyError("'tools' is a list of objects")
    if api is Api.GEMINI:
        keys = _OWN_KEYS | _HOSTED_KEYS if hosted else _OWN_KEYS
        parts = [{name: value for name, value in tool.items() if name in keys} for tool in tools]
        return [part for part in parts if part]
    return [tool for tool in tools if _is_own(api, tool) or (hosted and _is_hosted(tool))]


def _is_own(api: Api, tool: Mapping[str, Any]) -> bool:
    kind = tool.get("type")
    if kind == "namespace":
        inner = tool.get("tools")
        return isinstance(inner, list) and all(
            isinstance(one, Mapping) and _is_own(api, one) for one in inner
        )
    if kind == "shell":
        place = tool.get("environment")
        return isinstance(place, Mapping) and place.get("type") == "local"
    if kind is None:
        kind = "function" if "function" in tool or api is Api.MESSAGES else ""
    if not isinstance(kind, str) or not _OWN_TYPES.fullmatch(kind):
        return False
    return tool.keys() <= _CHAT_KEYS if api is Api.CHAT else not tool.keys() & _HOSTED_KEYS


def _is_hosted(tool: Mapping[str, Any]) -> bool:
    kind = tool.get("type")
    return bool(tool.keys() & _HOSTED_KEYS) or (isinstance(kind, str) and bool(_HOSTED_TYPES.fullmatch(kind)))


def check_addresses(api: Api, values: Mapping[str, Any]) -> None:
    """BodyError when the content of a request names something for the provider to fetch."""
    content = [(name, values.get(name)) for name in _CONTENT[api]]
    left = [(name, part) for name, part in content if isinstance(part, dict | list)]
    while left:
        key, value = left.pop()
        for name, inner in value.items() if type(value) is dict else [(key, item) for item in value]:
            if type(inner) is str:
                if name not in _WORDS and _is_address(name, inner):
                    raise BodyError(
                        f"this task has no public network, so '{name[:100]}' may not refer to something that "
                        "the provider would fetch: send the data itself (data:…)"
                    )
            elif type(inner) is dict or type(inner) is list:
                if name == "tools" and type(value) is dict:
                    _check_tools(api, inner)
                elif name not in _DATA or type(value) is list:
                    left.append((name, inner))


def _check_tools(api: Api, tools: Any) -> None:
    """Tools among the messages, as some agents add them later."""
    if allowed_tools(api, tools, hosted=False) != tools:
        raise BodyError("this task has no public network, and 'tools' among its messages has others")


def _is_address(key: str, text: str) -> bool:
    if key.replace("_", "").lower() in _ADDRESSES:
        return not text.startswith("data:")
    begin = _BEFORE.match(text)
    at = begin.end() if begin else 0
    return bool(_REMOTE.match(text, at, at + _LONGEST_SCHEME))
