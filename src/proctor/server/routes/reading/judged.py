"""`/api/runs/{run}/verdict` and `/gate`: what a run was made to decide: gate, race, certificates, perf."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from proctor.errors import ProctorError
from proctor.model.document import Document
from proctor.model.run import Execution, RunInfo
from proctor.runfolder.files import read_document
from proctor.runs.process_resources import Resources
from proctor.server.auth.caller import Reader, Shared, VisibleRun
from proctor.server.problem import Problem
from proctor.server.reading.documents import page_document, page_mapping
from proctor.server.reading.made_once import made_once
from proctor.server.reading.reading import Reading
from proctor.server.route import Route, answer
from proctor.store.store import Store

router = APIRouter(prefix="/api/runs/{run}", tags=["runs"], route_class=Route)

PERF = "perf.json"
"""The document that `proctor perf` leaves in the run's folder."""


@router.get("/verdict", summary="What a run was made to decide")
async def show_verdict(caller: Reader, shared: Shared, run: VisibleRun) -> Response:
    """The document of its gate, its race, its certificates or its measured harness; 404 without one.

    A gate is judged again with the rules of the spec, so that what would change its verdict can be told.
    """
    make = partial(_verdict, run=run, project=caller.project, resources=shared.resources)
    return await made_once(shared, ("verdict", run, caller.project), [run], make)


@router.get("/gate", summary="The verdict of a run's gates")
async def show_gate(caller: Reader, shared: Shared, run: VisibleRun) -> Response:
    """As it was judged when the run ended, with every rule; 404 for a run that no gate has judged."""
    return answer(await shared.store(_kept, run))


def _kept(store: Store, run: str) -> Mapping[str, Any]:
    from proctor.render.results.gate import kept_verdict

    if found := kept_verdict(store.run(run)):
        return found
    raise Problem("not_found", f"No gate has judged run {run}: it has none, goes on, or could not be judged")


def _verdict(
    store: Store, _: Reading, *, run: str, project: str | None, resources: Resources
) -> dict[str, Any]:
    info = store.run(run)
    if info.execution is Execution.PERF:
        return _perf(info)
    makers: dict[Execution | None, Callable[[], Document]] = {
        Execution.VET: partial(_vet, store, info),
        Execution.RACE: partial(_race, store, info),
    }
    make = makers.get(info.execution) or partial(_gate, store, info, project, resources)
    return page_document(make(), [(run, info.folder)])


def _vet(store: Store, info: RunInfo) -> Document:
    from proctor.render.results.vet import certificates
    from proctor.runs.vet.certificates import certificates_of

    return certificates(certificates_of(store, info.id), run_id=info.id, folder=Path(info.folder))


def _race(store: Store, info: RunInfo) -> Document:
    from proctor.render.results.race import race_document
    from proctor.runfolder.read import RunData
    from proctor.verdicts.race.judge import judge_race

    return race_document(judge_race(RunData.from_store(store, info.id)), info)


def _perf(info: RunInfo) -> dict[str, Any]:
    if not info.folder or not Path(info.folder, PERF).is_file():
        raise Problem("not_found", f"Run {info.id} left no {PERF} in its folder: it was stopped, or is older")
    return page_mapping(read_document(Path(info.folder), PERF), info.folder, [(info.id, info.folder)])


def _gate(store: Store, info: RunInfo, project: str | None, resources: Resources) -> Document:
    from proctor.render.results import compare
    from proctor.render.results.gate import gate
    from proctor.verdicts.gate.open import comparison_behind, judge, stored_baseline, stored_input
    from proctor.verdicts.gate.rules import read_rules

    gates = info.resolved.get("gates")
    if not isinstance(gates, list | tuple) or not gates:
        raise Problem("not_found", f"The spec of run {info.id} has no gates")
    rules = read_rules(gates)
    home = project or store.service.ownership.place(info.id).project
    try:
        before = stored_baseline(store, rules, resources.settings, project=home, name=info.name)
    except ProctorError as error:
        raise Problem("conflict", f"The gate cannot be judged: {error}") from error
    held = before.run.results if before.run else None
    run = stored_input(store, info.id, rules)
    found = judge(run, rules, before, resources.stores, project=home)
    behind = comparison_behind(run, rules, before, resources.stores, project=home)
    evidence = (
        compare.evidence(behind, held, run.results, folder=Path(info.folder or "."))
        if behind and held
        else ()
    )
    return gate(found, evidence=evidence, folder=Path(info.folder or "."))
