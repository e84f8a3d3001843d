"""How many trials may run in parallel, by the limit of open files of this process."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from proctor.processes import allow_open_files

if TYPE_CHECKING:
    from proctor.runs.running import ReadyRun

_OWN_FILES = 128
_FILES_PER_TRIAL = 12
"""Sockets, pipes and logs that a trial of a task may hold open at once."""
_log = logging.getLogger("proctor.runs")


def room_for(run: ReadyRun, parallel: int) -> int:
    """How many trials run in parallel: as many as requested, unless the limit of open files is too low."""
    return parallel if run.info.kind != "task" else room_of_files(parallel)


def room_of_files(parallel: int) -> int:
    """As many trials of tasks as were requested, or as the limit of open files allows."""
    allowed = allow_open_files()
    room = max(1, (allowed - _OWN_FILES) // _FILES_PER_TRIAL)
    if room < parallel:
        _log.warning(
            "%d parallel trials need more open files than the limit of %d (ulimit -n); "
            "only %d run in parallel",
            parallel,
            allowed,
            room,
        )
    return min(parallel, room)
