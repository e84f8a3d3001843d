"""A task certificate as plain data: one file per task. Additions only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from proctor.verdicts.vet.certificate import TaskCertificate, TaskFault, Tried, exit_code
from proctor.verdicts.vet.words import sentence

SCHEMA_VERSION = 1


def to_mapping(found: TaskCertificate, *, made_at: str) -> dict[str, Any]:
    """Everything, the verdict first."""
    return {
        "schema_version": SCHEMA_VERSION,
        "certificate": "task",
        "task": found.task,
        "digest": found.digest,
        "verdict": found.verdict.value,
        "sentence": sentence(found),
        "flake_rate_upper_bound": found.flake_bound,
        "findings": [_finding(each) for each in found.findings],
        "checks": {check.value: _tried(each) for check, each in found.tried.items()},
        "notes": list(found.notes),
        "made_at": made_at,
        "run_id": found.run_id,
        "sandbox": found.backend,
        "versions": dict(found.versions),
    }


def summary(found: Sequence[TaskCertificate], *, run_id: str, made_at: str) -> dict[str, Any]:
    """All certificates of a run."""
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": run_id,
        "exit_code": int(exit_code(found)),
        "certificates": [to_mapping(each, made_at=made_at) for each in found],
    }


def _tried(each: Tried) -> dict[str, Any]:
    if each.skipped:
        return {"tried": False, "why_not": each.skipped}
    return {
        "tried": True,
        "rollouts": each.rollouts,
        "passed": each.passed,
        "failed": each.failed,
        "unjudged": each.unjudged,
        "errors": each.errors,
        "missing": each.missing,
        "evidence": [asdict(one) for one in each.evidence],
    }


def _finding(each: TaskFault) -> dict[str, Any]:
    return {
        "verdict": each.verdict.value,
        "check": each.check.value,
        "sentence": each.sentence,
        "evidence": [asdict(one) for one in each.evidence],
    }
