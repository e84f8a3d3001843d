"""Submit runs, and change what becomes of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from proctor.runs import actions
from proctor.server.audit import audit, audit_run
from proctor.server.auth.caller import Caller, Runner, Shared, VisibleRun
from proctor.server.idempotency import Keyed, OwnKey, again
from proctor.server.route import Route, answer
from proctor.server.routes.detail import new_run_detail, run_detail
from proctor.server.state import State
from proctor.server.submit import changing, making
from proctor.server.submit.reading import MOST_NOTES, MOST_WORD, MOST_WORDS, Submission
from proctor.server.text import Line
from proctor.store.database import Transaction
from proctor.store.service.answers import Answer, AnsweredError, Asked, write_made
from proctor.store.service.audit import write_deed
from proctor.store.store import Store

router = APIRouter(prefix="/api", tags=["runs"], route_class=Route)

_SPEC: dict[str, Any] = {
    "name": "hello",
    "tasks": [{"path": {"upload": "up_3f2a9c"}, "agent": "oracle", "rollouts": 3}],
}
_Name = Annotated[Line, Field(min_length=1, max_length=128)]
_Tags = Annotated[list[Annotated[Line, Field(max_length=MOST_WORD)]], Field(max_length=MOST_WORDS)]
_Notes = Annotated[str, Field(max_length=MOST_NOTES)]
_Priority = Annotated[
    int,
    Field(ge=-100, le=100, description="A queued run with a higher one begins first; above 0: for admins."),
]


class SubmitBody(BaseModel):
    """A spec, and how to run it."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"spec": _SPEC}]})

    spec: dict[str, Any] | str = Field(
        description="The spec as an object, or as the text of a file. Its tasks are `{upload: ID}` or "
        "`{task: NAME}` in `path`; no key may reach the server's machine."
    )
    format: Literal["yaml", "toml", "json"] = Field(default="yaml", description="What the text is.")
    name: _Name | None = None
    tags: _Tags | None = None
    notes: _Notes | None = None
    parallel: int | None = Field(default=None, ge=1, le=10_000, description="Trials of this run at a time.")
    set: dict[str, Any] | None = Field(
        default=None,
        description="Values of the spec to change, by their place.",
        examples=[{"tasks.0.rollouts": 5}],
    )
    project: str | None = Field(default=None, max_length=64, description="For callers of all projects.")

    def submission(self) -> Submission:
        """As the rest of the server knows it."""
        return Submission(
            spec=self.spec,
            format=self.format,
            name=self.name,
            tags=None if self.tags is None else tuple(self.tags),
            notes=self.notes,
            parallel=self.parallel,
            changes=self.set,
        )


class RunBody(SubmitBody):
    """A spec to run now."""

    start: bool = Field(default=True, description="Whether to queue it now; else a resume does.")
    priority: _Priority = 0


class PatchBody(BaseModel):
    """What people say about a run, and how soon it begins."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"notes": "after the fix"}]})

    name: _Name | None = None
    tags: _Tags | None = None
    notes: _Notes | None = None
    priority: _Priority | None = None


class ResumeBody(BaseModel):
    """How to go on."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"budget_usd": 20.0}]})

    errors: bool = Field(default=False, description="Also do again what was lost.")
    budget_usd: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    budget_tokens: int | None = Field(default=None, ge=0, le=1 << 53)
    budget_requests: int | None = Field(default=None, ge=0, le=1 << 53)


@router.post("/runs", status_code=201, summary="Submit a run")
async def submit_run(body: RunBody, caller: Runner, shared: Shared, _: Keyed, asked: OwnKey) -> Response:
    """Plan a spec, store what it is made from, and queue it."""
    found = await shared.submitting(_submit, shared, caller, body, asked)
    shared.wake()
    return found


def _submit(store: Store, state: State, caller: Caller, body: RunBody, asked: Asked | None) -> Response:
    """Make a run; of a request that came before, its answer: also where the server died before it had one."""
    if asked and (known := store.service.answers.find(asked)):
        return _again(store, state, caller, asked, known)

    home = body.project or caller.home

    def also(tx: Transaction, run_id: str) -> None:
        write_deed(tx, caller.user, "run.submit", run_id, token=caller.token, project=home)
        if asked:
            write_made(tx, asked, run_id)

    try:
        run = making.submit(
            store,
            state,
            caller,
            body.submission(),
            project=body.project,
            start=body.start,
            priority=body.priority,
            also=also,
        )
    except AnsweredError:
        assert asked
        known = store.service.answers.find(asked)
        if known is None:
            raise
        return _again(store, state, caller, asked, known)
    return _kept(store, asked, new_run_detail(store, run, state.reading, code=caller.on_machine))


def _again(store: Store, state: State, caller: Caller, asked: Asked, known: Answer) -> Response:
    if known.run_id and known.fingerprint == asked.fingerprint:
        _kept(store, asked, run_detail(store, known.run_id, state.reading, code=caller.on_machine))
        known = store.service.answers.find(asked) or known
    return again(known, asked.fingerprint)


def _kept(store: Store, asked: Asked | None, found: dict[str, Any]) -> Response:
    """The answer, remembered for the next request with its key."""
    made = answer(found, 201, location=f"/api/runs/{found['id']}")
    if asked:
        kind, body = made.headers["content-type"], bytes(made.body)
        store.service.answers.keep(asked.owner, asked.key, status=made.status_code, kind=kind, body=body)
    return made


@router.post("/plan", summary="Say what a spec would run, how long and at what price")
async def plan_run(body: SubmitBody, caller: Runner, shared: Shared) -> Response:
    """Nothing is written and nothing is executed."""
    asked = body.submission()
    return answer(await shared.submitting(making.preview, shared, caller, asked, project=body.project))


@router.patch("/runs/{run}", summary="Change a run's name, notes, tags or priority")
async def patch_run(run: VisibleRun, body: PatchBody, caller: Runner, shared: Shared) -> Response:
    """What is not given stays as it is."""

    def change(store: Store) -> dict[str, Any]:
        if body.priority is not None:
            making.check_priority(caller, body.priority)
            store.service.queue.set_priority(run, body.priority)
        changing.describe(store, run, name=body.name, notes=body.notes, tags=body.tags)
        audit_run(store, caller, "run.describe", run)
        return run_detail(store, run, shared.reading, code=caller.on_machine)

    return answer(await shared.store(change))


@router.delete("/runs/{run}", status_code=204, summary="Delete a run")
async def delete_run(run: VisibleRun, caller: Runner, shared: Shared, _: Keyed) -> Response:
    """Rows, files and folder. A run that is being executed is refused: cancel it first."""

    def remove(store: Store) -> None:
        project = store.service.ownership.place(run).project
        actions.delete(store, shared.blobs, shared.settings, run)
        audit(store, caller, "run.delete", run, project=project)

    await shared.store(remove)
    return Response(status_code=204)


@router.post("/runs/{run}/cancel", summary="Cancel a run for good")
async def cancel_run(run: VisibleRun, caller: Runner, shared: Shared, _: Keyed) -> Response:
    """Trials that run are stopped within seconds; what has ended is kept."""

    def cancel(store: Store) -> dict[str, Any]:
        actions.cancel(store, shared.blobs, run)
        audit_run(store, caller, "run.cancel", run)
        return run_detail(store, run, shared.reading, code=caller.on_machine)

    found = await shared.store(cancel)
    shared.wake()
    return answer(found)


@router.post("/runs/{run}/pause", summary="Pause a run")
async def pause_run(run: VisibleRun, caller: Runner, shared: Shared, _: Keyed) -> Response:
    """Trials that run are finished; no other begins until the run is resumed."""

    def pause(store: Store) -> dict[str, Any]:
        actions.pause(store, run)
        audit_run(store, caller, "run.pause", run)
        return run_detail(store, run, shared.reading, code=caller.on_machine)

    found = await shared.store(pause)
    shared.wake()
    return answer(found)


@router.post("/runs/{run}/resume", summary="Go on with a run")
async def resume_run(
    run: VisibleRun, caller: Runner, shared: Shared, _: Keyed, body: ResumeBody | None = None
) -> Response:
    """After a pause, an interruption or a spent budget; with `errors` lost trials are done again."""
    asked = body or ResumeBody()
    budgets = asked.model_dump(exclude={"errors"})

    def resume(store: Store) -> dict[str, Any]:
        making.check_quota(store, store.service.ownership.place(run).project)
        actions.resume(store, run, owner=caller.user, errors=asked.errors, budgets=budgets)
        audit_run(store, caller, "run.resume", run, **asked.model_dump(exclude_none=True))
        return run_detail(store, run, shared.reading, code=caller.on_machine)

    found = await shared.store(resume)
    shared.wake()
    return answer(found)
