"""`/api/schedules`: runs that start by themselves."""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from proctor.server.auth.caller import Caller, Reader, Runner, Shared
from proctor.server.idempotency import Keyed
from proctor.server.listing import Paged
from proctor.server.problem import Problem
from proctor.server.route import Route, answer
from proctor.server.routes.submission import SubmitBody
from proctor.server.routes.team.owned import Things
from proctor.server.state import State
from proctor.server.submit import making
from proctor.server.submit.reading import read
from proctor.server.team.cron import parse_cron, zone_of
from proctor.server.team.starting import owner_of, start
from proctor.server.text import Line
from proctor.store.store import Store
from proctor.store.team.schedules import Schedule

router = APIRouter(prefix="/api/schedules", tags=["schedules"], route_class=Route)

ScheduleId = Annotated[str, Path(max_length=64)]
_Name = Annotated[Line, Field(min_length=1, max_length=128)]
_When = Annotated[
    str,
    Field(
        min_length=1,
        max_length=200,
        description="Cron's five fields (minute hour day month weekday), `daily 02:00`, `weekly mon 02:00`.",
        examples=["0 2 * * *"],
    ),
]
_Zone = Annotated[str, Field(min_length=1, max_length=64, examples=["Europe/Berlin"])]
_SPEC: dict[str, Any] = {
    "name": "nightly",
    "tasks": [{"path": {"task": "hello"}, "agent": "oracle", "rollouts": 3}],
}


class ScheduleBody(SubmitBody):
    """What to run, and when."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"name": "nightly", "cron": "daily 02:00", "spec": _SPEC}]},
    )

    name: _Name  # a run may take that of its spec
    cron: _When
    timezone: _Zone = "UTC"
    enabled: bool = True


class ScheduleChange(BaseModel):
    """What to change of a schedule."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"enabled": False}]})

    name: _Name | None = None
    cron: _When | None = None
    timezone: _Zone | None = None
    enabled: bool | None = None


@router.get("", summary="List schedules")
async def list_schedules(caller: Reader, shared: Shared, page: Paged) -> Response:
    """With when they are next due, their last run, and how often they were missed."""
    return answer(await shared.store(_SCHEDULES.page, caller, page))


@router.post("", status_code=201, summary="Schedule a run")
async def add_schedule(body: ScheduleBody, caller: Runner, shared: Shared, _: Keyed) -> Response:
    """The spec is checked now and read again each time. Runs belong to whoever made the schedule."""
    found = await shared.store(_add, shared, caller, body)
    return answer(found, 201, location=f"/api/schedules/{found['id']}")


def _add(store: Store, state: State, caller: Caller, body: ScheduleBody) -> dict[str, Any]:
    home = making.project_for(store, caller, body.project)
    submission = replace(body.submission(), name=None)
    read(submission, store, state, caller)
    kept = {
        "spec": submission.spec,
        "format": submission.format,
        "tags": submission.tags,
        "notes": submission.notes,
        "parallel": submission.parallel,
        "changes": submission.changes,
    }
    schedule = Schedule(
        id=f"sc_{secrets.token_hex(8)}",
        project=home,
        owner=caller.user,
        name=body.name,
        created_at=state.clock(),
        cron=body.cron,
        zone=body.timezone,
        body=json.dumps({"submission": kept, **_rights(caller)}),
        enabled=body.enabled,
        next_at=_next(body.cron, body.timezone, state.clock()) if body.enabled else None,
    )
    _next(body.cron, body.timezone, state.clock())
    store.service.schedules.add(schedule)
    _SCHEDULES.note(store, caller, "add", schedule, name=schedule.name)
    return _shown(schedule)


@router.get("/{schedule}", summary="Show one schedule")
async def show_schedule(schedule: ScheduleId, caller: Reader, shared: Shared) -> Response:
    """With the spec that it runs."""
    found = await shared.store(_SCHEDULES.find, schedule, caller)
    return answer({**_shown(found), "submission": json.loads(found.body)["submission"]})


@router.patch("/{schedule}", summary="Change a schedule, or switch it on or off")
async def change_schedule(
    schedule: ScheduleId, body: ScheduleChange, caller: Runner, shared: Shared
) -> Response:
    """What is not given stays as it is. What was missed is forgotten.

    A schedule starts with what the token with which it was made allows. When that has ended, a change by its
    owner lets it start with the token of the change.
    """

    def change(store: Store) -> dict[str, Any]:
        before = _SCHEDULES.find(store, schedule, caller)
        changed = replace(
            before,
            name=body.name or before.name,
            cron=body.cron or before.cron,
            zone=body.timezone or before.zone,
            enabled=before.enabled if body.enabled is None else body.enabled,
            body=_renewed(store, shared, caller, before),
            missed=0,
            last_error="",
        )
        due = _next(changed.cron, changed.zone, shared.clock())
        changed = replace(changed, next_at=due if changed.enabled else None)
        store.service.schedules.change(changed)
        _SCHEDULES.note(store, caller, "change", changed, name=changed.name)
        return _shown(changed)

    return answer(await shared.store(change))


@router.post("/{schedule}/start", summary="Start the run of a schedule now")
async def start_schedule(schedule: ScheduleId, caller: Runner, shared: Shared, _: Keyed) -> Response:
    """When it is next due does not change."""

    def begin(store: Store) -> dict[str, Any]:
        found = _SCHEDULES.find(store, schedule, caller)
        run_id = start(store, shared, found, by=caller)
        after = _SCHEDULES.find(store, schedule, caller)
        if run_id is None:
            raise Problem("conflict", after.last_error)
        return _shown(after)

    found = await shared.submitting(begin)
    shared.wake()
    return answer(found)


@router.delete("/{schedule}", status_code=204, summary="Remove a schedule")
async def remove_schedule(schedule: ScheduleId, caller: Runner, shared: Shared, _: Keyed) -> Response:
    """Runs that it started are kept."""
    await shared.store(_SCHEDULES.remove, schedule, caller)
    return Response(status_code=204)


def _rights(caller: Caller) -> dict[str, Any]:
    """With what a schedule of theirs starts."""
    return {"scopes": sorted(caller.scopes), "token": caller.token}


def _renewed(store: Store, state: State, caller: Caller, schedule: Schedule) -> str:
    """What a schedule keeps: with the rights of its owner's present token where earlier ones have ended."""
    if caller.user != schedule.owner:
        return schedule.body
    try:
        owner_of(store, state, schedule)
    except Problem:
        return json.dumps({**json.loads(schedule.body), **_rights(caller)})
    return schedule.body


def _next(cron: str, zone: str, now: float) -> float:
    found = parse_cron(cron).next(now, zone_of(zone))
    if found is None:
        raise Problem("invalid", f"cron: '{cron}' is never due")
    return found


def _shown(schedule: Schedule) -> dict[str, Any]:
    names = ("id", "name", "project", "owner", "created_at", "cron", "enabled", "next_at", "last_at")
    more = ("last_run", "last_error", "missed")
    return {
        **{name: getattr(schedule, name) for name in names},
        "timezone": schedule.zone,
        **{name: getattr(schedule, name) for name in more},
    }


_SCHEDULES = Things("schedule", lambda store: store.service.schedules, _shown)
