"""The application: every route on one store. Nothing here executes a trial."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version

from fastapi import APIRouter, FastAPI

from proctor.processes import full_environment
from proctor.sandbox.image.registry.access import access_of
from proctor.server import pages, problem
from proctor.server.auth.authenticate import LOCAL
from proctor.server.auth.guard import Guard
from proctor.server.auth.oidc import membership
from proctor.server.auth.oidc import routes as oidc
from proctor.server.auth.oidc.issuer import configured
from proctor.server.engine.supervisor import Supervisor
from proctor.server.reference import page
from proctor.server.reference.openapi import describe
from proctor.server.routes import (
    catalog,
    health,
    older,
    older_logs,
    projects,
    session,
    submission,
    tokens,
    uploads,
    workers,
)
from proctor.server.routes.reading import READING
from proctor.server.routes.team import TEAM
from proctor.server.state import Mode, open_state
from proctor.server.team.clockwork import keep_time
from proctor.server.tracing.tracing import open_tracing
from proctor.settings import Settings

ROUTERS: tuple[APIRouter, ...] = (
    *READING,
    submission.router,
    session.router,
    oidc.router,
    tokens.router,
    projects.router,
    workers.router,
    uploads.router,
    older.router,
    older_logs.router,
    catalog.router,
    *TEAM,
    health.router,
)
"""Every router, in the order of the documentation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How an application is served."""

    hosts: tuple[str, ...] = ()
    """Names under which it answers, besides loopback's."""
    secure: bool = False
    """Whether it is served over TLS."""
    engine: bool = False
    """Whether it executes the runs that are submitted."""


def _places_of(settings: Settings) -> dict[str, str]:
    """The settings that must be the same in both processes, wherever each of them looks."""
    return {
        "PROCTOR_HOME": str(settings.home.absolute()),
        "PROCTOR_STORE": settings.store,
        "PROCTOR_BLOBS": settings.blobs,
        "PROCTOR_BROKER": settings.broker,
        "PROCTOR_SERVE_PARALLEL": str(settings.serve_parallel),
        "PROCTOR_OUTPUT_DIR": str(settings.output_dir.absolute()),
        "PROCTOR_BASELINES": str(settings.baselines.absolute()),
        "PROCTOR_ROLLOUTS_DIR": str(settings.rollouts_dir.absolute()),
        "PROCTOR_OTEL_ENDPOINT": settings.otel_endpoint,
    }


def create_app(settings: Settings, mode: Mode = Mode.LOCAL, options: Options | None = None) -> FastAPI:
    """The application on the store of the settings."""
    chosen = options or Options()
    tracing = open_tracing(settings, "server")
    if configured(settings):
        membership.grants(settings)  # a mistake in it is told before anybody signs in
    access_of(settings)  # and one in mirrors and logins before anybody needs an image

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        app.state.proctor = state = open_state(settings, mode)
        state.tracing = tracing
        state.warm()
        if chosen.engine:
            places = settings.serve_parallel or os.cpu_count() or 1
            person = LOCAL.user if mode is Mode.LOCAL else ""
            state.engine = Supervisor(places, full_environment(_places_of(settings)), person)
            await state.engine.start()
        duties = asyncio.create_task(keep_time(state)) if chosen.engine else None
        try:
            yield
        finally:
            state.stopping.set()
            if duties:
                duties.cancel()
                await asyncio.gather(duties, return_exceptions=True)
            if state.engine:
                await state.engine.stop()
            state.close()
            if tracing:
                await asyncio.to_thread(tracing.close)

    app = FastAPI(
        title="Proctor",
        version=version("proctor-bench"),
        summary="Run benchmarks of code and of AI agents, and trust the numbers.",
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,
    )
    app.add_middleware(
        Guard,
        hosts=frozenset(each.lower() for each in (*chosen.hosts, *settings.serve_hosts)),
        tokens=mode is Mode.TOKENS,
        secure=chosen.secure,
    )
    problem.install(app)
    for router in ROUTERS:
        app.include_router(router)
    app.openapi = lambda: describe(app)  # type: ignore[method-assign]
    page.install(app)
    pages.install(app)
    return app
