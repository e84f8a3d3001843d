"""`/api/tasks/{task}/runs/{rid}/logs`: a run's log by range, or as it grows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse

from proctor.server.auth.authenticate import Access, StreamAccess
from proctor.server.auth.caller import Reader, Shared
from proctor.server.route import Route, answer
from proctor.server.routes.older import RunId, TaskId, index_of, upload_of
from proctor.server.routes.older_shapes import run_shape
from proctor.server.state import State
from proctor.server.submit import older_logs
from proctor.store.service.uploads import Upload
from proctor.store.store import Store

router = APIRouter(prefix="/api", tags=["older API"], route_class=Route)

_LOOK_S = 0.5


@router.get("/tasks/{task}/runs/{rid}/logs", summary="Read the log of a run")
async def read_logs(
    task: TaskId,
    rid: RunId,
    caller: Reader,
    access: StreamAccess,
    shared: Shared,
    offset: Annotated[int, Query(ge=0, le=1 << 50, description="From this byte on.")] = 0,
    length: Annotated[int, Query(ge=1, le=older_logs.MOST_BYTES)] = older_logs.MOST_BYTES,
    tail: Annotated[
        int | None, Query(ge=1, le=older_logs.MOST_BYTES, description="The last so many bytes.")
    ] = None,
    follow: Annotated[bool, Query(description="Stream plain text until the run ends.")] = False,
) -> Response:
    """What agent and verifier printed."""

    def read(store: Store) -> tuple[Upload, dict[str, Any]]:
        upload = upload_of(store, task, caller)
        index = index_of(upload, rid)
        found = store.service.rollouts.of(upload.run_id, index) if upload.run_id else []
        shape = run_shape(upload, found[0] if found else None, shared.blobs, index=index)
        text = (
            "" if follow else older_logs.text(store, upload, index, offset=offset, length=length, tail=tail)
        )
        return upload, {
            "run_id": shape["id"],
            "task_id": task,
            "run_number": shape["run_number"],
            "status": shape["status"],
            "logs": text,
            "error_message": shape["error_message"],
        }

    upload, found = await shared.store(read)
    if not follow:
        return answer(found)
    return StreamingResponse(
        _followed(shared, access, upload.id, found["run_number"] - 1, offset),
        media_type="text/plain; charset=utf-8",
        headers={"cache-control": "no-store"},
    )


async def _followed(
    state: State, access: Access, upload_id: str, index: int, offset: int
) -> AsyncIterator[bytes]:
    """What is new, again and again, until the run has ended or the server stops."""

    def more(store: Store) -> tuple[bytes, bool]:
        upload = store.service.uploads.find(upload_id, None)
        if upload is None:
            return b"", True
        found = store.service.rollouts.of(upload.run_id, index) if upload.run_id else []
        over = not found or found[0].state in {"done", "cancelled"}
        files = older_logs.files_of(store, upload, index)
        return b"".join(older_logs.pieces(files, offset, older_logs.MOST_BYTES)), over

    while not state.stopping.is_set():
        piece, over = await state.store(more)
        if not await access.lasts():
            return
        offset += len(piece)
        if piece:
            yield piece
        elif over:
            return
        else:
            await asyncio.sleep(_LOOK_S)
