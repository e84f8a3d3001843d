"""`/api/runs/{run}/…`: its report, its matrix, its trials, its errors and what it cost."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from proctor.model.outcome import Blame, Outcome
from proctor.model.trial import TrialState
from proctor.server.auth.caller import Reader, Shared, VisibleRun
from proctor.server.listing import Paged
from proctor.server.problem import Problem
from proctor.server.reading.documents import page_document
from proctor.server.reading.failures import errors
from proctor.server.reading.made_once import made_once
from proctor.server.reading.matrix import matrix
from proctor.server.reading.reading import Reading
from proctor.server.reading.run_costs import run_costs
from proctor.server.reading.trial_rows import TrialsAsked, outcomes_of, trials_page
from proctor.server.route import JSON, Route
from proctor.server.routes.detail import without_paths
from proctor.store.store import Store
from proctor.store.views.trials import ORDERS

router = APIRouter(prefix="/api/runs/{run}", tags=["runs"], route_class=Route)

Text = Annotated[str | None, Query(max_length=200)]


@router.get("/document", summary="The report of a run")
async def show_document(caller: Reader, shared: Shared, run: VisibleRun) -> Response:
    """The document that reports are made of; charts have data and picture."""
    return await made_once(shared, ("document", run), [run], partial(_document, run=run))


@router.get("/matrix", summary="Every trial in its place")
async def show_matrix(caller: Reader, shared: Shared, run: VisibleRun) -> Response:
    """Tasks in rows, competitors in columns; a sign `{i, r, s, o, w, t, x}` for each trial.

    `i` index, `r` rollout, `s` state, `o` outcome, `w` reward, `t` seconds, `x` suspect.
    """
    return await made_once(shared, ("matrix", run), [run], partial(_matrix, run=run))


@router.get("/errors", summary="Trials that did not pass, alike ones together")
async def list_errors(caller: Reader, shared: Shared, run: VisibleRun) -> Response:
    """Groups by outcome, phase, type and message, the largest first."""
    return await made_once(shared, ("errors", run), [run], partial(_errors, run=run))


@router.get("/costs", summary="What a run's calls of models came to")
async def show_run_costs(caller: Reader, shared: Shared, run: VisibleRun) -> Response:
    """By model, agent and task; and how long agents waited for providers."""
    return await made_once(shared, ("costs", run), [run], partial(run_costs, run_id=run))


@router.get("/trials", summary="List the trials of a run")
async def list_trials(
    caller: Reader,
    shared: Shared,
    run: VisibleRun,
    page: Paged,
    state: Annotated[TrialState | None, Query(description="Only trials in this state.")] = None,
    outcome: Annotated[Outcome | None, Query(description="Only trials that ended like this.")] = None,
    blame: Annotated[Blame | None, Query(description="Only trials whose end this caused.")] = None,
    task: Text = None,
    agent: Text = None,
    model: Text = None,
    q: Text = None,
    sort: Annotated[
        str, Query(max_length=20, description=f"One of {', '.join(ORDERS)}; `-` before it: largest first.")
    ] = "index",
) -> Response:
    """A page of trials, with how many there are and how many match."""
    if sort.removeprefix("-") not in ORDERS:
        raise Problem("invalid", f"sort: trials are sorted by {', '.join(ORDERS)}, not by '{sort[:20]}'")
    asked = {"state": state, "task": task, "agent": agent, "model": model, "q": q}
    only = {name: str(value) for name, value in asked.items() if value}
    wanted = TrialsAsked(sort, only, outcomes_of(blame, outcome), page)
    found = await shared.store(trials_page, shared.reading, run, wanted, shared.clock())
    return Response(found, media_type=JSON)


def _document(store: Store, reading: Reading, run: str) -> dict[str, Any]:
    from proctor.render.results.run import run_document
    from proctor.runfolder.read import RunData

    data = RunData.from_store(store, run)
    shown = replace(data, info=without_paths(data.info))
    return page_document(run_document(shown), [(run, data.info.folder)])


def _matrix(store: Store, reading: Reading, run: str) -> dict[str, Any]:
    return matrix(store, reading, store.run(run))


def _errors(store: Store, reading: Reading, run: str) -> dict[str, Any]:
    return errors(store, run)
