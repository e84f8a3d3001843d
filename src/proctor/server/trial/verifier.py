"""What the verifier said of an attempt: tests (CTRF), rewards by step, judge, controls, suspect files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from proctor.disk import read_small
from proctor.model.record import AttemptRecord, judge_of, judge_score, rubrics_of, unit_score
from proctor.quantity import number
from proctor.render.results.trial_files import EVAL_LOG
from proctor.server.trial.attempt_files import AttemptFiles

MOST_TESTS = 5_000
MOST_CONTROLS = 50
CTRF_BYTES = 16 << 20
OUTPUT_BYTES = 64 << 10
_TEXT = 20_000


def tests_of(files: AttemptFiles) -> list[dict[str, Any]]:
    """The tests of every CTRF report that the verifier left, in order of its steps."""
    found: list[dict[str, Any]] = []
    for path in sorted(files.files):
        if path.startswith("verifier/") and path.endswith(".json") and "ctrf" in path.rpartition("/")[2]:
            step = "/".join(path.split("/")[1:-1])
            found += _tests(files.read(path, CTRF_BYTES + 1), step)
        if len(found) >= MOST_TESTS:
            break
    return found[:MOST_TESTS]


def _tests(data: bytes, step: str) -> Iterator[dict[str, Any]]:
    if len(data) > CTRF_BYTES:
        return
    try:
        report = json.loads(data)
        tests = report["results"]["tests"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return
    for test in tests if isinstance(tests, list) else ():
        if isinstance(test, dict):
            milliseconds = number(test.get("duration"))
            yield {
                "name": str(test.get("name") or "")[:1000],
                "status": str(test.get("status") or "other")[:40],
                "duration_s": None if milliseconds is None else milliseconds / 1000,
                "message": str(test.get("message") or "")[:_TEXT],
                "trace": str(test.get("trace") or "")[:_TEXT],
                "suite": str(test.get("suite") or "")[:1000],
                "step": step,
            }


def sentence(record: AttemptRecord | None, tests: list[dict[str, Any]]) -> str:
    """Why an attempt ended as it did: the first failing test, else how many, else the failure in words."""
    if record is None:
        return ""
    failed = [test for test in tests if test["status"] == "failed"]
    if failed and record.outcome.value != "passed":
        first = failed[0]
        said = next((line for line in first["message"].splitlines() if line.strip()), "").strip()
        if said:
            return f"{first['name']} failed: {said[:500]}"
        return f"{len(failed)} of {len(tests)} tests failed."
    if record.failure:
        return record.failure.in_words[:1000]
    words = record.outcome.value.replace("_", " ").capitalize()
    if tests:
        passed = sum(test["status"] == "passed" for test in tests)
        return f"{words}: {passed} of {len(tests)} tests passed."
    return f"{words}." if record.reward is None else f"{words}, reward {record.reward:g}."


def verifier(files: AttemptFiles, run_dir: Path, task: str) -> dict[str, Any]:
    """Everything that made the reward."""
    record, tests = files.record, tests_of(files)
    metrics = record.metrics if record else {}
    rubrics = rubrics_of(record) if record else []
    steps = metrics.get("steps")
    return {
        "attempt": files.number,
        "reward": record.reward if record else None,
        "outcome": record.outcome if record else None,
        "rewards": metrics.get("rewards") or {},
        "steps": steps if isinstance(steps, Mapping) else {},
        "tests": tests,
        "counts": _counts(tests),
        "rubrics": rubrics,
        "unit_score": unit_score(record) if record else None,
        "judge_score": judge_score(record) if record else None,
        "judge": (judge_of(record) or None) if record else None,
        "controls": list(_controls(run_dir, task)),
        "suspect": record.suspect if record else False,
        "system_changes": record.system_changes if record else {},
        "failure": _failure(record),
        "verify_s": number(record.phases_s.get("verify")) if record else None,
        "output": _output(files),
        "files": [path for path in sorted(files.files) if path.startswith("verifier/")],
    }


def _counts(tests: list[dict[str, Any]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for test in tests:
        found[test["status"]] = found.get(test["status"], 0) + 1
    return found


def _failure(record: AttemptRecord | None) -> dict[str, str] | None:
    failure = record.failure if record else None
    if failure is None:
        return None
    return {"phase": failure.phase, "type": failure.type, "message": failure.message[:_TEXT]}


def _output(files: AttemptFiles) -> str:
    """The end of what the tests printed."""
    path = f"logs/{EVAL_LOG}"
    found = files.files.get(path)
    if found is None:
        return ""
    with files.open(path) as log:
        if found.size > OUTPUT_BYTES and log.seekable():
            log.seek(found.size - OUTPUT_BYTES)
        return log.read(OUTPUT_BYTES).decode(errors="replace")


def _controls(run_dir: Path, task: str) -> Iterator[dict[str, Any]]:
    """The verifier in untouched sandboxes of this task, as far as it was needed."""
    place = run_dir / "controls"
    count = 0
    for path in sorted(place.glob("*/control.json")) if place.is_dir() else ():
        try:
            found = json.loads(read_small(path, 1 << 20))
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(found, dict) and found.get("task") == task:
            yield {name: found.get(name) for name in ("step", "outcome", "reward", "message", "took_s")}
            count += 1
            if count >= MOST_CONTROLS:
                return
