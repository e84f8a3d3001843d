"""A request's JSON body: read once, changed in single places, all else byte for byte as it came."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from json.decoder import JSONDecoder, scanstring  # type: ignore[attr-defined]
from typing import Any

from proctor.gateway.apis import Api, Route

_DECODER = JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")
_HOSTED_TYPES = re.compile(
    r"(?:web_search|web_fetch|file_search|code_interpreter|code_execution|image_generation|mcp|computer)"
)
_HOSTED_KEYS = frozenset(
    {"google_search", "googleSearch", "googleSearchRetrieval", "url_context", "urlContext", "codeExecution"}
)
_HOSTED_FIELDS = ("web_search_options", "plugins", "mcp_servers")


class BodyError(ValueError):
    """The body is not an object in JSON."""


@dataclass(frozen=True, slots=True)
class Body:
    """A JSON object as text, as values, and where each of its values is in the text."""

    text: str
    values: Mapping[str, Any]
    spans: tuple[tuple[str, int, int], ...]
    """Key, start and end of its value; a key that comes twice is here twice."""

    @classmethod
    def read(cls, data: bytes) -> Body:
        """BodyError when it is no JSON object."""
        try:
            text = data.decode()
            return cls(text, *_members(text))
        except (ValueError, IndexError, RecursionError) as error:
            raise BodyError("the request's body is not a JSON object") from error

    def changed(self, changes: Mapping[str, Any]) -> bytes:
        """The body with other values for these keys, in place; keys that it does not have are put first."""
        known = {key for key, _, _ in self.spans}
        parts: list[str] = []
        at = 0
        for key, start, end in self.spans:
            if key in changes:
                parts += [self.text[at:start], json.dumps(changes[key])]
                at = end
        text = "".join([*parts, self.text[at:]])
        new = {key: value for key, value in changes.items() if key not in known}
        if new:
            opening = text.index("{") + 1
            joint = "," if self.spans else ""
            text = text[:opening] + json.dumps(new)[1:-1] + joint + text[opening:]
        return text.encode()


def _members(text: str) -> tuple[dict[str, Any], tuple[tuple[str, int, int], ...]]:
    """The members of the object that the text is. Values are read by the C decoder, one call each."""
    values: dict[str, Any] = {}
    spans: list[tuple[str, int, int]] = []
    at = _expect(text, _skip(text, 0), "{")
    if text[at] == "}":
        at += 1
    else:
        while True:
            key, at = scanstring(text, _expect(text, at, '"', skip=False))
            start = _expect(text, _skip(text, at), ":")
            values[key], at = _DECODER.raw_decode(text, start)
            spans.append((key, start, at))
            at = _skip(text, at)
            if text[at] == "}":
                at += 1
                break
            at = _expect(text, at, ",")
    if _skip(text, at) != len(text):
        raise ValueError(at)
    return values, tuple(spans)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _expect(text: str, at: int, mark: str, *, skip: bool = True) -> int:
    """The place behind a mark that must be here, and behind the space that follows it."""
    if text[at] != mark:
        raise ValueError(at)
    return _skip(text, at + 1) if skip else at + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What of a request the gateway acts on."""

    model: str
    streamed: bool
    max_tokens: int | None
    adds_usage: bool
    """Whether the agent did not ask for the usage of a stream: it is asked for, and not passed on."""


def wanted(route: Route, body: Body) -> Wanted:
    """Model, stream and limits of a request."""
    values = body.values
    streamed = route.streams if route.api is Api.GEMINI else values.get("stream") is True
    options = values.get("stream_options")
    asks = isinstance(options, Mapping) and options.get("include_usage") is True
    return Wanted(
        model=route.model or str(values.get("model") or ""),
        streamed=streamed,
        max_tokens=_max_tokens(route.api, values),
        adds_usage=route.api is Api.CHAT and streamed and not asks,
    )


def _max_tokens(api: Api, values: Mapping[str, Any]) -> int | None:
    if api is Api.GEMINI:
        config = values.get("generationConfig") or values.get("generation_config")
        found = config.get("maxOutputTokens") if isinstance(config, Mapping) else None
        choices = config.get("candidateCount") if isinstance(config, Mapping) else None
    else:
        names = ("max_completion_tokens", "max_output_tokens", "max_tokens")
        found = next((values[name] for name in names if values.get(name) is not None), None)
        choices = values.get("n")
    if not isinstance(found, int) or found < 0:
        return None
    return found * choices if isinstance(choices, int) and choices > 1 else found


def upstream_changes(route: Route, body: Body, asked: Wanted, model: str, *, hosted: bool) -> dict[str, Any]:
    """What must differ in the body that goes to the provider: the model's name there, usage, hosted tools."""
    changes: dict[str, Any] = {}
    if "model" in body.values and body.values["model"] != model and not route.model:
        changes["model"] = model
    if asked.adds_usage:
        options = body.values.get("stream_options")
        changes["stream_options"] = {
            **(options if isinstance(options, Mapping) else {}),
            "include_usage": True,
        }
    return changes if hosted else changes | _without_hosted(body.values)


def _without_hosted(values: Mapping[str, Any]) -> dict[str, Any]:
    """Changes that take away tools which the provider runs: they reach networks that the task must not."""
    changes: dict[str, Any] = {name: [] for name in _HOSTED_FIELDS[1:] if values.get(name)}
    if values.get("web_search_options") is not None:
        changes["web_search_options"] = None
    tools = values.get("tools")
    if isinstance(tools, list):
        kept = [tool for tool in tools if not _is_hosted(tool)]
        if len(kept) < len(tools):
            changes["tools"] = kept
    return changes


def _is_hosted(tool: Any) -> bool:
    if not isinstance(tool, Mapping):
        return False
    if _HOSTED_TYPES.match(str(tool.get("type") or "")):
        return True
    return bool(_HOSTED_KEYS & tool.keys()) and not (
        tool.get("functionDeclarations") or tool.get("function_declarations")
    )
