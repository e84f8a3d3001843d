"""Tell webhooks what happened to runs: signed, tried again, one after the other for each webhook.

Webhooks are told at the same time, so that one that hangs keeps nobody else waiting.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
from dataclasses import dataclass, field
from typing import Any

from proctor.errors import ProctorError, StoreError
from proctor.server.state import State
from proctor.server.team.comment import post_comment
from proctor.server.team.outside import Answer, Outside
from proctor.store.store import Store
from proctor.store.team.webhooks import RunEvent, Webhook

_log = logging.getLogger("proctor.server")

PAUSES_S = (1.0, 5.0, 30.0, 120.0, 600.0)
"""Between the tries for one event; after the last one it is given up."""
MOST_AT_ONCE = 64
"""Deliveries on their way at a time."""
MOST_PER_PROJECT = 16
"""Of one project: a project whose webhooks all hang leaves room for the others."""


@dataclass(slots=True)
class Deliveries:
    """How often each webhook was tried for its next event. A restart begins to count again."""

    state: State
    tries: dict[tuple[str, int], int] = field(default_factory=dict)
    not_before: dict[str, float] = field(default_factory=dict)
    _running: dict[str, asyncio.Task[int]] = field(default_factory=dict)
    """Webhook → its delivery that is on its way: there is never a second one."""
    _places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_AT_ONCE))
    _project_places: dict[str, asyncio.Semaphore] = field(default_factory=dict)

    async def begin(self) -> list[asyncio.Task[int]]:
        """Begin to tell every webhook that is free what it does not know yet."""
        hooks = await self.state.store(lambda store: store.service.webhooks.enabled())
        now = self.state.clock()
        due = [
            hook
            for hook in hooks
            if hook.id not in self._running and self.not_before.get(hook.id, 0.0) <= now
        ]
        for hook in due:
            task = asyncio.create_task(self._in_turn(hook))
            self._running[hook.id] = task
            task.add_done_callback(lambda _, ended=hook.id: self._running.pop(ended))  # type: ignore[misc]
        return [self._running[hook.id] for hook in due]

    async def deliver(self) -> int:
        """Tell every webhook that is free its next event; how many events were told."""
        return sum(await asyncio.gather(*await self.begin()))

    async def close(self) -> None:
        """End what is on its way; it is told again by the next server."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _in_turn(self, hook: Webhook) -> int:
        project = self._project_places.setdefault(hook.project, asyncio.Semaphore(MOST_PER_PROJECT))
        try:
            async with project, self._places:
                return await self._next(hook)
        except StoreError as error:
            _log.warning("%s", error)
        except Exception:  # noqa: BLE001 - told in the log; the others are told all the same
            _log.exception("webhook %s", hook.id)
        return 0

    async def _next(self, hook: Webhook) -> int:
        events, last = await self.state.store(lambda store: store.service.webhooks.next(hook))
        event = next((each for each in events if each.kind in hook.events), None)
        if event is None:
            if last != hook.after:
                await self._move(hook, last)
            return 0
        answer = await send(self.state, hook, event)
        if answer.good:
            await self._move(hook, event.id, answer.said)
            self.tries.pop((hook.id, event.id), None)
            return 1
        await self._failed(hook, event, answer)
        return 0

    async def _failed(self, hook: Webhook, event: RunEvent, answer: Answer) -> None:
        tried = self.tries.get((hook.id, event.id), 0)
        if tried >= len(PAUSES_S) or answer.final:
            said = f"gave up on event {event.id} ({event.kind}): {answer.said}"
            _log.warning("webhook %s %s", hook.id, said)
            self.tries.pop((hook.id, event.id), None)
            await self._move(hook, event.id, said)
            return
        self.tries[hook.id, event.id] = tried + 1
        self.not_before[hook.id] = self.state.clock() + PAUSES_S[tried]
        await self.state.store(lambda store: store.service.webhooks.note(hook.id, answer.said))

    async def _move(self, hook: Webhook, after: int, said: str = "") -> None:
        await self.state.store(lambda store: store.service.webhooks.move(hook, after, said))


async def send(state: State, hook: Webhook, event: RunEvent) -> Answer:
    """Tell one webhook of one event."""
    try:
        about = await state.store(_about, event, state.settings.serve_url)
        secret = state.vault.open(hook.secret)
        outside = Outside(state.settings.webhook_allow, state.settings.ca_bundle)
        if hook.kind == "comment":
            return await post_comment(outside, hook.url, secret, about)
        about["run"].pop("folder")  # a place on this machine
        body = state.places.hide(json.dumps(about, separators=(",", ":")).encode())
        return await outside.send("POST", hook.url, body, signed(hook, event, body, secret, state.clock()))
    except StoreError as error:
        return Answer(0, f"{error}")
    except ProctorError as error:
        return Answer(0, str(error), final=True)


def signed(hook: Webhook, event: RunEvent, body: bytes, secret: str, now: float) -> dict[str, str]:
    """Headers that prove who sent a body, and when."""
    stamp = str(int(now))
    digest = hmac.new(secret.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
    return {
        "Content-Type": "application/json",
        "X-Proctor-Event": event.kind,
        "X-Proctor-Delivery": f"{hook.id}-{event.id}",
        "X-Proctor-Signature": f"t={stamp},v1={digest}",
    }


def _about(store: Store, event: RunEvent, base: str) -> dict[str, Any]:
    info = store.run(event.run_id)
    place = store.service.ownership.place(event.run_id)
    run = {
        "id": info.id,
        "name": info.name,
        "kind": info.kind,
        "status": info.status.value,
        "project": place.project,
        "owner": place.owner,
        "total": info.total,
        "done": info.done,
        "counts": dict(info.counts),
        "tags": list(info.tags),
        "folder": info.folder,
        "url": f"{base.rstrip('/')}/runs/{info.id}" if base else "",
    }
    return {
        "id": event.id,
        "event": event.kind,
        "at": event.at,
        "data": json.loads(event.data),
        "run": run,
    }
