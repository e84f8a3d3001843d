"""The older API: tasks and their runs, with the shapes that its clients know."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request
from fastapi import Path as InPath
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from proctor.server.auth.caller import Caller, Reader, Runner, Shared
from proctor.server.idempotency import Keyed
from proctor.server.problem import Problem
from proctor.server.route import Route, answer
from proctor.server.routes.older_shapes import run_shape, runs_shape, task_shape
from proctor.server.state import State
from proctor.server.submit import older, older_logs
from proctor.store.service.rollouts import Rollout
from proctor.store.service.uploads import Upload
from proctor.store.store import Store

router = APIRouter(prefix="/api", tags=["older API"], route_class=Route)

TaskId = Annotated[str, InPath(max_length=64, description="The id of an upload.")]
RunId = Annotated[str, InPath(max_length=80, description="`TASK-NUMBER`, as the runs of a task say.")]
Status = Literal["pending", "running", "completed", "failed", "cancelled"]
Seconds = Annotated[
    float | None, Query(gt=0, le=86_400, description="The most that each run's agent may take.")
]
ProviderKey = Annotated[
    str | None, Header(max_length=1000, description="The key of the model's provider, for these runs only.")
]


class ExecuteBody(BaseModel):
    """How to execute."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"timeout_seconds": 1800}]})

    timeout_seconds: float | None = Field(default=None, gt=0, le=86_400)


@router.get("/tasks", summary="List tasks, newest first")
async def list_tasks(
    request: Request,
    caller: Reader,
    shared: Shared,
    skip: Annotated[int, Query(ge=0, le=1 << 31)] = 0,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    status: Status | None = None,
) -> Response:
    """A bare list; the `Link` header names the next page."""

    def read(store: Store) -> tuple[list[dict[str, Any]], bool]:
        found = store.service.uploads.page(caller.project, status=status or "", skip=skip, limit=limit + 1)
        return [_task(store, each) for each in found[:limit]], len(found) > limit

    items, more = await shared.store(read)
    query = f"skip={skip + limit}&limit={limit}" + (f"&status={status}" if status else "")
    return answer(items, **({"link": f'<{request.url.path}?{query}>; rel="next"'} if more else {}))


@router.get("/tasks/{task}", summary="Show a task with its runs")
async def read_task(task: TaskId, caller: Reader, shared: Shared) -> Response:
    """The task and `runs`."""

    def read(store: Store) -> dict[str, Any]:
        upload = upload_of(store, task, caller)
        return _task(store, upload) | {"runs": runs_shape(upload, _rollouts(store, upload), shared.blobs)}

    return answer(await shared.store(read))


@router.delete("/tasks/{task}", status_code=204, summary="Delete a task and its runs")
async def delete_task(task: TaskId, caller: Runner, shared: Shared, _: Keyed) -> Response:
    """A task that is running is refused: cancel it first."""
    await shared.store(lambda store: older.delete(store, shared, caller, upload_of(store, task, caller)))
    return Response(status_code=204)


@router.post("/tasks/{task}/execute-async", status_code=202, summary="Execute the runs of a task")
async def execute_task(
    task: TaskId,
    caller: Runner,
    shared: Shared,
    _: Keyed,
    body: ExecuteBody | None = None,
    timeout_seconds: Seconds = None,
    x_provider_key: ProviderKey = None,
) -> Response:
    """Every run that has no result yet is queued; results are kept."""
    timeout_s = (body.timeout_seconds if body else None) or timeout_seconds
    return await _queued(shared, caller, task, None, timeout_s, x_provider_key)


@router.post("/tasks/{task}/runs/{rid}/execute-async", status_code=202, summary="Execute one run of a task")
async def execute_run(
    task: TaskId,
    rid: RunId,
    caller: Runner,
    shared: Shared,
    _: Keyed,
    body: ExecuteBody | None = None,
    timeout_seconds: Seconds = None,
    x_provider_key: ProviderKey = None,
) -> Response:
    """The others stay as they are."""
    timeout_s = (body.timeout_seconds if body else None) or timeout_seconds
    return await _queued(shared, caller, task, rid, timeout_s, x_provider_key)


async def _queued(
    state: State, caller: Caller, task: str, rid: str | None, timeout_s: float | None, key: str | None
) -> Response:
    def queue(store: Store) -> dict[str, Any]:
        upload = upload_of(store, task, caller)
        index = None if rid is None else index_of(upload, rid)
        number = older.execute(store, state, caller, upload, index=index, timeout_s=timeout_s, key=key)
        return _asked(store, upload.id, number, "queued")

    found = await state.submitting(queue)
    state.wake()
    return answer(found, 202)


@router.post("/tasks/{task}/retry", status_code=202, summary="Try again what was lost")
async def retry_task(task: TaskId, caller: Runner, shared: Shared, _: Keyed) -> Response:
    """Runs that ended with an error are tried again; passed, failed and timed-out runs are results."""

    def retry(store: Store) -> dict[str, Any]:
        upload = upload_of(store, task, caller)
        return _asked(store, upload.id, older.retry(store, caller, upload), "tried again")

    found = await shared.store(retry)
    shared.wake()
    return answer(found, 202)


@router.post("/tasks/{task}/cancel", summary="Cancel the runs of a task")
async def cancel_task(task: TaskId, caller: Runner, shared: Shared, _: Keyed) -> Response:
    """What has ended is kept."""

    def cancel(store: Store) -> dict[str, Any]:
        upload = upload_of(store, task, caller)
        older.cancel(store, shared, caller, upload)
        return _task(store, upload)

    found = await shared.store(cancel)
    shared.wake()
    return answer(found)


@router.get("/tasks/{task}/runs", summary="List the runs of a task")
async def list_task_runs(task: TaskId, caller: Reader, shared: Shared) -> Response:
    """A bare list; `logs` is only in the routes of one run."""

    def read(store: Store) -> list[dict[str, Any]]:
        upload = upload_of(store, task, caller)
        return runs_shape(upload, _rollouts(store, upload), shared.blobs)

    return answer(await shared.store(read))


@router.get("/tasks/{task}/runs/{rid}", summary="Show one run of a task")
async def read_task_run(task: TaskId, rid: RunId, caller: Reader, shared: Shared) -> Response:
    """With the end of its log."""

    def read(store: Store) -> dict[str, Any]:
        upload = upload_of(store, task, caller)
        index = index_of(upload, rid)
        found = _rollouts(store, upload, index)
        shape = run_shape(upload, found[0] if found else None, shared.blobs, index=index)
        return {**shape, "logs": older_logs.text(store, upload, index, tail=65_536)}

    return answer(await shared.store(read))


def _asked(store: Store, task: str, number: int, what: str) -> dict[str, Any]:
    upload = store.service.uploads.find(task, None)
    assert upload is not None
    return {
        "message": f"{number} {'run is' if number == 1 else 'runs are'} {what}",
        "task_id": task,
        "runs_queued": number,
        "status": _task(store, upload)["status"],
        "poll_url": f"/api/tasks/{task}",
    }


def upload_of(store: Store, task: str, caller: Caller) -> Upload:
    """The upload that a path names, where the caller may see it."""
    found = store.service.uploads.find(task, caller.project)
    if found is None:
        raise Problem("not_found", f"There is no task '{task}', or not in your project")
    return found


def _task(store: Store, upload: Upload) -> dict[str, Any]:
    if upload.run_id is None:
        return task_shape(upload, None)
    judged = store.service.rollouts.judged(run_id=upload.run_id)
    place = store.service.ownership.place(upload.run_id)
    return task_shape(upload, store.run(upload.run_id), place, judged=judged)


def _rollouts(store: Store, upload: Upload, index: int = -1) -> list[Rollout]:
    return store.service.rollouts.of(upload.run_id, index) if upload.run_id else []


def index_of(upload: Upload, rid: str) -> int:
    """Which rollout a run's id means."""
    task, _, number = rid.rpartition("-")
    given = number if task == upload.id else rid
    if not given.isdecimal() or len(given) > 6 or not 1 <= int(given) <= upload.num_runs:
        raise Problem("not_found", f"The task has no run '{rid}'")
    return int(given) - 1
