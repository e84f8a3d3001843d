"""`/api/models`, `/api/agents` and `/api/stats`: what there is. Bare lists, as older clients know them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from proctor.agents.registry import BUILT_IN, installed
from proctor.runs.models import known_models
from proctor.server.auth.caller import Reader, Shared
from proctor.server.route import Route, answer
from proctor.server.routes.older_shapes import HARNESS
from proctor.settings import Settings
from proctor.store.store import Store

router = APIRouter(prefix="/api", tags=["older API"], route_class=Route)

Skip = Annotated[int, Query(ge=0, le=1 << 31)]
Limit = Annotated[int, Query(ge=1, le=500)]
_STATUSES = ("pending", "running", "completed", "failed")


@router.get("/models", summary="List models that have a price or were used")
async def list_models(
    request: Request,
    caller: Reader,
    shared: Shared,
    skip: Skip = 0,
    limit: Limit = 500,
) -> Response:
    """Any model that a provider knows can be used, whether it is listed or not."""
    found = await shared.store(_models, shared.settings, caller.project)
    return _bare(request, found, skip, limit)


def _models(store: Store, settings: Settings, project: str | None) -> list[dict[str, Any]]:
    found = []
    for each in known_models(store, settings, project):
        whole = each["name"].rstrip("*-")
        provider, slash, name = whole.partition("/")
        found.append({"id": whole, "name": name or provider, "provider": provider if slash else "local"})
    return found


@router.get("/agents", summary="List agents")
async def list_agents(
    request: Request,
    caller: Reader,  # noqa: ARG001 - the scope
    skip: Skip = 0,
    limit: Limit = 500,
) -> Response:
    """Those that come with Proctor, and those of packages that the server has."""
    found = [{"id": name, "name": line, "harness": HARNESS} for name, (_, _, line) in BUILT_IN.items()]
    found += [{"id": each.name, "name": each.name, "harness": each.value} for each in installed()]
    return _bare(request, found, skip, limit)


@router.get("/stats", summary="Count tasks and runs")
async def read_stats(caller: Reader, shared: Shared) -> Response:
    """Of uploaded tasks. A run that nobody judged is neither passed nor failed."""

    def read(store: Store) -> dict[str, Any]:
        uploads = store.service.uploads
        rollouts = store.service.rollouts
        passed, scored = rollouts.judged(project=caller.project)
        return {
            "tasks": {
                "total": uploads.count(caller.project),
                **{status: uploads.count(caller.project, status) for status in _STATUSES},
            },
            "runs": {"total": rollouts.planned(caller.project), "passed": passed, "failed": scored - passed},
        }

    return answer(await shared.store(read))


def _bare(request: Request, found: list[dict[str, Any]], skip: int, limit: int) -> Response:
    """A page as a bare list, with a Link to the next."""
    if len(found) <= skip + limit:
        return answer(found[skip : skip + limit])
    link = f'<{request.url.path}?skip={skip + limit}&limit={limit}>; rel="next"'
    return answer(found[skip : skip + limit], link=link)
