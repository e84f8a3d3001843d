"""`POST /api/tasks` and what was uploaded, as newer pages see it: `/api/uploads`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, File, Form, Query, UploadFile
from fastapi import Path as InPath
from starlette.responses import Response

from proctor.server.auth.caller import Caller, Reader, Runner, Shared
from proctor.server.idempotency import Keyed
from proctor.server.listing import Paged, listed
from proctor.server.problem import Problem
from proctor.server.route import Route, answer
from proctor.server.routes.older_shapes import task_shape
from proctor.server.state import State
from proctor.server.submit import making
from proctor.server.submit.reading import Submission
from proctor.server.text import Line
from proctor.server.upload import MOST_BYTES, Uploading, keep
from proctor.store.service.uploads import Upload
from proctor.store.store import Store

router = APIRouter(prefix="/api", tags=["tasks"], route_class=Route)

UploadId = Annotated[str, InPath(max_length=64)]
_PIECE = 1 << 20


@router.post("/tasks", status_code=201, summary="Upload a task as a ZIP")
async def upload_task(
    caller: Runner,
    shared: Shared,
    _: Keyed,
    file: Annotated[UploadFile, File(description="The ZIP of one task, at most 100 MB.")],
    name: Annotated[Line | None, Form(max_length=200)] = None,
    description: Annotated[str | None, Form(max_length=20_000)] = None,
    model: Annotated[Line | None, Form(max_length=200)] = None,
    agent: Annotated[Line | None, Form(max_length=200)] = None,
    num_runs: Annotated[int | None, Form(ge=1, le=100)] = None,
    project: Annotated[str | None, Form(max_length=64)] = None,
    query_name: Annotated[Line | None, Query(alias="name", max_length=200)] = None,
    query_model: Annotated[Line | None, Query(alias="model", max_length=200)] = None,
    query_agent: Annotated[Line | None, Query(alias="agent", max_length=200)] = None,
    query_runs: Annotated[int | None, Query(alias="num_runs", ge=1, le=100)] = None,
    check: Annotated[Literal["oracle"] | None, Query(description="Run the author's solution first.")] = None,
) -> Response:
    """Settings may be fields of the form or parameters of the address."""
    given = Uploading(
        filename=file.filename or "task.zip",
        name=name or query_name or "",
        description=description or "",
        agent=agent or query_agent or "terminus-2",
        model=model or query_model or "",
        num_runs=num_runs or query_runs or 10,
        project=project,
    )
    archive = await _to_disk(file)
    try:
        found = await shared.submitting(_keep, shared, caller, archive, given, check)
    finally:
        archive.unlink(missing_ok=True)
    shared.wake()
    return answer(found, 201, location=f"/api/tasks/{found['id']}")


async def _to_disk(file: UploadFile) -> Path:
    """The file as it came; what the form parser spooled is copied in pieces."""
    total = 0
    with tempfile.NamedTemporaryFile(suffix=".zip", delete=False) as target:
        while piece := await file.read(_PIECE):
            total += len(piece)
            if total > MOST_BYTES:
                Path(target.name).unlink(missing_ok=True)
                raise Problem("too_large", f"A task's ZIP has at most {MOST_BYTES // 1_000_000} MB")
            target.write(piece)
    return Path(target.name)


def _keep(
    store: Store, state: State, caller: Caller, archive: Path, given: Uploading, check: str | None
) -> dict[str, Any]:
    upload, duplicate = keep(store, state, caller, archive, given)
    if check:
        run_id = making.submit(
            store,
            state,
            caller,
            Submission(spec=check_spec(upload)),
            project=upload.project,
            source=f"check:{upload.id}",
        ).info.id
        store.service.uploads.set_check(upload.id, run_id)
    found = store.service.uploads.find(upload.id, None) or upload
    newer = upload_shape(found)
    more = {name: newer[name] for name in ("project", "task", "digest", "findings", "check_id")}
    return task_shape(found, None) | more | {"duplicate": duplicate}


def check_spec(upload: Upload) -> dict[str, Any]:
    """The author's own solution, once."""
    return {
        "name": f"check {upload.name}"[:128],
        "tags": ["check"],
        "tasks": [{"path": {"upload": upload.id}, "agent": "oracle", "rollouts": 1}],
    }


@router.get("/uploads", summary="List uploaded tasks, newest first")
async def list_uploads(caller: Reader, shared: Shared, page: Paged) -> Response:
    """With what the checks found."""
    skip = page.after if isinstance(page.after, int) and page.after >= 0 else 0

    def read(store: Store) -> dict[str, Any]:
        found = store.service.uploads.page(caller.project, skip=skip, limit=page.limit + 1)
        items = [upload_shape(each) for each in found[: page.limit]]
        after = skip + page.limit if len(found) > page.limit else None
        return listed(items, after=after, total=store.service.uploads.count(caller.project))

    return answer(await shared.store(read))


@router.get("/uploads/{upload}", summary="Show one uploaded task")
async def read_upload(upload: UploadId, caller: Reader, shared: Shared) -> Response:
    """With what the checks found, and the run of the author's solution."""
    found = await shared.store(lambda store: store.service.uploads.find(upload, caller.project))
    if found is None:
        raise Problem("not_found", f"There is no upload '{upload}', or not in your project")
    return answer(upload_shape(found))


def upload_shape(upload: Upload) -> dict[str, Any]:
    """An upload as newer pages see it."""
    found: dict[str, Any] = msgspec.to_builtins(upload)
    found.pop("blob")
    return {**found, "task": found.pop("subject")}
