"""`/api/events`: what happens, as it happens."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from fastapi import APIRouter, Header, Query
from starlette.responses import StreamingResponse

from proctor.server.auth.authenticate import Access, StreamAccess
from proctor.server.auth.caller import Caller, Reader, Shared
from proctor.server.problem import Problem
from proctor.server.route import Route
from proctor.server.state import State
from proctor.server.stream import PAGE, Told, told
from proctor.store.store import Store

router = APIRouter(prefix="/api", tags=["events"], route_class=Route)

_EVENT_ID = re.compile(r"[0-9]{1,19}")
EVERY_S = 0.1
"""At most one batch in this time."""
QUIET_S = 15.0
"""A comment after so long without an event, so that nobody between takes the line for dead."""
LONGEST_S = 3600.0
"""A stream ends after this time and is opened again, with whatever token is good then."""
STREAM = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@router.get("/events", summary="Everything that happens, as a stream", response_class=StreamingResponse)
async def follow_events(
    caller: Reader,
    access: StreamAccess,
    shared: Shared,
    after: Annotated[int | None, Query(ge=0, description="Go on after this event. [from now on]")] = None,
    run: Annotated[str | None, Query(max_length=200, description="Only events of this run.")] = None,
    last_event_id: Annotated[str | None, Header(description="As `after`; browsers send it.")] = None,
) -> StreamingResponse:
    """Server-sent events: `id`, `event` (its kind) and `data`: `{id, run, at, kind, index, data}`.

    The first is `stream.open`, with the id from which one may go on.
    """
    run_id = await shared.store(_run, run, caller.project) if run is not None else None
    if run is not None and run_id is None:
        raise Problem("not_found", f"There is no run '{run}', or not in your project")
    resumed = int(last_event_id) if last_event_id and _EVENT_ID.fullmatch(last_event_id) else None
    place = resumed if resumed is not None else after
    stream = _stream(shared, caller, access, place if place is None else min(place, 1 << 62), run_id)
    return StreamingResponse(stream, media_type="text/event-stream", headers=STREAM)


async def _stream(
    shared: State, caller: Caller, access: Access, place: int | None, run_id: str | None
) -> AsyncIterator[bytes]:
    async with shared.events as hub:
        if hub.newest < 0:
            return  # the server stops
        last = hub.newest if place is None else place
        yield _opened(last, shared.clock())
        began = said = time.monotonic()
        while not shared.stopping.is_set() and time.monotonic() - began < LONGEST_S:
            newest = hub.newest
            found = hub.after(last)
            if found is None:
                found = await shared.store(_after, last, run_id)
                last = max(last, newest) if not found else last
            if not await access.lasts():
                return
            last = found[-1].id if found else last
            lines = [each.line for each in found if _seen(each, caller, run_id)]
            if lines:
                said = time.monotonic()
                told_lines = b"".join(lines)
                yield told_lines if caller.on_machine else shared.places.hide(told_lines)
            if found:
                await asyncio.sleep(EVERY_S)
                continue
            await hub.changed(1.0)
            if time.monotonic() - said > QUIET_S:
                said = time.monotonic()
                yield b": still here\n\n"


def _opened(last: int, now: float) -> bytes:
    about = {"id": last, "run": "", "at": now, "kind": "stream.open", "index": None, "data": {}}
    return b"retry: 1000\nid: %d\nevent: stream.open\ndata: %s\n\n" % (last, msgspec.json.encode(about))


def _seen(event: Told, caller: Caller, run_id: str | None) -> bool:
    return caller.sees(event.project) and run_id in (None, event.run_id)


def _run(store: Store, ref: str, project: str | None) -> str | None:
    return store.service.ownership.find(ref, project)


def _after(store: Store, last: int, run_id: str | None) -> list[Told]:
    return [told(each) for each in store.views.events.after(last, limit=PAGE, run_id=run_id)]
