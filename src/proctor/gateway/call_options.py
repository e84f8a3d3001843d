"""What a request asks for, and what must differ in the one that its provider gets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from proctor.gateway.apis import Api, Route
from proctor.gateway.body import LARGE, REMOVED, Body, BodyError
from proctor.gateway.hosted_tools import allowed_tools, check_addresses
from proctor.gateway.output_limit import OutputLimit
from proctor.gateway.request_fields import HOSTED_FIELDS, check_fields

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What of a request the gateway acts on."""

    model: str
    streamed: bool
    limit: OutputLimit
    adds_usage: bool
    """Whether the agent did not ask for the usage of a stream: it is asked for, and not passed on."""
    references: int = 0
    """How often the prompt names what the provider keeps of earlier calls."""


def wanted(route: Route, body: Body) -> Wanted:
    """Model, stream and limits of a request; BodyError when a limit is none, or it names two models."""
    values = body.values
    if route.model:
        _check_model(route.model, values)
    if not isinstance(values.get("stream"), bool | None):
        raise BodyError("'stream' is true or false")
    streamed = route.streams if route.api is Api.GEMINI else values.get("stream") is True
    options = values.get("stream_options")
    asks = isinstance(options, Mapping) and options.get("include_usage") is True
    return Wanted(
        model=route.model or str(values.get("model") or ""),
        streamed=streamed,
        limit=OutputLimit.read(route.api, values),
        adds_usage=route.api is Api.CHAT and streamed and not asks,
        references=_references(values) if route.api is Api.RESPONSES else 0,
    )


def _references(values: Mapping[str, Any]) -> int:
    items = values.get("input")
    named = isinstance(items, list) and sum(
        isinstance(item, Mapping)
        and (item.get("type") == "item_reference" or not item.keys() & {"type", "role"})
        for item in items
    )
    return bool(values.get("previous_response_id")) + named


def upstream_changes(
    route: Route, body: Body, asked: Wanted, model: str, *, hosted: bool, fields: Collection[str] = ()
) -> dict[str, Any]:
    """What must differ in the body that goes to the provider: the model's name there, usage, hosted tools.

    BodyError when the request has what is not passed on; `fields` are those that the provider adds.
    """
    values = body.values
    changes: dict[str, Any] = {}
    check_fields(route, values, hosted=hosted, more=fields)
    if route.model:
        changes |= {"model": REMOVED} if "model" in values else {}  # the path has it
    elif values.get("model") != model:
        changes["model"] = model  # also where there is none: a router would take its account's usual one
    if asked.adds_usage:
        options = values.get("stream_options")
        changes["stream_options"] = {
            **(options if isinstance(options, Mapping) else {}),
            "include_usage": True,
        }
    tools = values.get("tools")
    if tools is not None:
        allowed = allowed_tools(route.api, tools, hosted=hosted)
        if allowed != tools:
            changes["tools"] = allowed or REMOVED
    if not hosted:
        changes |= {name: REMOVED for name in HOSTED_FIELDS if name in values}
        check_addresses(route.api, values)
    return changes


def read_request(route: Route, data: bytes) -> tuple[Body, Wanted]:
    """A body, and what it asks for; BodyError."""
    body = Body.read(data)
    return body, wanted(route, body)


def changed_body(
    route: Route, body: Body, asks: Wanted, model: str, *, hosted: bool, fields: Collection[str]
) -> bytes | None:
    """The body as the provider gets it; None: as it came."""
    changes = upstream_changes(route, body, asks, model, hosted=hosted, fields=fields)
    return body.changed(changes) if changes else None


async def aside(data: bytes, work: Callable[[], T]) -> T:
    """What is to be done with a body: at once, or in a thread when it is large."""
    return await asyncio.to_thread(work) if len(data) > LARGE else work()


def _check_model(model: str, values: Mapping[str, Any]) -> None:
    """The model in the path is the one that was checked."""
    inner = (values.get("generateContentRequest"), values.get("generate_content_request"))
    for holder in (values, *inner):
        if isinstance(holder, Mapping) and holder.get("model") is not None:
            name = str(holder["model"])
            if name.rpartition("/")[2] != model.rpartition("/")[2]:
                raise BodyError(f"the body names the model '{name[:100]}' and the address '{model[:100]}'")
