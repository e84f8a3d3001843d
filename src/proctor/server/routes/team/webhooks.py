"""`/api/webhooks`: addresses that are told when something happens to a run. For admins."""

from __future__ import annotations

import json
import secrets
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from proctor.server.auth.caller import Admin, Caller, Shared
from proctor.server.idempotency import Keyed
from proctor.server.listing import Paged
from proctor.server.problem import Problem
from proctor.server.route import Route, answer
from proctor.server.routes.team.owned import Things
from proctor.server.state import State
from proctor.server.submit.making import project_for
from proctor.server.team.delivery import signed
from proctor.server.team.outside import Outside, check_address
from proctor.store.store import Store
from proctor.store.team.webhooks import RunEvent, Webhook

router = APIRouter(prefix="/api/webhooks", tags=["webhooks"], route_class=Route)

WebhookId = Annotated[str, Path(max_length=64)]
Event = Literal[
    "run.queued",
    "run.started",
    "run.finished",
    "run.judged",
    "run.paused",
    "run.interrupted",
    "run.cancelled",
    "run.failed",
]


class WebhookBody(BaseModel):
    """Whom to tell what."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"url": "https://example.org/proctor", "events": ["run.finished"]}]},
    )

    url: str = Field(
        min_length=1,
        max_length=2000,
        description="Where to send. Of a comment: the address of the comments, with `{pr}` for the number.",
    )
    kind: Literal["event", "comment"] = Field(
        default="event",
        description="`event`: a signed JSON object. `comment`: the verdict as a comment of a pull request.",
    )
    events: list[Event] = Field(default=["run.finished", "run.failed"], min_length=1, max_length=8)
    secret: str | None = Field(
        default=None,
        min_length=8,
        max_length=1000,
        description="Signs events; of a comment the token of the other server. [made, and shown once]",
    )
    project: str | None = Field(default=None, max_length=64, description="For callers of all projects.")


class WebhookChange(BaseModel):
    """Whether a webhook is told anything."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"enabled": False}]})

    enabled: bool


@router.get("", summary="List webhooks")
async def list_webhooks(caller: Admin, shared: Shared, page: Paged) -> Response:
    """With what came of the last delivery; the secrets are never shown."""
    return answer(await shared.store(_WEBHOOKS.page, caller, page))


@router.post("", status_code=201, summary="Add a webhook")
async def add_webhook(body: WebhookBody, caller: Admin, shared: Shared, _: Keyed) -> Response:
    """It is told of what happens from now on. A secret that the server makes is in this answer only."""
    check_address(body.url)
    if body.kind == "comment" and body.secret is None:
        raise Problem("invalid", "secret: a comment needs the token of the server that it is written to")
    made = "" if body.secret else f"ws_{secrets.token_urlsafe(24)}"
    found = await shared.store(_add, shared, caller, body, body.secret or made)
    more = {"secret": made} if made else {}
    return answer({**_shown(found), **more}, 201, location=f"/api/webhooks/{found.id}")


def _add(store: Store, state: State, caller: Caller, body: WebhookBody, secret: str) -> Webhook:
    home = project_for(store, caller, body.project)
    webhook_id = f"wh_{secrets.token_hex(8)}"
    events = ("run.judged",) if body.kind == "comment" else tuple(dict.fromkeys(body.events))
    sealed = state.vault.seal(secret)
    store.service.webhooks.add(
        Webhook(webhook_id, home, caller.user, 0.0, body.kind, body.url, events, sealed, True, 0)
    )
    made = _WEBHOOKS.find(store, webhook_id, caller)
    _WEBHOOKS.note(store, caller, "add", made, kind=body.kind)
    return made


@router.patch("/{webhook}", summary="Switch a webhook on or off")
async def change_webhook(webhook: WebhookId, body: WebhookChange, caller: Admin, shared: Shared) -> Response:
    """What happens while it is off it is never told."""

    def change(store: Store) -> dict[str, Any]:
        found = _WEBHOOKS.find(store, webhook, caller)
        store.service.webhooks.enable(found.id, enabled=body.enabled)
        _WEBHOOKS.note(store, caller, "change", found, enabled=body.enabled)
        return _shown(_WEBHOOKS.find(store, webhook, caller))

    return answer(await shared.store(change))


@router.post("/{webhook}/test", summary="Send a test to a webhook now")
async def test_webhook(webhook: WebhookId, caller: Admin, shared: Shared) -> Response:
    """A signed event `test`; of a comment only whether the comments can be read."""
    found = await shared.store(_WEBHOOKS.find, webhook, caller)
    secret = shared.vault.open(found.secret)
    outside = Outside(shared.settings.webhook_allow, shared.settings.ca_bundle)
    if found.kind == "comment":
        said = await outside.send(
            "GET", found.url.replace("{pr}", "1"), None, {"Authorization": f"Bearer {secret}"}
        )
    else:
        event = RunEvent(0, "", shared.clock(), "test", "{}")
        body = json.dumps({"id": 0, "event": "test", "at": event.at, "data": {}, "run": None}).encode()
        said = await outside.send("POST", found.url, body, signed(found, event, body, secret, event.at))
    await shared.store(lambda store: store.service.webhooks.note(found.id, f"test: {said.said}"))
    return answer({"delivered": said.good, "status": said.status, "said": said.said})


@router.delete("/{webhook}", status_code=204, summary="Remove a webhook")
async def remove_webhook(webhook: WebhookId, caller: Admin, shared: Shared, _: Keyed) -> Response:
    """It is told nothing more."""
    await shared.store(_WEBHOOKS.remove, webhook, caller)
    return Response(status_code=204)


def _shown(webhook: Webhook) -> dict[str, Any]:
    names = ("id", "project", "owner", "created_at", "kind", "url", "enabled", "last_at", "last_status")
    return {name: getattr(webhook, name) for name in names} | {"events": list(webhook.events)}


_WEBHOOKS = Things("webhook", lambda store: store.service.webhooks, _shown)
