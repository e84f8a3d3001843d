"""Turn what came back from the passes over a point into one attempt record: outcome, numbers, warnings."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from proctor.instruments.base import Resolved
from proctor.model.outcome import Outcome
from proctor.model.record import Artifact, AttemptRecord, Failure
from proctor.model.spec import ExperimentBody
from proctor.model.trial import Lease
from proctor.processes import Usage, describe_status, from_rusage
from proctor.trial.forkserver.lane_client import Pass
from proctor.trial.forkserver.wire import Message
from proctor.trial.noise import judge
from proctor.trial.point.calibrate import aggregate, median
from proctor.trial.point.instruments import with_ends

_COUNTS = tuple(each.name for each in fields(Usage))
_CORES = os.cpu_count() or 1
_STOPPED = {
    "interval": "the interval of the median was narrow enough",
    "max_time_s": "max_time_s was spent before the interval was narrow enough",
    "max_measured": "max_measured was reached before the interval was narrow enough",
    "failures": "every iteration so far had failed",
    "patience": "waiting for a calm machine took too long",
}
CONTENDED = "timings are contended: points ran in parallel (parallelism > 1)"
SHARED = (
    "isolation: none: points share one process, so earlier points may have warmed it and memory use adds up"
)


@dataclass(slots=True)
class Passes:
    """Everything that one attempt returned."""

    folder: Path
    resolved: Resolved
    timed: Pass = field(default_factory=Pass)
    own: dict[str, Pass] = field(default_factory=dict)
    wrapped: dict[str, dict[str, Any]] = field(default_factory=dict)
    instruments_s: float = 0.0
    artifacts: list[Artifact] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def has_files(self) -> bool:
        """Whether any pass left a file."""
        return bool(self.wrapped) or any(
            each.exit.get("files", True) for each in (self.timed, *self.own.values())
        )


def build_record(
    passes: Passes,
    *,
    lease: Lease,
    body: ExperimentBody,
    began_ns: int,
    started_at: float,
    ended_at: float,
    contended: bool,
    worker: str,
) -> AttemptRecord:
    """The whole attempt."""
    timed = passes.timed
    outcome, failure = judge_pass(timed)
    rows, aside = counting(timed)
    noise, warnings = judge(
        rows,
        timed.exit.get("noise", {}),
        asked_effect=body.iterations.target_width,
        cores=_CORES,
        scheduled=(timed.report or {}).get("scheduled"),
    )
    used = _resources(timed)
    ledger = used | _circumstances(timed) | aside
    ledger |= {"noise": noise, "instruments": _instruments(passes, used.get("cpu_s", 0.0))}
    metrics = aggregate(rows)
    for name, each in passes.own.items():
        mine = [
            {column: value for column, value in row.items() if column.startswith(f"{name}.")}
            for row in each.rows.values()
        ]
        metrics |= aggregate(mine)
    return AttemptRecord(
        key=lease.key,
        number=lease.attempt,
        outcome=outcome,
        started_at=started_at,
        ended_at=ended_at,
        failure=failure,
        phases_s=_phases(passes, began_ns),
        metrics=metrics,
        iterations=tuple(rows),
        ledger=ledger,
        artifacts=tuple(passes.artifacts),
        notes=tuple(_notes(passes, body, contended=contended, ledger=ledger, warnings=warnings)),
        worker=worker,
    )


def counting(timed: Pass) -> tuple[list[Message], dict[str, Any]]:
    """The iterations that count, and a summary of those during which the machine was slower."""
    ordered = sorted(timed.rows.items())
    pace = (timed.report or {}).get("pace")
    if not pace or not pace["short"]:
        return [row for _, row in ordered], {}
    kept: list[Message] = []
    slower: list[Message] = []
    for index, row in ordered:
        disturbed = pace["calm"] and "error" not in row and (index in timed.aside or index < pace["since"])
        (slower if disturbed else kept).append(row)
    facts = {name: pace[name] for name in ("calm", "best_ns", "waited_s")} | {"set_aside": len(slower)}
    if slower and (usual := median([row["duration_s"] for row in kept if "duration_s" in row])):
        facts["times_slower"] = round(median([row["duration_s"] for row in slower]) / usual, 3)
    return kept, {"pace": facts}


def failed_record(
    outcome: Outcome, failure: Failure, *, lease: Lease, started_at: float, ended_at: float, worker: str
) -> AttemptRecord:
    """An attempt that never came as far as a measured process."""
    return AttemptRecord(
        key=lease.key,
        number=lease.attempt,
        outcome=outcome,
        started_at=started_at,
        ended_at=ended_at,
        failure=failure,
        worker=worker,
    )


def judge_pass(done: Pass) -> tuple[Outcome, Failure | None]:
    """How a pass ended, and what is to be said about it."""
    exit_ = done.exit
    if done.broken:
        message = f"the results could not be read: {done.broken}; the process was killed"
        return Outcome.AGENT_ERROR, Failure(phase="execute_once", type="BadStream", message=message)
    if exit_["timed_out"]:
        return Outcome.AGENT_TIMEOUT, _timeout(exit_)
    if done.report is None:
        return _died(exit_)
    failures = done.report["failures"]
    if not failures:
        return Outcome.PASSED, None
    # What came first is the cause; a failing teardown is often its consequence.
    first = failures[0]
    failure = Failure(**{name: first[name] for name in ("phase", "type", "message", "traceback")})
    return (Outcome.INVALID if first["phase"] == "construct" else Outcome.FAILED), failure


def _timeout(exit_: Mapping[str, Any]) -> Failure:
    where = exit_["phase"]
    which = f" (iteration {exit_['iteration']})" if where in {"execute_once", "warmup"} else ""
    message = (
        f"{where}{which} did not end within its time limit; {exit_['killed']} "
        f"{'process was' if exit_['killed'] == 1 else 'processes were'} killed"
    )
    return Failure(phase=where, type="Timeout", message=message, traceback=exit_.get("last_words", ""))


def _died(exit_: Mapping[str, Any]) -> tuple[Outcome, Failure]:
    where, status = exit_["phase"], exit_["status"] or 0
    words = exit_.get("last_words", "")
    if where == "harness":
        return Outcome.SANDBOX_ERROR, Failure(
            phase="start", type="HarnessError", message="the harness itself failed", traceback=words
        )
    how = describe_status(status)
    if where == "link closed":
        message = "the measured code closed the harness's socket, so nothing more could be recorded"
    elif status == 9:
        message = f"the process was killed in {where} by {how}: often by the kernel when memory runs out"
    else:
        message = f"the process ended in {where} with {how}"
    which = f", iteration {exit_['iteration']}" if where == "execute_once" else ""
    return Outcome.AGENT_ERROR, Failure(
        phase=where, type="ProcessDied", message=message + which, traceback=words
    )


def _phases(passes: Passes, began_ns: int) -> dict[str, float]:
    timed = passes.timed
    taken = timed.report["phases_s"] if timed.report else {}
    phases = {"start": max(0.0, (timed.exit.get("forked_ns", began_ns) - began_ns) / 1e9)}
    phases["setup"] = taken.get("construct", 0.0) + taken.get("setup", 0.0)
    for name in ("warmup", "work", "teardown"):
        if name in taken:
            phases[name] = taken[name]
    if not timed.report and "ended_ns" in timed.exit:
        phases["work"] = (timed.exit["ended_ns"] - timed.exit["forked_ns"]) / 1e9
    if passes.own or passes.wrapped:
        phases["instruments"] = passes.instruments_s
    return phases


def _circumstances(timed: Pass) -> dict[str, Any]:
    report = timed.report or {}
    ledger: dict[str, Any] = {}
    for name in ("loops", "gc", "warmup", "stopped"):
        if name in report:
            ledger[name] = report[name]
    ledger["output_bytes"] = timed.exit.get("output_bytes", 0)
    ledger["ended_processes"] = timed.exit.get("killed", 0)
    return ledger


def _resources(timed: Pass) -> dict[str, Any]:
    """What the measured process used: by its own account, or by the kernel's when it died without one."""
    if timed.report is None:
        raw = timed.exit.get("used")
        if not raw:
            return {}
        total = from_rusage(raw)
        return {name: getattr(total, name) for name in _COUNTS} | {"cpu_s": total.cpu_s}
    before, children_before, after, children_after = map(from_rusage, timed.report["used"])
    children_cpu_s = children_after.cpu_s - children_before.cpu_s
    return {name: getattr(after, name) - getattr(before, name) for name in _COUNTS} | {
        "cpu_s": after.cpu_s - before.cpu_s + children_cpu_s,
        "children_cpu_s": children_cpu_s,
        "peak_rss_bytes": after.peak_rss_bytes,
        "start_rss_bytes": before.peak_rss_bytes,
    }


def _instruments(passes: Passes, spent_s: float) -> dict[str, Any]:
    """What each instrument says, and what it cost: CPU per call against the timed pass."""
    timed = passes.timed
    found: dict[str, Any] = {}
    riding = {**((timed.report or {}).get("instruments") or {}), **timed.exit.get("samplers", {})}
    ends = (timed.report or {}).get("ends") or {}
    for name, said in riding.items():
        if name == "psutil" and "summary" in said and len(ends) == 2:
            said = {**said, "summary": with_ends(said["summary"], ends)}  # noqa: PLW2901 - with more in it
        found[name] = {"rides_along": True, **said}
        sampling_s = said.get("summary", {}).get("sampling_cpu_s")
        if sampling_s is not None and spent_s:
            found[name]["cpu_ratio"] = 1 + sampling_s / spent_s
    plain = _median_cpu_s(timed)
    for name, each in passes.own.items():
        said = ((each.report or {}).get("instruments") or {}).get(name, {})
        _, failure = judge_pass(each)
        entry = {"rides_along": False, "iterations": len(each.good_rows()), **said}
        if failure is not None:
            entry["error"] = f"{failure.phase}: {failure.type}: {failure.message}"
        slowed = _median_cpu_s(each)
        if plain and slowed:
            entry["cpu_ratio"] = slowed / plain
        found[name] = entry
    found |= {name: {"rides_along": False, **said} for name, said in passes.wrapped.items()}
    for name, entry in found.items():
        mine = [each.name for each in passes.artifacts if each.name.startswith(f"{name}/")]
        if mine:
            entry["artifacts"] = mine
    return found


def _median_cpu_s(done: Pass) -> float | None:
    values = [row["cpu_s"] for row in done.good_rows()]
    return median(values) if values else None


def _notes(
    passes: Passes,
    body: ExperimentBody,
    *,
    contended: bool,
    ledger: Mapping[str, Any],
    warnings: Sequence[str],
) -> Iterator[str]:
    """Every warning that a reader of the numbers needs."""
    if contended:
        yield CONTENDED
    if body.isolation == "none":
        yield SHARED
    yield from warnings
    aside = ledger.get("pace", {}).get("set_aside", 0)
    yield from _report_notes(passes.timed.report or {}, len(passes.timed.rows) - aside)
    if aside:
        yield "iterations during which the machine was slower do not count: see ledger.pace for the number"
    yield from _exit_notes(passes.timed.exit)
    for name, entry in ledger["instruments"].items():
        if "error" in entry:
            yield f"instrument '{name}' failed: {entry['error']}"
    yield from passes.notes


def _report_notes(report: Mapping[str, Any], count: int) -> Iterator[str]:
    yield from report.get("notes", ())
    if report.get("stopped") in _STOPPED:
        yield f"measured: auto stopped after {count} iterations: {_STOPPED[report['stopped']]}"
    if report.get("pace", {}).get("short") and not report["pace"]["calm"]:
        yield "the machine never reached its full speed: these times are from a disturbed machine"
    if report.get("warmup", {}).get("ended") in {"time", "count"}:
        yield "warmup: auto gave up waiting: the times were still falling"
    for name, times in report.get("not_finite", {}).items():
        yield f"'{name}' was NaN or infinite {times} times; kept as null and left out of the aggregates"
    for failure in report.get("failures", ())[1:]:
        if failure["phase"] == "teardown":
            yield f"teardown failed too: {failure['type']}: {failure['message']}"


def _exit_notes(exit_: Mapping[str, Any]) -> Iterator[str]:
    if exit_.get("phase") == "link closed":
        yield "the measured code closed file descriptors of the harness"
    if exit_.get("killed") and not exit_.get("timed_out"):
        yield (
            f"processes started by the trial were still running at its end and were killed: {exit_['killed']}"
        )
    if exit_.get("unkillable"):
        yield f"processes that could not be killed: {exit_['unkillable']}"
