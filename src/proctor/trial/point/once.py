"""Run one point a given number of times in a plain process, for programs that watch a whole process.

Started as `python -m proctor.trial.point.once`, its request as JSON on its input: parameters may be secret,
and everybody sees command lines. Nothing is timed here.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proctor.experiments.base import ExperimentContext
from proctor.experiments.describe import instantiate
from proctor.experiments.discover import find


def run(request: Mapping[str, Any]) -> None:
    """Set up, call as often as asked, tear down. What the experiment raises ends the process."""
    from proctor.trial.forkserver.child import seed_everything

    registered = find(request["slug"], request["sources"])
    with tempfile.TemporaryDirectory(prefix="proctor-") as folder:
        seed_everything(request["seed"])  # this process makes one point and ends
        experiment = instantiate(registered, request["params"])
        context = ExperimentContext(
            run_id=request["run_id"],
            output_dir=Path(folder),
            run_dir=Path(folder),
            seed=request["seed"] % 2**32,
        )
        context.extras["project"] = request.get("project", "")

        def work() -> None:
            gc.collect()
            gc.disable()
            for index in range(request["calls"]):
                context.iteration_index = index
                if experiment.before_slot:
                    experiment.before_slot(context)
                experiment.execute_once(context)

        if experiment.around_measuring:
            experiment.around_measuring(context, work)
            return
        experiment.setup(context)
        try:
            work()
        finally:
            experiment.teardown(context)


if __name__ == "__main__":
    run(json.load(sys.stdin))
