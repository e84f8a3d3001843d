"""Whether the server lives, whether it can work, and what a monitor wants to know."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from proctor.errors import ProctorError
from proctor.server import metrics
from proctor.server.auth.caller import Open, Reader, Shared
from proctor.server.route import Route, answer
from proctor.server.state import State
from proctor.store.service.figures import Figures

router = APIRouter(tags=["health"], route_class=Route)

_REMEMBER_S = 5.0
"""How long figures of the store serve: more than one monitor may ask."""


@router.get("/livez", summary="Whether the process lives")
async def show_live(_: Open) -> Response:
    """Always 200."""
    return answer({"status": "ok"})


@router.get("/readyz", summary="Whether the server can work")
async def show_ready(_: Open, shared: Shared) -> Response:
    """503 when the store does not answer, the engine is not running, or the server is stopping."""
    parts = await _parts(shared)
    good = all(value == "ok" for value in parts.values())
    return answer({"status": "ok" if good else "unavailable", **parts}, 200 if good else 503)


@router.get("/health", summary="The same, as older monitors know it")
@router.get("/api/health", include_in_schema=False)
async def show_health(_: Open, shared: Shared) -> Response:
    """`status` is `healthy` or `unhealthy`."""
    parts = await _parts(shared)
    good = all(value == "ok" for value in parts.values())
    return answer({"status": "healthy" if good else "unhealthy", **parts}, 200 if good else 503)


async def _parts(state: State) -> dict[str, str]:
    try:
        await state.store(lambda store: store.service.monitor.answers())
        store = "ok"
    except ProctorError:
        store = "does not answer"
    engine = "ok" if state.engine is None or state.engine.pid else "not running"
    return {"store": store, "engine": engine, "server": "stopping" if state.stopping.is_set() else "ok"}


@router.get("/metrics", summary="Metrics for Prometheus", response_class=Response)
async def read_metrics(caller: Reader, shared: Shared) -> Response:
    """Queue depth and age, running trials, outcomes, durations, tokens, cost, workers."""
    now = shared.clock()
    at, figures = shared.figures.get(caller.project, (0.0, None))
    if figures is None or now - at > _REMEMBER_S:
        figures = await shared.store(_figures, caller.project)
        shared.figures[caller.project] = now, figures
    everything = caller.project is None
    engine = _engine(shared) if everything else {}
    text = metrics.written(figures, shared.requests if everything else None, engine)
    return Response(text, media_type=metrics.MEDIA_TYPE)


def _figures(store: Any, project: str | None) -> Figures:
    found: Figures = store.service.monitor.figures(project)
    return found


def _engine(state: State) -> dict[str, float]:
    if state.engine is None:
        return {}
    return {
        "up": float(state.engine.pid is not None),
        "restarts": float(state.engine.restarts),
        "places": float(state.engine.total),
    }
