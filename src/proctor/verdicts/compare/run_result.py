"""Read a RunResult (`result.json`) as the run of one trial that it is, and so as a stored run is read.

Whatever a comparison takes from a stored run (waiting for a CPU, how it was measured, who is to blame) it
takes from the file too: the same results give one answer. Files come from strangers: what has the wrong type
is absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord, Failure
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.quantity import number
from proctor.runfolder.read import RunData, TrialResult, metric_of
from proctor.verdicts.compare.results import ResultSet, from_run, samples_of

_PASSED = {"", "passed", "success", "completed", "ok"}
"""How a RunResult of an earlier version, or of the framework before it, says that all went well."""


def is_run_result(document: Mapping[str, Any]) -> bool:
    """Whether a document has the shape of a RunResult."""
    return "run_id" in document and isinstance(document.get("iteration_metrics"), list)


def run_result(document: Mapping[str, Any], metrics: tuple[str, ...] = ()) -> ResultSet:
    """One side with a single point or task; without `metrics` it has the values of every metric."""
    kind = "task" if isinstance(document.get("task"), str) else "experiment"
    planned = _planned(document, kind)
    record = _record(document, planned.key)
    info = _info(document, kind)
    data = RunData(info, (TrialResult(planned, (record,), record),))
    known = _every_metric(record)
    found = from_run(data, metrics or known or (metric_of(kind),), source="result")
    return replace(found, metrics=known)


def _planned(document: Mapping[str, Any], kind: str) -> PlannedTrial:
    subject = document.get("task") if kind == "task" else document.get("experiment") or document.get("name")
    return PlannedTrial(
        key=str(document.get("key") or ""),
        index=0,
        kind="task" if kind == "task" else "experiment",
        subject=str(subject or "experiment"),
        subject_digest="",
        body=0,
        params=_mapping(document.get("parameters")),
        agent=_text(document.get("agent")),
        model=_text(document.get("model")),
    )


def _record(document: Mapping[str, Any], key: str) -> AttemptRecord:
    status = str(document.get("outcome") or document.get("status") or "")
    passed = Outcome.PASSED if status in _PASSED else Outcome.FAILED
    failure = _mapping(document.get("error"))
    return AttemptRecord(
        key=key,
        number=1,
        outcome=Outcome(status) if status in set(Outcome) else passed,
        started_at=number(document.get("started_at")) or 0.0,
        ended_at=number(document.get("ended_at")) or 0.0,
        reward=number(document.get("reward")),
        failure=_failure(failure) if failure else None,
        phases_s=_mapping(document.get("phases_s")),
        metrics=_mapping(document.get("metrics")),
        iterations=tuple(_row(_mapping(row)) for row in document["iteration_metrics"]),
        ledger=_mapping(document.get("ledger")),
        usage=_mapping(document.get("usage")),
        image=_mapping(document.get("image")),
    )


def _row(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """One iteration; older files have its metrics one level deeper."""
    inner = _mapping(found.get("metrics"))
    return (
        {**inner, **{name: value for name, value in found.items() if name != "metrics"}} if inner else found
    )


def _failure(found: Mapping[str, Any]) -> Failure:
    phase, kind = str(found.get("phase") or "unknown"), str(found.get("type") or "error")
    return Failure(phase=phase, type=kind, message=str(found.get("message") or ""))


def _info(document: Mapping[str, Any], kind: str) -> RunInfo:
    return RunInfo(
        id=str(document["run_id"]),
        name=str(document.get("name") or ""),
        kind=kind,
        status=RunStatus.DONE,
        created_at=0.0,
        seed=0,
        total=1,
        done=1,
        resolved=_mapping(document.get("spec")),
        environment=_mapping(document.get("environment")),
        vcs=_mapping(document.get("vcs")),
    )


def _every_metric(record: AttemptRecord) -> tuple[str, ...]:
    """What has a number somewhere; a label is not a metric."""
    rows = {name for row in record.iterations for name, value in row.items() if number(value) is not None}
    return tuple(sorted(rows | {name for name in record.metrics if samples_of(record, name)}))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
