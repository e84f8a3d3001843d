"""Change what becomes of a run: cancel, pause, resume, delete, rename."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.render.reporters import write_reports
from proctor.runfolder.read import RunData
from proctor.runfolder.write import RunFolder
from proctor.runs.coordinator import unfinished
from proctor.runs.holding import alone, check_free
from proctor.runs.running import refuse_imported
from proctor.server.problem import Problem
from proctor.server.state import State
from proctor.spec.grammar import wrong_name
from proctor.store.garbage import remove_orphans
from proctor.store.refs import run_id_of_folder
from proctor.store.store import Store

_OVER = {RunStatus.DONE, RunStatus.CANCELLED}
_GRACE_S = 600.0
"""A blob this young may be about to be referred to by another run."""


def cancel(store: Store, state: State, run_id: str) -> None:
    """End a run for good; what has ended is kept. A run that is over stays as it is."""
    info = store.run(run_id)
    if info.status in _OVER:
        return
    store.set_status(run_id, RunStatus.CANCELLED)
    running = store.workers(run_id)
    store.cancel(run_id)
    store.service.queue.want(run_id, wanted=False)
    if not running:
        _close_books(store, info, state)


def _close_books(store: Store, info: RunInfo, state: State) -> None:
    """Write summary and reports of what there is, because no other process will."""
    folder = Path(info.folder)
    if not info.folder or not folder.is_dir():
        return
    with alone(folder) as free:
        if free:
            RunFolder(folder, blobs=state.blobs).finish(RunData.from_store(store, info.id), write_reports)


def pause(store: Store, run_id: str) -> None:
    """Take a run out of the queue; trials that run are finished, no other begins."""
    info = store.run(run_id)
    if info.status in _OVER:
        raise Problem("conflict", f"The run is {info.status.value}; there is nothing to pause")
    if not store.service.ownership.place(run_id).wanted:
        if info.status is RunStatus.RUNNING:
            raise Problem(
                "run_held", "The run is executed by a command line, not by this server; stop it there"
            )
        return
    store.service.queue.want(run_id, wanted=False, event="run.paused")


def resume(
    store: Store, run_id: str, *, owner: str, errors: bool = False, budgets: Mapping[str, Any] | None = None
) -> None:
    """Put a run into the queue again; with `errors` what was lost is done again; budgets may be raised."""
    info = store.run(run_id)
    refuse_imported(info)
    if info.status is RunStatus.CANCELLED:
        raise Problem("conflict", "The run was cancelled and cannot go on; submit its spec again")
    given = {name: value for name, value in (budgets or {}).items() if value is not None}
    if given and info.kind != "task":
        raise Problem("bad_request", "Budgets are about the models of agents, and this run has experiments")
    if errors:
        check_free(store, run_id, Path(info.folder))
        store.reopen_lost(run_id)
    if given:
        store.set_resolved(structs.replace(info, resolved={**info.resolved, **given}))
    if not unfinished(store, run_id):
        raise Problem("conflict", "Nothing of the run is missing; lost trials are done again with 'errors'")
    if info.status is RunStatus.DONE:
        store.set_status(run_id, RunStatus.INTERRUPTED)
    store.service.queue.want(run_id, wanted=True, owner=owner, event="run.queued")


def delete(store: Store, state: State, run_id: str) -> None:
    """Remove a run: rows, blobs that nothing else uses, and the folder if its manifest names the run."""
    info = store.run(run_id)
    if info.status is RunStatus.RUNNING and run_id not in store.stalled():
        raise Problem("conflict", "The run is being executed; cancel it first")
    folder = Path(info.folder)
    orphans = store.delete_run(run_id)
    remove_orphans(store, state.blobs, orphans, grace_s=_GRACE_S)
    if info.folder and folder.is_dir() and not folder.is_symlink() and run_id_of_folder(folder) == run_id:
        shutil.rmtree(folder, ignore_errors=True)


def describe(
    store: Store,
    run_id: str,
    *,
    name: str | None = None,
    notes: str | None = None,
    tags: Sequence[str] | None = None,
) -> None:
    """Change what people say about a run."""
    if name is not None and (problem := wrong_name(name)):
        raise Problem("invalid", f"name: {problem}")
    given = {"name": name, "notes": notes, "tags": None if tags is None else tuple(tags)}
    changed = {key: value for key, value in given.items() if value is not None}
    if changed:
        store.set_words(structs.replace(store.run(run_id), **changed))
