"""`/api/queue`, `/workers`, `/costs`, `/experiments`, `/stored-tasks`: what waits, works, costs, exists."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from proctor.server.auth.caller import Reader, Shared
from proctor.server.listing import listed
from proctor.server.route import Route, answer
from proctor.settings import Settings
from proctor.store.fleet import WorkerInfo
from proctor.store.service.demand import as_data
from proctor.store.store import Store

router = APIRouter(prefix="/api", tags=["work"], route_class=Route)

MOST = 500
_DAY_S = 86_400
By = Literal["day", "model", "agent", "run", "task"]


@router.get("/queue", summary="Runs with trials that wait")
async def show_queue(
    caller: Reader,
    shared: Shared,
    slots: Annotated[int, Query(ge=1, le=1024, description="Trials at a time of one worker.")] = 1,
) -> Response:
    """In the order in which they are taken, each with the reason why its trials wait.

    `demand` is for autoscalers: trials that run or could run now, by what they need, and how many workers
    with so many `slots` each would execute all of them at once.
    """

    def read(store: Store) -> dict[str, Any]:
        found = store.views.fleet.queue(caller.project, MOST)
        items = [_waiting(each, place) for place, each in enumerate(found, 1)]
        if shared.settings.broker:
            waiting = store.unattended([each["run"] for each in items if each["status"] == "running"])
            for each in items:
                each["reason"] = waiting.get(each["run"], each["reason"])
        demand = as_data(store.service.monitor.demand(caller.project), slots)
        return listed(items, total=sum(each["pending"] for each in items), demand=demand)

    return answer(await shared.store(read))


def _waiting(run: Mapping[str, Any], place: int) -> dict[str, Any]:
    names = (
        "run", "name", "kind", "status", "project", "owner", "priority", "queued_at", "pending", "running",
        "memory_mb",
    )  # fmt: skip
    since = run["queued_at"] or run["created_at"]
    return {
        **{name: run[name] for name in names},
        "place": place,
        "wanted": bool(run["wanted"]),
        "waits_s": max(0.0, run["now"] - since),
        "reason": _reason(run),
    }


def _reason(run: Mapping[str, Any]) -> str:
    """Why the trials of a run wait."""
    if run["failure"]:
        return f"The run could not go on: {run['failure']}"
    if run["status"] == "pending" or run["coordinated_until"] is None:
        return _unled(run)
    if run["delayed"] and run["delayed"] == run["pending"]:
        seconds = max(0.0, run["ready_at"] - run["now"])
        return f"After an error they are tried again, the first in {seconds:.0f} s."
    if run["running"]:
        return f"Trials that run: {run['running']}; the next begins when one of them ends."
    return "They begin as soon as a worker is free."


def _unled(run: Mapping[str, Any]) -> str:
    """Why nobody executes a run."""
    begun = run["status"] != "pending"
    if run["wanted"] and begun:
        return "Whoever executed it is gone: the server takes it up when its lease ends."
    if run["wanted"]:
        return "Other runs are before it: the server begins it when there is room."
    why = "Whoever executed it is gone" if begun else "Nobody has started it"
    return f"{why}: 'proctor resume {run['run']}' goes on with it."


@router.get("/workers", summary="Who executes what")
async def list_workers(caller: Reader, shared: Shared) -> Response:
    """Every worker that lives or holds a trial, with what it can execute and its trials.

    A worker that is no process of its own, such as a server's, is listed while it holds trials.
    """

    def read(store: Store) -> dict[str, Any]:
        known = {each.name: each for each in store.fleet.live()}
        workers: dict[str, list[dict[str, Any]]] = {name: [] for name in known}
        for each in store.views.fleet.workers(caller.project, 10_000):
            now, name = each.pop("now"), each.pop("worker")
            each |= {"for_s": max(0.0, now - each["started_at"]), "lease_s": each.pop("expires_at") - now}
            workers.setdefault(name, []).append(each)
        return listed(
            [
                {"name": name, "running": len(held), "trials": held, **_described(known.get(name))}
                for name, held in workers.items()
            ],
            total=sum(map(len, workers.values())),
        )

    return answer(await shared.store(read))


def _described(worker: WorkerInfo | None) -> dict[str, Any]:
    """What the registry has about a worker; nothing of one that is not in it."""
    if worker is None:
        return {"registered": False}
    names = ("host", "version", "parallel", "cpus", "memory_mb", "backends", "labels", "draining", "since")
    return {
        "registered": True,
        **{name: getattr(worker, name) for name in names},
        "only_run": worker.run,
        "silent_s": worker.silent_s,
    }


@router.get("/costs", summary="What calls of models cost")
async def show_costs(
    caller: Reader,
    shared: Shared,
    since: Annotated[float | None, Query(alias="from", description="UNIX seconds. [30 days ago]")] = None,
    until: Annotated[float | None, Query(alias="to", description="UNIX seconds. [now]")] = None,
    by: Annotated[By, Query(description="What to sum by.")] = "day",
) -> Response:
    """Days are UTC. What has no known price is counted in `unknown_cost`, and is in no sum."""
    end = shared.clock() if until is None else until
    start = end - 30 * _DAY_S if since is None else since

    def read(store: Store) -> dict[str, Any]:
        rows = store.views.fleet.costs(caller.project, start, end, by)
        named = {each.id: str(each.row[2]) for each in _of_runs(store, rows)} if by == "run" else {}
        items = [_cost(each, by, named) for each in rows]
        sums = ("calls", "prompt_tokens", "completion_tokens", "cached_tokens", "unknown_cost", "cost_usd")
        total = {name: sum(each[name] for each in items) for name in sums}
        return listed(items, **{"from": start, "to": end, "by": by, "sum": total})

    return answer(await shared.store(read))


def _of_runs(store: Store, rows: list[dict[str, Any]]) -> list[Any]:
    return [found for each in rows for found in store.views.runs.listed(limit=1, id=each["run"])]


def _cost(row: dict[str, Any], by: str, names: Mapping[str, str]) -> dict[str, Any]:
    key = row.pop(by)
    nano_usd = row.pop("nano_usd")
    found: dict[str, Any] = {"name": str(key), **row, "cost_usd": nano_usd / 1e9}
    if by == "day":
        found |= {"name": time.strftime("%Y-%m-%d", time.gmtime(key * _DAY_S)), "at": key * _DAY_S}
    if by == "run":
        found |= {"name": names.get(key, key), "run": key}
    return found


@router.get("/experiments", summary="Experiments that a spec may name")
async def list_experiments(caller: Reader, shared: Shared) -> Response:
    """Those that come with Proctor, and those that the server's settings name."""
    found = shared.reading.lists.get("experiments")
    if found is None:
        found = await shared.heavy(_experiments, shared.settings)
        shared.reading.lists.put("experiments", found)
    return answer(listed(found))


def _experiments(_: Store, settings: Settings) -> list[dict[str, Any]]:
    import os

    from proctor.experiments.describe import info
    from proctor.experiments.discover import discover

    sources = tuple(each for each in settings.experiments.split(os.pathsep) if each)
    found = [info(each) for each in discover(sources).experiments.values()]
    return [
        {
            "slug": each.slug,
            "summary": each.summary,
            "tags": list(each.tags),
            "open_params": each.open_params,
            "params": {
                name: {
                    "type": param.type,
                    "required": param.required,
                    "default": None if param.required else param.default,
                    "choices": list(param.choices),
                    "minimum": param.minimum,
                    "maximum": param.maximum,
                    "description": param.description,
                }
                for name, param in each.params.items()
            },
        }
        for each in found
    ]


@router.get("/stored-tasks", summary="Tasks that earlier runs brought")
async def list_stored_tasks(caller: Reader, shared: Shared) -> Response:
    """A spec may name them as `{task: NAME}`; with how often they were passed."""

    def read(store: Store) -> dict[str, Any]:
        known = {each["task"]: each for each in store.views.fleet.tasks(caller.project, 10_000)}
        items = []
        for each in store.service.uploads.stored_tasks(caller.project, limit=MOST):
            results = known.get(each.name, {})
            items.append(
                {
                    "name": each.name,
                    "digest": each.digest,
                    "last_run_at": each.last_run_at,
                    **{name: results.get(name, 0) for name in ("trials", "scored", "passed")},
                    "last_run": results.get("last_run"),
                }
            )
        return listed(items)

    return answer(await shared.store(read))
