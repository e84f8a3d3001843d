"""Start scheduled runs. Those that were missed are counted and told, not made up for."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from proctor.errors import ProctorError
from proctor.server.auth.caller import Caller
from proctor.server.auth.tokens import present_caller
from proctor.server.problem import Problem
from proctor.server.state import Mode, State
from proctor.server.submit import making
from proctor.server.submit.reading import Submission
from proctor.server.team.cron import missed, parse_cron, zone_of
from proctor.store.store import Store
from proctor.store.team.schedules import Schedule

_log = logging.getLogger("proctor.server")

LATE_S = 600.0
"""A run that is due is begun up to this late: a server that was restarted meanwhile loses nothing."""
BEGINNING = "was being started when the server ended"


def start_due(store: Store, state: State) -> int:
    """Begin every run whose time has come; how many began."""
    now = state.clock()
    return sum(_start(store, state, each, now) for each in store.service.schedules.due(now))


def _start(store: Store, state: State, schedule: Schedule, now: float) -> bool:
    cron, zone = parse_cron(schedule.cron), zone_of(schedule.zone)
    following = cron.next(now, zone)
    assert schedule.next_at is not None
    schedules = store.service.schedules
    if now - schedule.next_at > LATE_S:
        number = missed(cron, zone, schedule.next_at, now)
        said = f"missed {number}: no server was running"
        schedules.claim(schedule, following, now, missed=number, error=said)
        _log.warning("schedule %s (%s) %s", schedule.id, schedule.name, said)
        return False
    if _still_runs(store, schedule.last_run):
        schedules.claim(schedule, following, now, missed=1, error="missed 1: the last run still goes on")
        return False
    if not schedules.claim(schedule, following, now, error=BEGINNING):
        return False
    return start(store, state, schedule) is not None


def start(store: Store, state: State, schedule: Schedule, by: Caller | None = None) -> str | None:
    """Begin the run of a schedule now; its id, or None with the reason in the schedule.

    It is the run of whoever made the schedule, also when somebody else starts it by hand.
    """
    body = json.loads(schedule.body)
    try:
        caller = owner_of(store, state, schedule)
        run_id = making.submit(
            store,
            state,
            caller,
            submission_of(body["submission"]),
            project=schedule.project,
            source=f"schedule:{schedule.id}",
        ).info.id
    except (Problem, ProctorError) as error:
        _log.warning("schedule %s (%s): %s", schedule.id, schedule.name, error)
        store.service.schedules.began(schedule.id, None, str(error))
        return None
    store.service.schedules.began(schedule.id, run_id)
    actor, token = (by.user, by.token) if by else (schedule.owner, "")
    store.service.audit.add(
        actor, "schedule.start", schedule.id, token=token, project=schedule.project, run=run_id
    )
    return run_id


def submission_of(given: Mapping[str, Any]) -> Submission:
    """The submission that a schedule keeps."""
    tags = given.get("tags")
    return Submission(**{**given, "tags": None if tags is None else tuple(tags)})


def owner_of(store: Store, state: State, schedule: Schedule) -> Caller:
    """Whoever made the schedule, with what they were allowed then and still are; else a Problem."""
    body = json.loads(schedule.body)
    allowed = frozenset(body["scopes"])
    if state.mode is not Mode.TOKENS:
        return Caller(schedule.owner, allowed, schedule.project)
    present = present_caller(store, schedule.owner, schedule.project, body.get("token", ""))
    owner = replace(present, scopes=present.scopes & allowed)
    if not owner.may("run"):
        raise Problem("forbidden", f"The owner '{schedule.owner}' may no longer run anything in this project")
    return owner


def _still_runs(store: Store, run_id: str | None) -> bool:
    return run_id is not None and run_id in store.service.queue.wanted([run_id])
