"""`/api/trials/{run}/{index}/logs`: logs by byte range, as they grow, and searched."""

from __future__ import annotations

import asyncio
import codecs
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Query
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from proctor.render.trial_logs import Follower, logs_in
from proctor.server.auth.authenticate import Access, StreamAccess
from proctor.server.auth.caller import Reader, Shared, VisibleRun
from proctor.server.problem import Problem
from proctor.server.route import Route, answer
from proctor.server.routes.reading.events import LONGEST_S, QUIET_S, STREAM
from proctor.server.routes.reading.trials import Attempt
from proctor.server.state import State
from proctor.server.trial.attempt_files import AttemptFiles, files_of
from proctor.server.trial.byte_ranges import MOST_BYTES, Part, part_of, read_part
from proctor.server.trial.logs import listed_logs, opened_log, search
from proctor.store.store import Store

router = APIRouter(prefix="/api/trials/{run}/{index}/logs", tags=["logs"], route_class=Route)

LOOK_S = 0.25


@router.get("", summary="The logs of an attempt")
async def list_logs(
    caller: Reader, shared: Shared, run: VisibleRun, index: int, attempt: Attempt = None
) -> Response:
    """Their names and sizes; `live` while they grow."""
    return answer(listed_logs(await shared.store(files_of, shared, run, index, attempt)))


@router.get("/{name}", summary="Part of a log", response_class=PlainTextResponse)
async def read_log(
    caller: Reader,
    shared: Shared,
    run: VisibleRun,
    index: int,
    name: str,
    attempt: Attempt = None,
    offset: Annotated[int, Query(ge=0)] = 0,
    length: Annotated[int | None, Query(ge=0, le=MOST_BYTES)] = None,
    tail: Annotated[int | None, Query(ge=0, le=MOST_BYTES, description="The last so many bytes.")] = None,
    wanted: Annotated[str | None, Header(alias="range", include_in_schema=False)] = None,
) -> Response:
    """At most 1 MiB, by `offset` and `length`, by `tail` or by a Range header. `X-Log-Size` is all of it."""

    def read(files: AttemptFiles) -> Part:
        with opened_log(files, name) as (file, size):
            return read_part(file, size, offset=offset, length=length, tail=tail, wanted=wanted)

    return part_of(await shared.store(_with_files, shared, run, index, attempt, read), name)


@router.get("/{name}/search", summary="Search a log")
async def search_log(
    caller: Reader,
    shared: Shared,
    run: VisibleRun,
    index: int,
    name: str,
    q: Annotated[str, Query(min_length=1, max_length=200)],
    attempt: Attempt = None,
    start: Annotated[
        str | None, Query(alias="from", max_length=40, description="`next` of the last.")
    ] = None,
) -> Response:
    """Lines that have a text, at most 200; `next` says where to go on."""

    def look(files: AttemptFiles) -> dict[str, Any]:
        with opened_log(files, name) as (file, _):
            return search(file, q, start)

    return answer(await shared.heavy(_with_files, shared, run, index, attempt, look))


@router.get("/{name}/follow", summary="A log as it grows", response_class=StreamingResponse)
async def follow_log(
    caller: Reader,
    access: StreamAccess,
    shared: Shared,
    run: VisibleRun,
    index: int,
    name: str,
    attempt: Attempt = None,
    lines: Annotated[int, Query(ge=0, le=10_000, description="Begin with the last so many lines.")] = 200,
) -> StreamingResponse:
    """Server-sent events: `data` is `{text}`; the last one is `end`, when the attempt has ended."""
    files = await shared.store(files_of, shared, run, index, attempt)
    stream = _follow(shared, access, run, index, files, name, lines)
    return StreamingResponse(stream, media_type="text/event-stream", headers=STREAM)


async def _follow(
    shared: State, access: Access, run: str, index: int, files: AttemptFiles, name: str, lines: int
) -> AsyncIterator[bytes]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    follower: Follower | None = None
    began = said = time.monotonic()
    try:
        while not shared.stopping.is_set() and time.monotonic() - began < LONGEST_S:
            now = await shared.store(files_of, shared, run, index, files.number)
            follower = follower or _follower(files, name, lines)
            text = decoder.decode(await asyncio.to_thread(_more, follower)) if follower else ""
            if not await access.lasts():
                return  # not `end`: whoever may goes on
            if text:
                said = time.monotonic()
                yield b"data: %s\n\n" % msgspec.json.encode({"text": text})
            elif time.monotonic() - said > QUIET_S:
                said = time.monotonic()
                yield b": still here\n\n"
            if not now.live:
                yield b"event: end\ndata: {}\n\n"
                return
            await asyncio.sleep(LOOK_S)
    except Problem:
        yield b"event: end\ndata: {}\n\n"  # the run was removed meanwhile
    finally:
        if follower:
            follower.close()


def _follower(files: AttemptFiles, name: str, lines: int) -> Follower | None:
    found = next((log for log in logs_in(files.folder) if log.name == name), None)
    return Follower(found, tail=lines) if found else None


def _more(follower: Follower) -> bytes:
    return b"".join(follower.more())


def _with_files(store: Store, shared: State, run: str, index: int, attempt: int | None, make: Any) -> Any:
    return make(files_of(store, shared, run, index, attempt))
