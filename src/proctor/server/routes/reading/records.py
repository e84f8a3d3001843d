"""`/api/runs/{run}/planned` and `/records`: a run as data, for clients that make the reports themselves."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query
from starlette.responses import Response

from proctor.model.record import AttemptRow
from proctor.server.auth.caller import Reader, Shared, VisibleRun
from proctor.server.listing import Page, Paged, listed
from proctor.server.problem import Problem
from proctor.server.route import Route, answer
from proctor.store.store import Store

router = APIRouter(prefix="/api/runs/{run}", tags=["runs"], route_class=Route)

_LARGEST = (1 << 31) - 1


@router.get("/planned", summary="The planned trials of a run")
async def list_planned(caller: Reader, shared: Shared, run: VisibleRun, page: Paged) -> Response:
    """In the order of the plan, with what makes up their keys."""
    return answer(await shared.store(_planned, run, page))


@router.get("/records", summary="Every attempt of a run, whole")
async def list_records(
    caller: Reader,
    shared: Shared,
    run: VisibleRun,
    page: Paged,
    counted: Annotated[bool, Query(description="Only attempts that count.")] = False,
    index: Annotated[
        list[Annotated[int, Query(ge=0, le=_LARGEST)]] | None,
        Query(max_length=100, description="Only attempts at these trials; all of them, in one page."),
    ] = None,
) -> Response:
    """The lines of `series.jsonl`, in the order of the plan, each with `index` and `counts`."""
    if index:
        return answer(await shared.store(_of_trials, run, sorted(set(index)), counted))
    return answer(await shared.store(_records, run, page, counted))


def _planned(store: Store, run: str, page: Page) -> dict[str, Any]:
    after = page.after if isinstance(page.after, int) else -1
    found = store.planned_page(run, min(after, _LARGEST), page.limit)
    items = [{**msgspec.to_builtins(each), "label": each.label} for each in found]
    for each in items:
        each.pop("path", None)  # a place on this machine
    return listed(items, after=found[-1].index if len(found) == page.limit else None)


def _records(store: Store, run: str, page: Page, counted: bool) -> dict[str, Any]:
    found = store.attempts_page(run, _place(page.after), page.limit, counted_only=counted)
    last = found[-1] if len(found) == page.limit else None
    after = [last.trial.index, last.record.number] if last else None
    return listed([_item(each) for each in found], after=after)


def _of_trials(store: Store, run: str, indices: list[int], counted: bool) -> dict[str, Any]:
    found: list[AttemptRow] = []
    for index in indices:
        planned = store.planned_page(run, index - 1, 1)
        if planned and planned[0].index == index:
            found += store.attempts_of(run, planned[0].key)
    return listed([_item(each) for each in found if each.counts or not counted])


def _place(after: Any) -> tuple[int, int]:
    match after:
        case None:
            return (-1, 0)
        case [int(index), int(number)] if max(abs(index), abs(number)) <= _LARGEST:
            return (index, number)
    raise Problem("bad_request", "The cursor is not one that this server gave")


def _item(row: AttemptRow) -> dict[str, Any]:
    return {"index": row.trial.index, "counts": row.counts, **row.record.to_mapping()}
