"""One measurement of nothing in a fork, to see which pages every measured process writes; see `pinned`."""

from __future__ import annotations

import marshal
import os

from proctor.experiments.base import Experiment, Registered
from proctor.trial.forkserver.child import Child
from proctor.trial.forkserver.page import SharedPage
from proctor.trial.forkserver.pinned import pin, written_by

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from proctor.experiments.base import ExperimentContext


class _Nothing(Experiment):
    """Does nothing."""

    def execute_once(self, context: ExperimentContext) -> dict[str, Any]:
        return {"index": context.iteration_index, "value": 1.5}


_NOTHING = Registered(slug="", cls=_Nothing)
_REQUEST = {
    "number": 0,
    "run_id": "",
    "params": {},
    "fitted": ({}, (), {}),
    "seed": 0,
    "output_dir": ".",
    "run_dir": ".",
    "instruments_dir": ".",
    "instrument_names": [],
    "instruments": [],
    "iterations": {"warmup": 0, "measured": 1},
    "loops": 1,
    "gc": "disabled",
    "resident": True,
    "pace": None,
}


def pin_what_it_writes() -> int | None:
    """Rehearse in a fork, as measured processes live, and pin what that wrote; see `pinned.pin`."""
    silence = os.open(os.devnull, os.O_WRONLY)
    ours, theirs = os.pipe()
    child = Child(_NOTHING, SharedPage(), stream=theirs, outputs=(silence, silence))
    order = marshal.dumps(_REQUEST)
    try:
        return pin(written_by(lambda: child.live(order)))
    except OSError:
        # Without /proc, say. Forks are dearer then, and as good.
        return None
    finally:
        for handle in (silence, ours, theirs):
            os.close(handle)
