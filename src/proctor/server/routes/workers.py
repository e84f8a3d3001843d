"""`/api/runs/{run}/secrets`: the keys of a run's providers, for the workers that execute it.

With them go the addresses of those providers, so that a cluster names both at its server alone. Keys are
encrypted at rest, are given for as long as the run is open, and every time that is written down.
"""

from __future__ import annotations

import os
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from proctor.model.trial import RunStatus
from proctor.runs.secrets import grant_of
from proctor.server.audit import audit
from proctor.server.auth.caller import Shared, VisibleRun, Worker
from proctor.server.auth.vault import environ_of
from proctor.server.problem import Problem
from proctor.server.route import Route, answer
from proctor.spec.load import from_mapping
from proctor.store.store import Store

router = APIRouter(prefix="/api", tags=["work"], route_class=Route)


@router.get("/runs/{run}/secrets", summary="The keys of a run's providers, for a worker")
async def read_secrets(run: VisibleRun, caller: Worker, shared: Shared) -> Response:
    """Only with a token of the scope `worker` itself, and only while the run is running.

    Keys that were stored for the project, and those that were given for the run alone; of the server's own
    variables and settings only the keys of the providers whose models the run uses.
    """
    if "worker" not in caller.scopes or not caller.token or caller.by_cookie:
        raise Problem("forbidden", "This needs a token with the scope 'worker'")

    def read(store: Store) -> dict[str, Any]:
        info = store.run(run)
        if info.status is not RunStatus.RUNNING:
            raise Problem("conflict", "The run is not running: its keys are given to workers while it is")
        project = store.service.ownership.place(run).project
        sealed = store.service.keys.values(project, run)
        stored = {name: shared.vault.open(value) for name, value in sealed.items()}
        environ = environ_of(store, shared.vault, project, os.environ, run)
        spec = from_mapping(info.resolved, file=f"run {run}")
        grant = grant_of(spec, shared.settings, environ)
        keys = {**stored, **grant.keys}
        audit(store, caller, "secret.read", run, project=project, names=sorted(keys))
        return {"secrets": keys, "providers": dict(grant.providers)}

    return answer(await shared.store(read), **{"Cache-Control": "no-store"})
