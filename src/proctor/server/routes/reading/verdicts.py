"""`/api/compare`, `/history`, `/series`, `/certificates`, `/leaderboard`: what the numbers say."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from proctor.server.auth.caller import Reader, Shared
from proctor.server.listing import Paged, listed
from proctor.server.problem import Problem
from proctor.server.reading.documents import page_document
from proctor.server.reading.made_once import made_once
from proctor.server.reading.reading import Reading
from proctor.server.route import Route, answer
from proctor.server.state import State
from proctor.store.store import Store

router = APIRouter(prefix="/api", tags=["verdicts"], route_class=Route)

Ref = Annotated[str, Query(max_length=200, description="A run: its id, its name, or `latest`.")]
Metric = Annotated[str, Query(max_length=200, description="[time, by the clock that leads, or reward]")]
_VET = '"execution":"vet"'
MOST_SERIES = 500
SIMULATIONS = 200
"""Of a noise certificate on the page; the command line makes a thousand."""
MOST_LOOKED_AT = 2_000
"""Runs among which vettings are looked for."""


@router.get("/compare", summary="Judge one run against another")
async def compare_runs(
    caller: Reader,
    shared: Shared,
    a: Ref,
    b: Ref,
    metric: Metric = "",
    margin: Annotated[float | None, Query(ge=0, le=10, description="Tolerated loss, as a share.")] = None,
    these_tasks: bool | None = None,
    changed_tasks: Annotated[bool, Query(description="Compare tasks too whose content changed.")] = False,
) -> Response:
    """The document of `proctor compare A B`."""
    runs = await _runs(shared, caller.project, [a, b])
    make = partial(
        _compare,
        runs=(runs[0], runs[1]),
        metrics=(metric,) if metric else (),
        margin=margin,
        these_tasks=these_tasks,
        changed_tasks=changed_tasks,
        project=caller.project,
    )
    key = ("compare", *runs, metric, margin, these_tasks, changed_tasks, caller.project)
    return await made_once(shared, key, runs, make)


@router.get("/history", summary="A series of runs over time")
async def show_history(
    caller: Reader,
    shared: Shared,
    series: Annotated[str, Query(max_length=200, description="The name of the runs.")],
    metric: Metric = "",
    point: Annotated[str, Query(max_length=200, description="Only lines whose name has this text.")] = "",
    last: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """The document of `proctor history`, with its numbers under `history`."""
    newest = await _runs(shared, caller.project, [series])
    make = partial(_history, series=series, metric=metric, only=point, last=last, project=caller.project)
    return await made_once(shared, ("history", series, metric, point, last, caller.project), newest, make)


@router.get("/series", summary="The names under which runs are kept")
async def list_series(caller: Reader, shared: Shared) -> Response:
    """The newest 500, with how many runs each has."""

    def read(store: Store) -> dict[str, Any]:
        return listed(store.views.runs.series(project=caller.project, limit=MOST_SERIES))

    return answer(await shared.store(read))


@router.get("/certificates", summary="Certificates of tasks and of noise")
async def list_certificates(
    caller: Reader,
    shared: Shared,
    page: Paged,
    run: Annotated[str | None, Query(max_length=200, description="The certificate of one run.")] = None,
    kind: Annotated[
        Literal["vet", "aa"] | None, Query(description="[vet for a vetting, else aa]; only with `run`.")
    ] = None,
) -> Response:
    """The vettings that are stored, newest first; or with `run` the document of one run's certificate."""
    if run is None:
        return answer(await shared.heavy(_vettings, shared.reading, caller.project, page.limit, page.after))
    runs = await _runs(shared, caller.project, [run])
    make = partial(_certificate, run=runs[0], kind=kind, project=caller.project)
    return await made_once(shared, ("certificate", runs[0], kind, caller.project), runs, make)


@router.get("/leaderboard", summary="Rank the agents of runs")
async def show_leaderboard(
    caller: Reader,
    shared: Shared,
    run: Annotated[list[str], Query(min_length=1, max_length=50, description="May be repeated.")],
    these_tasks: bool | None = None,
) -> Response:
    """The document of `proctor leaderboard`, with its numbers under `board`."""
    runs = await _runs(shared, caller.project, run)
    make = partial(_leaderboard, runs=runs, these_tasks=these_tasks)
    return await made_once(shared, ("leaderboard", *runs, these_tasks), runs, make)


async def _runs(shared: State, project: str | None, refs: Sequence[str]) -> list[str]:
    found = await shared.store(_find, project, refs)
    for ref, each in zip(refs, found, strict=True):
        if each is None:
            raise Problem("not_found", f"There is no run '{ref[:200]}', or not in your project")
    return [each for each in found if each is not None]


def _find(store: Store, project: str | None, refs: Sequence[str]) -> list[str | None]:
    return [store.service.ownership.find(ref, project) for ref in refs]


def _compare(
    store: Store,
    _: Reading,
    *,
    runs: tuple[str, str],
    metrics: tuple[str, ...],
    margin: float | None,
    these_tasks: bool | None,
    changed_tasks: bool,
    project: str | None,
) -> dict[str, Any]:
    from proctor.render.results.compare import comparison
    from proctor.verdicts.compare.by_task import SPENT
    from proctor.verdicts.compare.open import compare_stored

    found, a, b = compare_stored(
        store,
        runs,
        metrics=metrics,
        also=SPENT,
        margin=margin,
        these_tasks=these_tasks,
        changed_tasks=changed_tasks,
        project=project,
    )
    document = page_document(comparison(found, a, b), [(runs[0], a.folder), (runs[1], b.folder)])
    return {**document, "runs": list(runs), "comparison": found.to_dict()}


def _history(
    store: Store, _: Reading, *, series: str, metric: str, only: str, last: int, project: str | None
) -> dict[str, Any]:
    from proctor.render.results.history import history as shown
    from proctor.verdicts.history.collect import collect
    from proctor.verdicts.history.document import to_mapping

    found = collect(store, series, metric=metric, last=last, only=only, project=project)
    runs = [(each.id, each.folder) for each in found.runs]
    return {**page_document(shown(found), runs), "history": to_mapping(found)}


def _vettings(store: Store, reading: Reading, project: str | None, limit: int, after: Any) -> dict[str, Any]:
    """Each certificate of each vetting; `after` is the run that the last page ended with."""
    before = after if isinstance(after, str) else None
    found = store.views.runs.listed(limit=MOST_LOOKED_AT, project=project, before=before)
    vettings = [each for each in found if _VET in each.row[8]]
    items: list[dict[str, Any]] = []
    shown = vettings[:limit]
    for each in shown:
        key = ("vetting", each.id)
        known = reading.lists.get(key, each.stamp)
        if known is None:
            known = reading.lists.put(key, _tasks_of(store, each.id), stamp=each.stamp)
        items += [
            {"run": each.id, "run_name": each.row[2], "status": each.status, "at": each.row[1], **task}
            for task in known
        ]
    return listed(items, after=shown[-1].id if len(vettings) > limit else None)


def _tasks_of(store: Store, run: str) -> list[dict[str, Any]]:
    from proctor.runs.vet.certificates import certificates_of
    from proctor.verdicts.vet.words import sentence

    return [
        {
            "kind": "vet",
            "task": each.task,
            "digest": each.digest,
            "verdict": each.verdict.value,
            "sentence": sentence(each),
            "flake_rate_upper_bound": each.flake_bound,
        }
        for each in certificates_of(store, run)
    ]


def _certificate(
    store: Store, _: Reading, *, run: str, kind: str | None, project: str | None
) -> dict[str, Any]:
    from pathlib import Path

    from proctor.model.run import Execution

    info = store.run(run)
    vetted = info.execution is Execution.VET
    places = [(run, info.folder)]
    if (kind or ("vet" if vetted else "aa")) == "vet":
        if not vetted:
            raise Problem("bad_request", f"Run {run} was not made by 'proctor vet'; ask for kind=aa")
        from proctor.render.results.vet import certificates as shown
        from proctor.runs.vet.certificates import certificates_of

        found = certificates_of(store, run)
        return page_document(shown(found, run_id=run, folder=Path(info.folder)), places)
    from proctor.render.results.aa import certificate
    from proctor.verdicts.aa.open import certify_stored
    from proctor.verdicts.aa.scores import Asked

    asked = Asked(simulations=SIMULATIONS)
    return page_document(certificate(certify_stored(store, run, asked, project=project)), places)


def _leaderboard(
    store: Store, _: Reading, *, runs: Sequence[str], these_tasks: bool | None
) -> dict[str, Any]:
    from proctor.render.results.leaderboard import leaderboard, to_mapping
    from proctor.verdicts.leaderboard.collect import collect
    from proctor.verdicts.leaderboard.rank import rank

    entrants, warnings = collect(store, runs)
    board = rank(entrants, these_tasks=these_tasks, warnings=warnings)
    places = {run: f"/runs/{run}" for run in runs}
    return {
        **page_document(leaderboard(board, link=places.__getitem__), places.items()),
        "board": to_mapping(board),
    }
