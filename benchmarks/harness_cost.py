"""What Proctor itself costs around a measured function: CPU per no-op trial, and the timer per call.

CPU is that of the controller, its fork server, lanes and children together, from the kernel's own accounts.
The floor printed beside it is a bare `os.fork()` and `_exit` on the same machine in the same minute: what no
harness that isolates points can go below.

    python benchmarks/harness_cost.py
    python benchmarks/harness_cost.py --trials 100,1000,10000 --json cost.json
    python benchmarks/harness_cost.py --through engine
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import tempfile
import time
from itertools import repeat
from pathlib import Path
from typing import Any

from machine_pace import MachinePace

from proctor.experiments.base import REGISTRY
from proctor.experiments.discover import find
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.spec import ExperimentBody, Spec
from proctor.model.trial import Lease
from proctor.store.blobs import open_blobs
from proctor.trial.experiment_trial import ExperimentExecutor
from proctor.trial.point.measure import time_calls

NO_OP = """
from proctor import Experiment, register_experiment

@register_experiment("harness_no_op")
class NoOp(Experiment):
    def __init__(self, point: int = 0):
        self.point = point

    def execute_once(self, context):
        return {}
"""


def cpu_s() -> float:
    """CPU of this process and of every process it has started and collected."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


async def through_executor(folder: Path, trials: int) -> None:
    REGISTRY.clear()
    # As planning does: servers then know which module to import.
    find("harness_no_op", [str(folder / "no_op.py")])
    executor = ExperimentExecutor(
        bodies=[ExperimentBody(experiment="harness_no_op")],
        run_id="bench",
        run_dir=folder / "run",
        sources=[str(folder / "no_op.py")],
        timeout_s=None,
        contended=False,
        blobs=open_blobs(folder / "blobs"),
        worker="bench",
    )
    try:
        for index in range(trials):
            trial = PlannedTrial(
                key=str(index),
                index=index,
                kind="experiment",
                subject="harness_no_op",
                subject_digest="",
                body=0,
                params={"point": index},
            )
            record = await executor.execute(trial, Lease("bench", str(index), index, "bench", 1, 1, 0.0))
            assert record.outcome == "passed", record.failure
    finally:
        await executor.close()


class Quiet:
    """A listener that says nothing."""

    def started(self, trial: PlannedTrial, lease: Lease) -> None:
        """Nothing."""

    def ended(self, trial: PlannedTrial, record: AttemptRecord, counts: bool) -> None:
        """Nothing."""


async def through_engine(folder: Path, trials: int) -> None:
    from proctor.engine.stop import Stop
    from proctor.runs import running as job
    from proctor.settings import Settings

    spec = Spec(
        name="harness_cost",
        experiments=(ExperimentBody(experiment="harness_no_op", sweep={"point": tuple(range(trials))}),),
        sources=(str(folder / "no_op.py"),),
    )
    settings = Settings(home=folder / "home", output_dir=folder / "results")
    await job.execute(job.create(spec, spec.to_mapping(), settings), listener=Quiet(), stop=Stop())


def cost(through: str, trials: int, scratch: Path) -> dict[str, Any]:
    """CPU and wall milliseconds per trial; what a run costs once is known from a run of one trial."""
    run = {"executor": through_executor, "engine": through_engine}[through]
    taken = []
    for count in (1, trials):
        folder = Path(tempfile.mkdtemp(dir=scratch))
        (folder / "no_op.py").write_text(NO_OP)
        before, began = cpu_s(), time.monotonic()
        asyncio.run(run(folder, count))
        taken.append((cpu_s() - before, time.monotonic() - began))
    (once_cpu, once_wall), (all_cpu, all_wall) = taken
    return {
        "through": through,
        "trials": trials,
        "cpu_ms_per_trial": 1000 * (all_cpu - once_cpu) / (trials - 1),
        "wall_ms_per_trial": 1000 * (all_wall - once_wall) / (trials - 1),
        "once_cpu_ms": 1000 * once_cpu,
    }


def fork_floor(rounds: int = 300) -> float:
    """CPU milliseconds of a bare fork and exit of this process, both sides."""
    before = cpu_s()
    for _ in range(rounds):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    return 1000 * (cpu_s() - before) / rounds


def timer_cost(rounds: int = 200) -> dict[str, float]:
    """What the timer adds to each call of a slot of 200 calls, the size for a function of 10 µs."""
    loops = 200
    empty, slot = [], []

    def nothing(_: Any) -> None:
        return None

    for _ in range(rounds):
        began = time.perf_counter_ns()
        for _ in repeat(None, loops):
            nothing(None)
        empty.append((time.perf_counter_ns() - began) / loops)
        slot.append(time_calls(nothing, None, loops)[1] / loops)
    began = time.perf_counter_ns()
    for _ in repeat(None, 100_000):
        pass
    loop_ns = (time.perf_counter_ns() - began) / 100_000
    began = time.perf_counter_ns()
    for _ in repeat(None, 10_000):
        time.perf_counter_ns()
        time.process_time_ns()
    clocks_ns = 2 * (time.perf_counter_ns() - began) / 10_000 / loops
    total = loop_ns + clocks_ns
    return {
        "loop_ns_per_call": loop_ns,
        "clocks_ns_per_call": clocks_ns,
        "slot_of_an_empty_call_ns": min(slot),
        "bare_loop_of_an_empty_call_ns": min(empty),
        "share_of_10_us": total / 10_000,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", default="100,1000", help="numbers of trials, separated by commas")
    parser.add_argument("--through", choices=("executor", "engine"), default="executor")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    floor_ms = fork_floor()
    print(f"load {os.getloadavg()[0]:.1f}; a bare fork and exit of this process: {floor_ms:.2f} ms CPU\n")
    print(f"{'trials':>8} {'CPU ms/trial':>13} {'wall ms/trial':>14} {'once, CPU ms':>13}")
    rows = []
    # Nothing is deleted before all is measured: ext4 without a journal makes files slowly where many were.
    with MachinePace() as pace, tempfile.TemporaryDirectory() as scratch:
        for trials in map(int, options.trials.split(",")):
            row = cost(options.through, trials, Path(scratch))
            rows.append(row)
            print(
                f"{trials:>8} {row['cpu_ms_per_trial']:>13.2f} {row['wall_ms_per_trial']:>14.2f} "
                f"{row['once_cpu_ms']:>13.0f}"
            )
    print(pace.text)
    timer = timer_cost()
    print(
        f"\ntimer per call of a calibrated slot: {10_000 * timer['share_of_10_us']:.0f} ns, "
        f"{timer['share_of_10_us']:.2%} of a 10 µs function"
    )
    if options.json:
        figures = {"floor_fork_cpu_ms": floor_ms, "load": os.getloadavg()[0], "runs": rows, "timer": timer}
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
