"""Clear what is old: the files of runs that ended longer ago than their project keeps them.

Results, scores and notes stay. Runs that a baseline is pinned to keep everything, and so do trials with a
label or a comment.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from proctor.errors import ProctorError
from proctor.model.place import attempt_folder, trial_folder
from proctor.runfolder.remove import is_run_folder
from proctor.runs.actions import GRACE_S
from proctor.server.state import State
from proctor.store.garbage import remove_orphans
from proctor.store.store import Store
from proctor.verdicts.gate.baselines import read_baselines

_log = logging.getLogger("proctor.server")

PINNED = "pinned"
"""A tag that keeps the files of a run."""


def clear_old(store: Store, state: State) -> list[str]:
    """Remove the files of old runs; which runs."""
    cleared = []
    pinned = {each.run_id for each in read_baselines(state.settings.baselines).values()}
    for run_id in store.service.retention.old_runs():
        if run_id in pinned or PINNED in store.run(run_id).tags:
            continue
        try:
            _clear(store, state, run_id)
        except (OSError, ProctorError) as error:
            _log.warning("run %s could not be cleared: %s", run_id, error)
        else:
            cleared.append(run_id)
    return cleared


def _clear(store: Store, state: State, run_id: str) -> None:
    info = store.run(run_id)
    marked = store.service.retention.marked(run_id)
    kept: set[str] = set()
    folders: list[str] = []
    for row in store.attempts(run_id):
        if row.trial.index in marked:
            kept |= {each.digest for each in row.record.artifacts}
        else:
            place = attempt_folder(row.trial, row.record.number)
            folders.append(place if row.trial.kind == "task" else trial_folder(row.trial))
    orphans = store.service.retention.clear(run_id, kept)
    remove_orphans(store, state.blobs, orphans, grace_s=GRACE_S)
    folder = Path(info.folder)
    if info.folder and is_run_folder(folder, run_id):
        for place in folders:
            shutil.rmtree(folder / place, ignore_errors=True)
