"""Measure nothing a few times in the server, so that its forks find every path of the harness warm.

A fork pays for each page that it writes. Interpreted code is written while it adapts to what it sees, caches
are filled on first use: done here, before the heap is frozen, none of it happens in each child again.
"""

from __future__ import annotations

import random
import socket
from dataclasses import asdict
from typing import Any

from proctor.experiments.base import Experiment, ExperimentContext
from proctor.model.spec import Iterations
from proctor.trial.forkserver.wire import Link, SharedPage
from proctor.trial.point.measure import Point

TIMES = 20


class _Nothing(Experiment):
    """Does nothing, and says so."""

    def execute_once(self, context: ExperimentContext) -> dict[str, Any]:
        return {"index": context.iteration_index, "value": 1.5}


def rehearse() -> None:
    """Go through a whole point, over and over, and leave no trace but warm code."""
    state = random.getstate()
    page = SharedPage()
    request = {
        "run_id": "",
        "params": {},
        "seed": 0,
        "output_dir": ".",
        "run_dir": ".",
        "instruments_dir": ".",
        "instrument_names": [],
        "instruments": [],
        "iterations": asdict(Iterations()),
        "loops": 1,
        "gc": "disabled",
        "resident": True,
    }
    for _ in range(TIMES):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            random.seed(0)
            Point(request, page).run(_Nothing, Link(theirs.fileno(), page))
    random.setstate(state)
