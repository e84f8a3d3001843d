"""Measure one parameter point inside the measured process: construct, set up, warm up, time, tear down.

The timer covers `execute_once` and nothing else. Everything that the harness does besides happens between
slots: counting, collecting garbage, checking what was returned, keeping the row.
"""

from __future__ import annotations

import gc
import operator
import resource
import time
from itertools import repeat
from time import perf_counter_ns, process_time_ns

from proctor.trial.forkserver.page import PHASES
from proctor.trial.point.calibrate import StopRule, WarmupRule, calibrate_loops
from proctor.trial.point.context import PointContext
from proctor.trial.point.instruments import InstrumentSet, read_end
from proctor.trial.point.pace import LONGEST_SLOT_S, Pace
from proctor.trial.point.values import Checker, RefusedError, describe_failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from proctor.experiments.base import Experiment, ExperimentContext
    from proctor.trial.forkserver.page import RowWriter, SharedPage

CONSTRUCT, SETUP, WARMUP, EXECUTE, TEARDOWN, INSTRUMENT, END = map(PHASES.index, PHASES[1:8])
COLLECT_ABOVE = 2_000
"""Container objects made since the last collection, above which one happens before the next slot."""
_FULL_TRACEBACKS = 5
_SHORT_ERROR = 200
OWN_COLUMNS = ("iteration", "duration_s", "cpu_s", "involuntary_switches", "page_faults", "gc_collections")


def time_calls(
    call: Callable[[Any], Any],
    context: Any,
    loops: int,
    wall: Callable[[], int] = perf_counter_ns,
    cpu: Callable[[], int] = process_time_ns,
) -> tuple[Any, int, int]:
    """Call `loops` times; the last result, wall and CPU ns. The clocks are bound before user code runs."""
    result = None
    if loops == 1:
        cpu_ns = cpu()
        wall_ns = wall()
        result = call(context)
        wall_ns = wall() - wall_ns
        return result, wall_ns, cpu() - cpu_ns
    rounds = repeat(None, loops)
    cpu_ns = cpu()
    wall_ns = wall()
    for _ in rounds:
        result = call(context)
    wall_ns = wall() - wall_ns
    return result, wall_ns, cpu() - cpu_ns


class Point:
    """One parameter point from construction to teardown. Every row and the report go through the writer."""

    writer: RowWriter
    """Set when the process that will be measured exists."""

    def __init__(
        self, request: Mapping[str, Any], page: SharedPage, make_pace: Callable[..., Pace] = Pace
    ) -> None:
        self.request = request
        self.make_pace = make_pace
        self.page = page
        self.instruments = InstrumentSet(request["instruments"], request["instruments_dir"])
        self.checker = Checker()
        self.context = PointContext(
            run_id=request["run_id"],
            output_dir=request["output_dir"],
            run_dir=request["run_dir"],
            seed=request["seed"] % 2**32,
            instruments=tuple(request["instrument_names"]),
            extras={"project": request["project"]} if request.get("project") else {},
        )
        self.instruments.context = self.context
        self.loops = 1
        self.failures: list[dict[str, Any]] = []
        self.report: dict[str, Any] = {"notes": [], "phases_s": {}}
        self._collections = 0
        self._in_slots = 0
        self._experiment: Experiment | None = None
        self._prepare: Callable[[ExperimentContext], None] | None = None

    def run(self, make: Callable[[], Experiment], writer: RowWriter) -> None:
        """Setup, iterations, teardown. Teardown always runs once setup has begun."""
        self.writer = writer
        # A lane keeps its own collector off; measured code starts with Python's defaults.
        gc.enable()
        gc.callbacks.append(self._count_collection)
        before = _used()
        try:
            experiment = self._guarded("construct", CONSTRUCT, make)
            if experiment is None:
                return
            self._experiment = experiment
            if experiment.around_measuring:
                self._run_inside(experiment, experiment.around_measuring)
                return
            try:
                if self._guarded("setup", SETUP, lambda: experiment.setup(self.context) or True):
                    self._measure(experiment)
            finally:
                self._restore_gc()
                self._guarded("teardown", TEARDOWN, lambda: experiment.teardown(self.context))
        finally:
            gc.callbacks.remove(self._count_collection)
            self.page.mark(INSTRUMENT)
            self.report["instruments"] = self.instruments.close()
            self.page.mark(END)
            self._send_report(before)

    def _run_inside(
        self, experiment: Experiment, around: Callable[[ExperimentContext, Callable[[], None]], None]
    ) -> None:
        """The same with an experiment that calls us: its setup ends where our work begins."""
        began = ended = time.monotonic()
        phase, escaped = "setup", list[BaseException]()

        def work() -> None:
            nonlocal phase, ended
            self.writer.end_if_forked()
            self.report["phases_s"]["setup"] = time.monotonic() - began
            try:
                self._measure(experiment)
            except BaseException as error:
                escaped.append(error)
                raise
            finally:
                self._restore_gc()
                phase, ended = "teardown", time.monotonic()
                self.page.mark(TEARDOWN)

        self.page.mark(SETUP)
        try:
            around(self.context, work)
        except BaseException as error:  # noqa: BLE001 - as in `_guarded`
            self.writer.end_if_forked()
            if escaped:
                raise escaped[0] from None
            self.failures.append(describe_failure(phase, error))
        finally:
            self.writer.end_if_forked()
            self.page.clear()
            self.report["phases_s"][phase] = time.monotonic() - ended

    def _count_collection(self, phase: str, _: Mapping[str, int]) -> None:
        self._collections += phase == "start"

    def _guarded(self, phase: str, mark: int, action: Callable[[], Any]) -> Any:
        """Do one phase under its time limit; an exception is recorded and None is returned."""
        began = time.monotonic()
        self.page.mark(mark)
        try:
            return action()
        except BaseException as error:  # noqa: BLE001 - measured code may raise anything, SystemExit too
            self.writer.end_if_forked()
            self.failures.append(describe_failure(phase, error))
            return None
        finally:
            self.writer.end_if_forked()
            self.page.clear()
            self.report["phases_s"][phase] = time.monotonic() - began

    def _measure(self, experiment: Experiment) -> None:
        call = experiment.execute_once
        self._prepare = experiment.before_slot
        began = time.monotonic()
        self._freeze_gc()
        self._calibrate(call, experiment.slot_calls)
        self._warm_up(call)
        if self.loops > 1 or self.request["iterations"]["warmup"]:
            self._freeze_gc()
        warm = time.monotonic()
        self.report["phases_s"]["warmup"] = warm - began
        self.instruments.open()
        self._read_end("start")
        scheduled = _scheduled()
        try:
            self._work(call)
        finally:
            self.report["scheduled"] = list(map(operator.sub, _scheduled(), scheduled))
            self.report["phases_s"]["work"] = time.monotonic() - warm
            self._read_end("end")

    def _read_end(self, name: str) -> None:
        """For instruments that look from outside, which may look too seldom for a short point."""
        if self.request.get("samplers"):
            self.report.setdefault("ends", {})[name] = read_end()

    def _calibrate(self, call: Callable[[Any], Any], fixed: int) -> None:
        asked = fixed or self.request["loops"]
        if asked != "auto":
            self.loops = int(asked)
            return
        self.context.iteration_index = -1

        def time_slot(loops: int) -> float:
            self._before_slot()
            self._make_ready()
            self.page.mark(WARMUP, -1)
            wall_ns = time_calls(call, self.context, loops)[1]
            self.writer.end_if_forked()
            self.page.clear()
            return wall_ns / 1e9

        try:
            self.loops = calibrate_loops(time_slot)
        except BaseException as error:  # noqa: BLE001 - the measured iterations will record the same
            self.writer.end_if_forked()
            self.report["notes"].append(f"calibration failed ({type(error).__name__}); one call per slot")
        finally:
            self.page.clear()

    def _warm_up(self, call: Callable[[Any], Any]) -> None:
        rule = WarmupRule(self.request["iterations"]["warmup"])
        if rule.asked == 0:
            self.report["warmup"] = {"dropped": 0, "ended": "fixed"}
            return
        while rule.verdict is None:
            count = len(rule.times_s)
            index = -1 - count if rule.asked == "auto" else count - rule.asked
            self.context.iteration_index = index
            self._before_slot()
            self.page.mark(WARMUP, index)
            try:
                self._make_ready()
                _, wall_ns, _ = time_calls(call, self.context, self.loops)
            except BaseException as error:  # noqa: BLE001 - as in every slot
                self.writer.end_if_forked()
                self.failures.append(describe_failure("warmup", error))
                break
            finally:
                self.page.clear()
            self.writer.end_if_forked()
            rule.add(wall_ns / 1e9 / self.loops, wall_ns / 1e9)
        self.report["warmup"] = {
            "dropped": len(rule.times_s),
            "ended": rule.verdict or "failed",
            **({"first_s": rule.times_s[0], "last_s": rule.times_s[-1]} if rule.times_s else {}),
        }

    def _work(self, call: Callable[[Any], Any]) -> None:
        rule = StopRule(self.request["iterations"])
        began = time.monotonic()
        if known := self.request["pace"]:
            reason = self._work_when_calm(call, rule, self.make_pace(known), began)
        else:
            reason = rule.verdict(0.0)
        while reason is None:
            row = self._iteration(call, rule.good + rule.failed)
            self.writer.row({"row": row})
            rule.add(row.get("duration_s"))
            reason = rule.verdict(time.monotonic() - began)
        self.report["stopped"] = reason
        self.report["gc"] = {"policy": self.request["gc"], "collections_in_slots": self._in_slots}

    def _work_when_calm(
        self, call: Callable[[Any], Any], rule: StopRule, pace: Pace, began: float
    ) -> str | None:
        """Iterations between looks at the machine's pace. None: there is no calm, or a slot is too long."""
        since, reason, short = 0, None, True
        while reason is None and pace.patient and short:
            pace.await_calm()
            index = rule.good + rule.failed
            row = self._iteration(call, index)
            calm = pace.kept()
            self.writer.row({"row": row} if calm else {"row": row, "aside": True})
            rule.add(row.get("duration_s"), calm=calm)
            if pace.is_faster():
                since = index + 1
                rule.forget()
            short = row.get("duration_s", 0.0) * self.loops <= LONGEST_SLOT_S
            reason = rule.verdict(time.monotonic() - began)
        if short and reason is None and rule.enough:
            reason = "patience"
        found = short and (rule.enough or not rule.aside)
        if not found:
            rule.take_all()
        self.report["pace"] = pace.to_mapping() | {"short": short, "calm": found, "since": since}
        return reason

    def _iteration(self, call: Callable[[Any], Any], index: int) -> dict[str, Any]:
        """One slot and its row. Instruments are entered last and left first: they see little but the code."""
        self.context.iteration_index = index
        self._before_slot()
        try:
            self._make_ready()
        except BaseException as error:  # noqa: BLE001 - measured code may raise anything
            self.writer.end_if_forked()
            return self._failed(index, error)
        used = resource.getrusage(resource.RUSAGE_SELF)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        collections = self._collections
        self.page.mark(EXECUTE, index)
        self.instruments.enter()
        try:
            returned, wall_ns, cpu_ns = time_calls(call, self.context, self.loops)
            self.instruments.exit()
            self.writer.end_if_forked()
            after = resource.getrusage(resource.RUSAGE_SELF)
            after_children = resource.getrusage(resource.RUSAGE_CHILDREN)
            collected = self._collections - collections
            values = self.checker.plain(returned)
        except BaseException as error:  # noqa: BLE001 - measured code may raise anything
            self.instruments.exit()
            self.writer.end_if_forked()
            return self._failed(index, error)
        finally:
            self.page.clear()
        self._in_slots += collected
        children_s = _cpu_s(after_children) - _cpu_s(children)
        row = {
            "iteration": index,
            "duration_s": wall_ns / 1e9 / self.loops,
            "cpu_s": (cpu_ns / 1e9 + children_s) / self.loops,
            "involuntary_switches": after.ru_nivcsw - used.ru_nivcsw,
            "page_faults": after.ru_minflt - used.ru_minflt + after.ru_majflt - used.ru_majflt,
            "gc_collections": collected,
        }
        for name, value in values.items():
            row[f"reported_{name}" if name in OWN_COLUMNS else name] = value
        return row | self.instruments.metrics()

    def _failed(self, index: int, error: BaseException) -> dict[str, Any]:
        failure = describe_failure("execute_once", error)
        if isinstance(error, RefusedError):
            failure |= {"type": "ResultRefused", "traceback": ""}
        first = len(self.failures) < _FULL_TRACEBACKS
        if first:
            self.failures.append(failure | {"iteration": index})
        text = f"{failure['type']}: {failure['message']}"
        if first:
            return {"iteration": index, "error": text, "traceback": failure["traceback"]}
        return {"iteration": index, "error": text[:_SHORT_ERROR]}

    def _make_ready(self) -> None:
        """Let the experiment get ready for a slot; never timed."""
        if self._prepare is not None:
            self._prepare(self.context)

    def _before_slot(self) -> None:
        """With the collector off, cyclic garbage is collected here, between slots, when there is enough."""
        if self.request["gc"] == "disabled":
            gc.disable()
            if gc.get_count()[0] > COLLECT_ABOVE:
                gc.collect()

    def _freeze_gc(self) -> None:
        if self.request["gc"] == "disabled":
            young, middle, old = gc.get_count()
            # Collecting writes to many pages of a fresh process; little garbage is not worth it.
            if young > COLLECT_ABOVE or middle or old:
                gc.collect()
            gc.freeze()
            gc.disable()

    def _restore_gc(self) -> None:
        if self.request["resident"]:
            gc.unfreeze()
        gc.enable()

    def _send_report(self, before: tuple[Any, Any]) -> None:
        self.report["failures"] = self.failures
        self.report["notes"] += self._experiment.reader_notes if self._experiment else ()
        self.report["loops"] = self.loops
        self.report["not_finite"] = self.checker.not_finite
        self.report["used"] = [*map(tuple, before), *map(tuple, _used())]
        self.writer.send({"report": self.report})


def _used() -> tuple[Any, Any]:
    """What this process and its collected children have used, as the kernel counts it."""
    return resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)


def _scheduled() -> list[int]:
    """Nanoseconds that this thread has run, and has been ready without a CPU; empty if nobody counts."""
    try:
        with open("/proc/thread-self/schedstat", "rb", buffering=0) as file:  # noqa: PTH123 - in every trial
            return [int(each) for each in file.read(64).split()[:2]]
    except (OSError, ValueError):
        return []


def _cpu_s(used: resource.struct_rusage) -> float:
    return used.ru_utime + used.ru_stime
