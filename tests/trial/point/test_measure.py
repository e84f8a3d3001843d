"""A point measured in this very process, where every frame that it sends can be read."""

from __future__ import annotations

import gc
import socket
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from proctor.experiments.base import Experiment, ExperimentContext
from proctor.model.spec import Iterations
from proctor.trial.forkserver.link import Link
from proctor.trial.forkserver.page import SharedPage
from proctor.trial.forkserver.wire import Decoder
from proctor.trial.point import once
from proctor.trial.point.measure import Point, time_calls


class Recorder(Experiment):
    """Keeps the index of each call; raises where its table says."""

    def __init__(self, fails: tuple[int, ...] = ()) -> None:
        self.calls: list[int] = []
        self.fails = fails

    def execute_once(self, context: ExperimentContext) -> dict[str, Any]:
        self.calls.append(context.iteration_index)
        if context.iteration_index in self.fails:
            raise ValueError(f"at {context.iteration_index}")
        return {"calls": len(self.calls)}


@pytest.fixture
def measure(tmp_path: Path):
    def run(experiment: Experiment, *, loops: Any = 1, policy: str = "disabled", **iterations: Any):
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        page = SharedPage()
        request = {
            "run_id": "run",
            "params": {},
            "seed": 3,
            "output_dir": str(tmp_path),
            "run_dir": str(tmp_path / "point"),
            "instruments_dir": str(tmp_path),
            "instrument_names": [],
            "instruments": [],
            "iterations": asdict(Iterations(**iterations)),
            "loops": loops,
            "gc": policy,
            "resident": True,
        }
        with ours, theirs:
            Point(request, page).run(lambda: experiment, Link(theirs.fileno(), page))
            ours.setblocking(False)
            frames = list(Decoder().feed(ours.recv(1 << 22)))
        return [each["row"] for each in frames if "row" in each], frames[-1]["report"]

    yield run
    gc.enable()
    gc.unfreeze()


def test_warm_up_counts_from_below_zero_up_to_the_first_iteration(measure):
    subject = Recorder()
    rows, report = measure(subject, warmup=2, measured=3)
    assert subject.calls == [-2, -1, 0, 1, 2]
    assert [row["iteration"] for row in rows] == [0, 1, 2]
    assert (report["warmup"]["dropped"], report["stopped"]) == (2, "count")


def test_warm_up_by_itself_counts_downwards(measure):
    subject = Recorder()
    _, report = measure(subject, warmup="auto", measured=1)
    dropped = report["warmup"]["dropped"]
    assert subject.calls == [*range(-1, -dropped - 1, -1), 0]


def test_a_warm_up_that_raises_is_recorded_and_the_iterations_still_run(measure):
    rows, report = measure(Recorder(fails=(-2,)), warmup=3, measured=2)
    assert len(rows) == 2
    assert report["warmup"]["ended"] == "failed"
    assert (report["failures"][0]["phase"], report["failures"][0]["message"]) == ("warmup", "at -2")


def test_a_calibration_that_raises_leaves_one_call_per_slot(measure):
    rows, report = measure(Recorder(fails=(-1,)), loops="auto", measured=2)
    assert report["loops"] == 1
    assert len(rows) == 2
    assert report["notes"] == ["calibration failed (ValueError); one call per slot"]


def test_only_the_first_tracebacks_are_kept_in_full(measure):
    rows, report = measure(Recorder(fails=tuple(range(9))), measured=10)
    assert [("traceback" in row) for row in rows] == [True] * 5 + [False] * 5
    assert len(report["failures"]) == 5
    assert rows[8]["error"] == "ValueError: at 8"
    assert "duration_s" in rows[9]


def test_the_collector_is_as_it_was_afterwards(measure):
    seen = []

    class Looks(Recorder):
        def execute_once(self, context: ExperimentContext) -> dict[str, Any]:
            seen.append(gc.isenabled())
            gc.enable()
            return {}

        def teardown(self, context: ExperimentContext) -> None:
            seen.append(gc.isenabled())

    measure(Looks(), measured=2)
    assert seen == [False, False, True]


def test_a_folder_is_made_when_it_is_asked_for_and_once(measure, tmp_path):
    class Writes(Recorder):
        def execute_once(self, context: ExperimentContext) -> dict[str, Any]:
            assert context.run_dir == tmp_path / "point"
            return {"there": context.run_dir.is_dir()}

    measure(Recorder())
    assert not (tmp_path / "point").exists()
    rows, _ = measure(Writes(), measured=2)
    assert [row["there"] for row in rows] == [True, True]


@pytest.mark.parametrize("loops", [1, 4])
def test_the_timer_is_read_right_before_and_right_after_the_calls(loops):
    events: list[str] = []

    def clock(name: str):
        ticks = iter((100, 107))
        return lambda: events.append(name) or next(ticks)

    result, wall_ns, cpu_ns = time_calls(
        lambda context: events.append("call") or context, "context", loops, clock("wall"), clock("cpu")
    )
    assert events == ["cpu", "wall", *["call"] * loops, "wall", "cpu"]
    assert (result, wall_ns, cpu_ns) == ("context", 7, 7)


def test_a_point_can_run_plainly_for_programs_that_watch_a_process(tmp_path):
    module = tmp_path / "plainly.py"
    module.write_text(
        "from pathlib import Path\n"
        "from proctor import Experiment, register_experiment\n"
        "@register_experiment('plainly')\n"
        "class Plainly(Experiment):\n"
        "    def __init__(self, log: str):\n"
        "        self.log = Path(log)\n"
        "    def note(self, word):\n"
        "        with self.log.open('a') as file: file.write(word)\n"
        "    def setup(self, context): self.note('s')\n"
        "    def execute_once(self, context): self.note(str(context.iteration_index))\n"
        "    def teardown(self, context): self.note('t')\n"
    )
    request = {"slug": "plainly", "sources": [str(module)], "seed": 1, "run_id": "", "calls": 3}
    once.run({**request, "params": {"log": str(tmp_path / "log")}})
    assert (tmp_path / "log").read_text() == "s012t"
