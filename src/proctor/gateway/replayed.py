"""Send an agent what a tape has for its request: at once, or as fast as it came."""

from __future__ import annotations

import asyncio
import time

from proctor.gateway.apis import Route
from proctor.gateway.call_options import Wanted
from proctor.gateway.client import Client
from proctor.gateway.meter import Call
from proctor.gateway.replay import DivergedError, Replay
from proctor.gateway.tape import Entry
from proctor.gateway.tokens import Access


async def play(
    replay: Replay, access: Access, route: Route, asks: Wanted, model: str, text: str, client: Client
) -> None:
    """Answer one request from the tape."""
    started, started_at = time.monotonic(), time.time()
    try:
        entry = replay.answer(route.api, route.action, model, text.replace(access.token, "[redacted:token]"))
    except DivergedError as error:
        await client.fail(400, f"Proctor: {error}", "replay_diverged")
        access.exhaust(str(error))
        return
    await _send(entry, client, started if replay.recorded_speed else None)
    if route.action != "generate":
        return
    access.add(
        Call(
            model=model,
            api=route.api,
            streamed=asks.streamed,
            status=entry.status,
            usage=entry.usage,
            nano_usd=0,
            request_bytes=len(text.encode()),
            response_bytes=len(entry.response),
            started_at=started_at,
            first_token_s=time.monotonic() - started,
            waited_s=0.0,
            worked_s=time.monotonic() - started,
            retries=0,
        )
    )


async def _send(entry: Entry, client: Client, started: float | None) -> None:
    if not entry.streamed:
        if started is not None and entry.chunks:
            await asyncio.sleep(max(0.0, started + entry.chunks[-1][0] - time.monotonic()))
        await client.whole(entry.status, entry.headers, entry.response)
        return
    await client.begin(entry.status, entry.headers)
    at = 0
    for number, (after_s, size) in enumerate(entry.chunks, 1):
        if started is not None:
            await asyncio.sleep(max(0.0, started + after_s - time.monotonic()))
        end = at + size if number < len(entry.chunks) else len(entry.response)
        await client.piece(entry.response[at:end])
        at = end
