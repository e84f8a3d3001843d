"""Scores by rubric, as records hold them: what tests found and what a judge said, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proctor.model.record import AttemptRecord
from proctor.quantity import number


def rubrics_of(record: AttemptRecord) -> list[dict[str, Any]]:
    """The rubrics of an attempt; none where there are neither rubrics with tests nor a judge."""
    found = record.metrics.get("rubrics")
    return [dict(each) for each in found if isinstance(each, dict)] if isinstance(found, list | tuple) else []


def judge_of(record: AttemptRecord) -> dict[str, Any]:
    """What the record says of its judge; empty where there was none."""
    found = record.metrics.get("judge")
    return dict(found) if isinstance(found, Mapping) else {}


def weighted(rubrics: Sequence[Mapping[str, Any]], column: str) -> float | None:
    """The weighted mean over the rubrics that have this score. The untested leave the denominator."""
    known = [
        (weight, score)
        for each in rubrics
        if (score := number(each.get(column))) is not None and (weight := number(each.get("weight")))
    ]
    total = sum(weight for weight, _ in known)
    return sum(weight * score for weight, score in known) / total if total else None


def unit_score(record: AttemptRecord) -> float | None:
    """What the tests say of an attempt, whoever decides its reward."""
    judge = judge_of(record)
    if judge.get("decides"):
        return number(judge.get("unit_score"))
    tested = weighted(rubrics_of(record), "unit_score")
    return record.reward if tested is None else tested


def judge_score(record: AttemptRecord) -> float | None:
    """What the judge says of an attempt; None where none did."""
    return weighted(rubrics_of(record), "judge_score")
