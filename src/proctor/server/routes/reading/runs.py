"""`/api/runs`: the list of runs, and one run whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from proctor.model.trial import RunStatus
from proctor.server.auth.caller import Caller, Reader, Shared, VisibleRun
from proctor.server.listing import Page, Paged, listed
from proctor.server.problem import Problem
from proctor.server.reading.reading import Reading
from proctor.server.reading.run_rows import MOST_ROWS, SORTS, Row, fits, in_order, words_of
from proctor.server.route import Route, answer
from proctor.server.routes.detail import run_detail
from proctor.store.store import Store

router = APIRouter(prefix="/api/runs", tags=["runs"], route_class=Route)

Text = Annotated[str | None, Query(max_length=200)]
NEWEST = "-created"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which runs, in which order."""

    project: str | None
    status: str | None
    kind: str | None
    name: str | None
    words: Sequence[tuple[str, str]]
    sort: str

    @property
    def in_sql(self) -> dict[str, str | None]:
        """What the store can choose by itself."""
        return {"project": self.project, "status": self.status, "kind": self.kind, "name": self.name}


@router.get("", summary="List runs, newest first")
async def list_runs(
    caller: Reader,
    shared: Shared,
    page: Paged,
    q: Annotated[
        str, Query(max_length=500, description="Words, or `field:word`: agent, model, tag, gate, owner, …")
    ] = "",
    status: Annotated[RunStatus | None, Query(description="Only runs with this status.")] = None,
    kind: Annotated[
        Literal["task", "experiment"] | None, Query(description="Only runs of this kind.")
    ] = None,
    name: Annotated[
        str | None, Query(max_length=200, description="Only runs of this name; `*` matches anything.")
    ] = None,
    tag: Text = None,
    agent: Text = None,
    model: Text = None,
    project: Text = None,
    sort: Annotated[
        str, Query(max_length=20, description=f"One of {', '.join(SORTS)}; `-` before it: largest first.")
    ] = NEWEST,
) -> Response:
    """The runs of the caller's project. Other orders than the newest first look at the newest 5,000 runs."""
    if sort.removeprefix("-") not in SORTS:
        raise Problem("invalid", f"sort: runs are sorted by {', '.join(SORTS)}, not by '{sort[:20]}'")
    named = [
        (field, text.lower()) for field, text in (("tag", tag), ("agent", agent), ("model", model)) if text
    ]
    wanted = Wanted(_project(caller, project), status, kind, name, [*words_of(q), *named], sort)
    return answer(await shared.store(_list, shared.reading, wanted, page))


def _project(caller: Caller, asked: str | None) -> str | None:
    if asked is not None and not caller.sees(asked):
        raise Problem("not_found", f"There is no project '{asked}', or it is not yours")
    return asked if asked is not None else caller.project


def _list(store: Store, reading: Reading, wanted: Wanted, page: Page) -> dict[str, Any]:
    if wanted.sort == NEWEST and not wanted.words:
        return _newest(store, reading, wanted, page)
    found = store.views.runs.listed(limit=MOST_ROWS, **wanted.in_sql)
    rows = [row for row in reading.rows.of(store, found) if fits(row.data, wanted.words)]
    if wanted.sort != NEWEST:
        rows = in_order(rows, wanted.sort)
    start = page.after if isinstance(page.after, int) else 0
    shown, end = rows[start : start + page.limit], start + page.limit
    return _answer(shown, after=end if end < len(rows) else None, total=len(rows))


def _newest(store: Store, reading: Reading, wanted: Wanted, page: Page) -> dict[str, Any]:
    before = page.after if isinstance(page.after, str) else None
    found = store.views.runs.listed(limit=page.limit + 1, before=before, **wanted.in_sql)
    shown = found[: page.limit]
    rows = reading.rows.of(store, shown)
    return _answer(rows, after=shown[-1].id if len(found) > page.limit else None)


def _answer(rows: Sequence[Row], **more: Any) -> dict[str, Any]:
    return listed([row.written for row in rows], **more)


@router.get("/{run}", summary="One run")
async def show_run(caller: Reader, shared: Shared, run: VisibleRun) -> Response:
    """A run with its spec, where it was made, what it may spend and what it has spent."""
    return answer(await shared.store(run_detail, run, shared.reading, code=caller.on_machine))
