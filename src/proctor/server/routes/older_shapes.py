"""The shapes that older clients know: an older task is an upload with its settings, an older run a trial."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from proctor.errors import ProctorError
from proctor.model.outcome import Outcome, is_pass
from proctor.model.record import AttemptRecord
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.store.blobs import Blobs
from proctor.store.service.ownership import Place
from proctor.store.service.rollouts import Rollout
from proctor.store.service.uploads import Upload

HARNESS = "proctor"
_MOST_CTRF = 4 << 20
_TIMEOUTS = {Outcome.AGENT_TIMEOUT, Outcome.VERIFIER_TIMEOUT}


def iso(moment: float | None) -> str | None:
    """UNIX seconds as ISO 8601 with Z."""
    if moment is None:
        return None
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def run_id_of(upload: Upload, index: int) -> str:
    """The id of an older run: known before it is executed, and the same after a retry."""
    return f"{upload.id}-{index + 1}"


def status_of(run: RunInfo | None, place: Place | None) -> str:
    """The status of an older task."""
    if run is None or run.status is RunStatus.PENDING:
        return "pending"
    if run.status is RunStatus.INTERRUPTED:
        return "running" if place and place.wanted else "failed"
    known = {RunStatus.RUNNING: "running", RunStatus.DONE: "completed", RunStatus.CANCELLED: "cancelled"}
    return known[run.status]


def task_shape(
    upload: Upload, run: RunInfo | None, place: Place | None = None, *, judged: tuple[int, int] = (0, 0)
) -> dict[str, Any]:
    """An older task; `judged`: how many of its rollouts passed, and how many are scored."""
    passed, scored = judged
    return {
        "id": upload.id,
        "name": upload.name,
        "description": upload.description,
        "original_filename": upload.filename,
        "file_size": upload.size_bytes,
        "model": upload.model or None,
        "agent": upload.agent,
        "harness": HARNESS,
        "num_runs": upload.num_runs,
        "status": status_of(run, place),
        "created_at": iso(upload.created_at),
        "started_at": iso(run.started_at) if run else None,
        "completed_at": iso(run.finished_at) if run else None,
        "total_runs": run.total if run else upload.num_runs,
        "passed_runs": passed,
        "failed_runs": scored - passed,
    }


def runs_shape(upload: Upload, found: Sequence[Rollout], blobs: Blobs) -> list[dict[str, Any]]:
    """The older runs of a task; before it is executed they are all pending."""
    if not found:
        return [_pending(upload, index) for index in range(upload.num_runs)]
    return [run_shape(upload, each, blobs) for each in found]


def run_shape(upload: Upload, found: Rollout | None, blobs: Blobs, *, index: int = 0) -> dict[str, Any]:
    """An older run."""
    if found is None:
        return _pending(upload, index)
    record = found.record if found.state == "done" else None
    tests = _tests(record, blobs)
    failure = record.failure if record else None
    return {
        **_pending(upload, found.index),
        "status": _status(found),
        "started_at": iso(record.started_at if record else found.started_at),
        "completed_at": iso(record.ended_at) if record else None,
        "tests_total": tests.get("tests"),
        "tests_passed": tests.get("passed"),
        "tests_failed": tests.get("failed"),
        "error_message": failure.in_words if failure else None,
        "duration_seconds": record.ended_at - record.started_at if record else None,
    }


def _pending(upload: Upload, index: int) -> dict[str, Any]:
    return {
        "id": run_id_of(upload, index),
        "task_id": upload.id,
        "run_number": index + 1,
        "status": "pending",
        "started_at": None,
        "completed_at": None,
        "tests_total": None,
        "tests_passed": None,
        "tests_failed": None,
        "logs": None,
        "error_message": None,
        "duration_seconds": None,
    }


def _status(found: Rollout) -> str:
    """passed, failed, error, timeout, running or pending. What nobody judged is an error, not a failure."""
    if found.state in {"leased", "running"}:
        return "running"
    if found.state == "pending" or found.outcome is None:
        return "pending"
    outcome = Outcome(found.outcome)
    if is_pass(outcome, found.record.reward if found.record else None):
        return "passed"
    if outcome in _TIMEOUTS:
        return "timeout"
    return "failed" if outcome.scored else "error"


def _tests(record: AttemptRecord | None, blobs: Blobs) -> dict[str, int]:
    """How many tests there were, from the verifier's CTRF report where it wrote one."""
    for each in record.artifacts if record else ():
        if each.name.endswith("ctrf.json") and each.size_bytes <= _MOST_CTRF:
            try:
                with blobs.open(each.digest) as file:
                    found = json.load(file)["results"]["summary"]
                return {name: int(found[name]) for name in ("tests", "passed", "failed")}
            except (ProctorError, OSError, ValueError, KeyError, TypeError, RecursionError):
                return {}
    return {}
