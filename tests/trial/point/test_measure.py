"""A point measured in this very process, where every frame that it sends can be read."""

from __future__ import annotations

import gc
import socket
import time
from dataclasses import asdict
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from proctor.experiments.base import Experiment, ExperimentContext
from proctor.model.spec import Iterations
from proctor.trial.forkserver.page import RowWriter, SharedPage
from proctor.trial.forkserver.wire import Decoder
from proctor.trial.point import once
from proctor.trial.point.measure import Point, time_calls
from proctor.trial.point.pace import Pace


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
    def run(
        experiment: Experiment,
        *,
        loops: Any = 1,
        policy: str = "disabled",
        pace: Any = None,
        **iterations: Any,
    ):
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
            "pace": pace and {"best_ns": 100, "patience_s": 1.0},
        }
        with ours, theirs:
            Point(request, page, pace or Pace).run(lambda: experiment, RowWriter(theirs.fileno(), page))
            ours.setblocking(False)
            frames = list(Decoder().feed(ours.recv(1 << 22)))
        run.aside = [each["row"]["iteration"] for each in frames if "aside" in each]
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


def gauges(*values: int):
    """A machine whose pace a table gives, the last value for ever; waiting takes no time."""

    def make(known: dict[str, Any]) -> Pace:
        following = chain(values, repeat(values[-1]))
        return Pace(known, gauge=lambda: next(following), sleep=lambda _: None)

    return make


WIDE = {"measured": "auto", "target_width": 50.0}


def test_iterations_of_a_disturbed_machine_are_set_aside(measure):
    rows, report = measure(Recorder(), pace=gauges(100, 170, 100, 100, 170, *[100] * 9), **WIDE)
    assert measure.aside == [0, 2]
    assert (len(rows), report["stopped"]) == (8, "interval")
    assert report["pace"]["calm"]
    assert report["pace"]["since"] == 0


def test_a_machine_that_is_never_calm_is_measured_as_it_is(measure):
    rows, report = measure(Recorder(), pace=gauges(170), **WIDE)
    assert report["stopped"] == "interval"
    assert len(rows) == 6
    assert not report["pace"]["calm"]


def test_what_was_calm_does_when_patience_is_over(measure):
    rows, report = measure(Recorder(), pace=gauges(*[100] * 9, 170), measured="auto", target_width=1e-9)
    assert report["stopped"] == "patience"
    assert report["pace"]["calm"]
    assert len(rows) - len(measure.aside) == 8


def test_a_faster_machine_than_was_known_begins_anew(measure):
    _, report = measure(
        Recorder(), pace=gauges(*[100] * 4, *[50] * 40), measured="auto", target_width=1e-9, max_measured=30
    )
    assert report["pace"]["since"] > 4
    assert report["pace"]["best_ns"] == 50


def test_long_slots_are_not_judged_by_their_ends(measure):
    class Slow(Recorder):
        def execute_once(self, context: ExperimentContext) -> dict[str, Any]:
            time.sleep(0.06)
            return super().execute_once(context)

    rows, report = measure(Slow(), pace=gauges(100, 170), **WIDE)
    assert len(rows) == 6
    assert not report["pace"]["short"]


def test_failures_count_whatever_the_machine_did(measure):
    rows, report = measure(Recorder(fails=tuple(range(99))), pace=gauges(170, 100), **WIDE)
    assert (len(rows), report["stopped"]) == (5, "failures")


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
