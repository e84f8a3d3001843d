"""`/api/trials/{run}/{index}/beside`: a trial beside another one, step by step."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from proctor.agents.atif import Step
from proctor.model.plan import PlannedTrial
from proctor.server.auth.caller import Reader, Shared, VisibleRun
from proctor.server.problem import Problem
from proctor.server.reading.trial_rows import trial_row
from proctor.server.route import Route, answer
from proctor.server.state import State
from proctor.server.trial.attempt_files import files_of, find_trial
from proctor.server.trial.pair import sentence, spans
from proctor.server.trial.transcript import steps_of
from proctor.store.store import Store

router = APIRouter(prefix="/api/trials/{run}/{index}", tags=["trials"], route_class=Route)


@router.get("/beside", summary="Two trials side by side")
async def show_beside(
    caller: Reader,
    shared: Shared,
    run: VisibleRun,
    index: int,
    other: Annotated[int, Query(ge=0, description="The index of the other trial.")],
    other_run: Annotated[
        str | None, Query(max_length=200, description="Its run, when it is another one.")
    ] = None,
) -> Response:
    """Steps paired by command and file, in spans that are the same or differ, and where the two part."""

    def read(store: Store) -> dict[str, Any]:
        wanted = store.service.ownership.find(other_run, caller.project) if other_run else run
        if wanted is None:
            raise Problem("not_found", f"There is no run '{other_run}', or not in your project")
        return _beside(store, shared, (run, index), (wanted, other))

    return answer(await shared.heavy(read))


def _beside(store: Store, shared: State, a: tuple[str, int], b: tuple[str, int]) -> dict[str, Any]:
    trials = [find_trial(store, *each) for each in (a, b)]
    left, right = _steps(store, shared, a), _steps(store, shared, b)
    found = spans(left, right)
    names = _names(a[0] == b[0], *(each.planned for each in trials))
    return {
        "a": {"run": a[0], "steps": len(left), "name": names[0], "trial": trial_row(trials[0])},
        "b": {"run": b[0], "steps": len(right), "name": names[1], "trial": trial_row(trials[1])},
        "sentence": sentence(left, right, found, names),
        "spans": [each.to_mapping() for each in found],
    }


def _steps(store: Store, shared: State, place: tuple[str, int]) -> tuple[Step, ...]:
    return steps_of(files_of(store, shared, *place, None), shared.reading.recordings)


def _names(same_run: bool, a: PlannedTrial, b: PlannedTrial) -> tuple[str, str]:
    """Short names where they tell the two apart."""
    if same_run and a.subject == b.subject and a.rollout != b.rollout:
        return f"#{a.rollout + 1}", f"#{b.rollout + 1}"
    return "A", "B"
