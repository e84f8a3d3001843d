"""The four APIs that pass through the gateway: how a request of each is known, and how each says an error.

Nothing is translated between them. A request is known by the end of its path, because clients differ in what
they put before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal
from urllib.parse import quote


class Api(StrEnum):
    """What agents and providers speak."""

    CHAT = "chat"
    RESPONSES = "responses"
    MESSAGES = "messages"
    GEMINI = "gemini"


Action = Literal["generate", "count"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What a request asks for, as far as method and path say it."""

    api: Api
    action: Action = "generate"
    tail: str
    """The path below a provider's address; `{model}` where the model's name is part of it."""
    model: str = ""
    """The model, where the path names it."""
    streams: bool = False
    """Whether the path says that the answer is streamed."""

    def path(self, model: str) -> str:
        """The path below a provider's address, for a model as that provider names it."""
        return self.tail.replace("{model}", quote(model, safe=":/@"))


_ENDS = {
    "chat/completions": Route(api=Api.CHAT, tail="/chat/completions"),
    "responses": Route(api=Api.RESPONSES, tail="/responses"),
    "responses/compact": Route(api=Api.RESPONSES, tail="/responses/compact"),
    "responses/input_tokens": Route(api=Api.RESPONSES, action="count", tail="/responses/input_tokens"),
    "messages": Route(api=Api.MESSAGES, tail="/messages"),
    "messages/count_tokens": Route(api=Api.MESSAGES, action="count", tail="/messages/count_tokens"),
}
_GEMINI = re.compile(r"(?:^|/)models/(?P<model>[^?]+):(?P<verb>\w+)$")
_VERBS: Mapping[str, tuple[Action, bool]] = {
    "generateContent": ("generate", False),
    "streamGenerateContent": ("generate", True),
    "countTokens": ("count", False),
}
_LISTING = re.compile(r"(?:^|/)models(?:/(?P<model>.+))?$")


def recognise(path: str) -> Route | None:
    """What a POST to this path asks for; None when it is none of the four APIs."""
    wanted = path.strip("/")
    for end, route in _ENDS.items():
        if wanted == end or wanted.endswith(f"/{end}"):
            return route
    found = _GEMINI.search(wanted)
    if found and found["verb"] in _VERBS:
        action, streams = _VERBS[found["verb"]]
        return Route(
            api=Api.GEMINI,
            action=action,
            tail=f"/models/{{model}}:{found['verb']}",
            model=found["model"],
            streams=streams,
        )
    return None


def listing(path: str) -> str | None:
    """The model that a GET asks about; empty for the list of all, None when it asks something else."""
    found = _LISTING.search(path.strip("/"))
    return None if found is None else found["model"] or ""


def api_of_listing(path: str, headers: Mapping[str, str]) -> Api:
    """Whose form a list of models is expected in."""
    if "v1beta" in path or "x-goog-api-key" in headers:
        return Api.GEMINI
    return Api.MESSAGES if "anthropic-version" in headers else Api.CHAT


def model_list(api: Api, models: Sequence[str]) -> dict[str, Any]:
    """Models in the form of an API's list. OpenAI's and Anthropic's can be one."""
    if api is Api.GEMINI:
        return {"models": [model_entry(api, name) for name in models]}
    return {
        "object": "list",
        "data": [model_entry(api, name) for name in models],
        "has_more": False,
        "first_id": models[0] if models else None,
        "last_id": models[-1] if models else None,
    }


def model_entry(api: Api, name: str) -> dict[str, Any]:
    """One model as an API describes it."""
    if api is Api.GEMINI:
        verbs = ["generateContent", "streamGenerateContent", "countTokens"]
        return {"name": f"models/{name}", "displayName": name, "supportedGenerationMethods": verbs}
    return {
        "id": name,
        "object": "model",
        "type": "model",
        "created": 0,
        "created_at": "1970-01-01T00:00:00Z",
        "display_name": name,
        "owned_by": name.partition("/")[0],
    }


_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_GEMINI_STATES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}


def error_document(api: Api, status: int, message: str, code: str = "") -> dict[str, Any]:
    """An error as this API's clients expect it. `code` tells programs what the message tells people."""
    if api is Api.MESSAGES:
        return {
            "type": "error",
            "error": {"type": _ANTHROPIC_TYPES.get(status, "api_error"), "message": message},
        }
    if api is Api.GEMINI:
        return {
            "error": {"code": status, "message": message, "status": _GEMINI_STATES.get(status, "INTERNAL")}
        }
    kind = "invalid_request_error" if status < 500 and status != 429 else "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": code or None}}


def error_event(api: Api, status: int, message: str, code: str = "") -> bytes:
    """The same as an event of a stream whose headers are out."""
    document = error_document(api, status, message, code)
    if api is Api.MESSAGES:
        return b"event: error\ndata: " + _compact(document) + b"\n\n"
    if api is Api.RESPONSES:
        response = {
            "id": "resp_proctor",
            "object": "response",
            "created_at": 0,
            "status": "failed",
            "error": {"code": code or "server_error", "message": message},
            "output": [],
        }
        event = {"type": "response.failed", "sequence_number": 0, "response": response}
        return b"event: response.failed\ndata: " + _compact(event) + b"\n\n"
    return b"data: " + _compact(document) + b"\n\n"


def said(body: bytes) -> str:
    """What a provider's error says, in one line; empty when it cannot be read."""
    try:
        found = json.loads(body)
    except ValueError:
        return ""
    found = found[0] if isinstance(found, list) and found else found
    error = found.get("error", found) if isinstance(found, Mapping) else found
    message = error.get("message") if isinstance(error, Mapping) else error
    return " ".join(str(message or "").split())[:300]


def is_model_missing(status: int, body: bytes) -> bool:
    """Whether a provider's answer says that it has no such model."""
    text = body[:4096].lower()
    if status == 404:
        return b"model" in text
    return status == 400 and (b"not a valid model" in text or b"model_not_found" in text)


def is_lasting(status: int, body: bytes) -> bool:
    """Whether asking again cannot help although the status says so: an account without money."""
    return status == 429 and (b"insufficient_quota" in body or b"billing" in body[:4096].lower())


def _compact(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def sdk_environment(base_url: str, token: str) -> Mapping[str, str]:
    """Address and token under the names that the providers' own clients read."""
    return {
        "OPENAI_BASE_URL": f"{base_url}/v1",
        "OPENAI_API_BASE": f"{base_url}/v1",
        "OPENAI_API_KEY": token,
        "ANTHROPIC_BASE_URL": base_url,
        "ANTHROPIC_API_BASE": base_url,
        "ANTHROPIC_API_KEY": token,
        "GOOGLE_GEMINI_BASE_URL": base_url,
        "GEMINI_API_KEY": token,
    }
