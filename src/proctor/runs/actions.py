"""Change what becomes of a run: cancel, pause, resume, delete. For the server and the command line.

What executes runs is imported where it is needed: `proctor rm` starts as quickly as a command that reads.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import structs

from proctor.errors import RunHeldError, RunStateError, UsageError
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.settings import Settings
from proctor.store.blobs import Blobs
from proctor.store.garbage import remove_orphans
from proctor.store.store import Store

_log = logging.getLogger("proctor.runs")

FINAL = frozenset({RunStatus.DONE, RunStatus.CANCELLED})
GRACE_S = 600.0
"""A blob this young may be about to be referred to by a run that is being created: it is put before."""


@dataclass(frozen=True, slots=True)
class Cancellation:
    """What a cancellation did."""

    before: RunInfo
    trials: int = 0
    """How many will not run."""
    workers: tuple[str, ...] = ()
    """Who was executing some of them."""

    @property
    def was_over(self) -> bool:
        """Whether there was nothing to cancel."""
        return self.before.status in FINAL


@dataclass(frozen=True, slots=True)
class Deletion:
    """What a deletion removed."""

    blobs: int
    left_blobs: int
    """Those that are too young to go, or that another run has come to use meanwhile."""
    kept_folder: str = ""
    """Why its folder is still there."""


def cancel(store: Store, blobs: Blobs, run_id: str) -> Cancellation:
    """End a run for good; what has ended is kept. A run that is over stays as it is."""
    info = store.run(run_id)
    if info.status in FINAL:
        return Cancellation(info)
    store.set_status(info.id, RunStatus.CANCELLED)
    workers = store.workers(info.id)
    ended = store.cancel(info.id)
    store.service.queue.want(info.id, wanted=False)
    if not workers:
        _write_final_reports(store, info, blobs)
    return Cancellation(info, ended, tuple(workers))


def _write_final_reports(store: Store, info: RunInfo, blobs: Blobs) -> None:
    """Summary and reports of what there is, because no other process will write them."""
    from proctor.render.reporters import write_reports
    from proctor.runfolder.read import RunData
    from proctor.runfolder.write import RunFolder
    from proctor.runs.holding import alone

    folder = Path(info.folder)
    if not info.folder or not folder.is_dir():
        return
    with alone(folder) as free:
        if free:  # else the process that executes it writes them
            RunFolder(folder, blobs=blobs).finish(RunData.from_store(store, info.id), write_reports)


def pause(store: Store, run_id: str) -> None:
    """Take a run out of the queue; trials that run are finished, no other begins."""
    info = store.run(run_id)
    if info.status in FINAL:
        raise RunStateError(f"The run is {info.status.value}; there is nothing to pause")
    if not store.service.ownership.place(run_id).wanted:
        if info.status is RunStatus.RUNNING:
            raise RunHeldError("The run is executed by a command line, not by this server; stop it there")
        return
    store.service.queue.want(run_id, wanted=False, event="run.paused")


def resume(
    store: Store, run_id: str, *, owner: str, errors: bool = False, budgets: Mapping[str, Any] | None = None
) -> None:
    """Put a run into the queue again; with `errors` what was lost is done again; budgets may be raised."""
    from proctor.runs.coordinator import unfinished
    from proctor.runs.holding import check_free
    from proctor.runs.running import refuse_imported

    info = store.run(run_id)
    refuse_imported(info)
    if info.status is RunStatus.CANCELLED:
        raise RunStateError("The run was cancelled and cannot go on; submit its spec again")
    given = {name: value for name, value in (budgets or {}).items() if value is not None}
    if given and info.kind != "task":
        raise UsageError("Budgets are about the models of agents, and this run has experiments")
    if errors:
        check_free(store, run_id, Path(info.folder))
        store.reopen_lost(run_id)
    if given:
        store.set_resolved(structs.replace(info, resolved={**info.resolved, **given}))
    if not unfinished(store, run_id):
        raise RunStateError("Nothing of the run is missing; lost trials are done again with 'errors'")
    if info.status is RunStatus.DONE:
        store.set_status(run_id, RunStatus.INTERRUPTED)
    store.service.queue.want(run_id, wanted=True, owner=owner, event="run.queued")


def delete(
    store: Store, blobs: Blobs, settings: Settings, run_id: str, *, keep_folder: bool = False
) -> Deletion:
    """Remove a run: rows, blobs that nothing else uses, and its folder if that is surely the run's own."""
    from proctor.runfolder.remove import remove_run_folder

    info = store.run(run_id)
    if info.status is RunStatus.RUNNING and info.id not in store.stalled():
        raise RunStateError("The run is being executed; cancel it first")
    orphans = store.delete_run(info.id)
    removed = remove_orphans(store, blobs, orphans, grace_s=GRACE_S)
    left = len(orphans) - removed
    if keep_folder or not info.folder:
        return Deletion(removed, left)
    others = [Path(path) for path in store.folders_below(info.folder)]
    spared = [Path.cwd(), Path.home(), settings.home.absolute(), *others]
    kept = remove_run_folder(Path(info.folder), info.id, spared)
    if kept:
        _log.info("run %s was deleted; its folder %s was kept: %s", info.id, info.folder, kept)
    return Deletion(removed, left, kept)
