"""A comparison as plain data: what `proctor compare --json` prints. Additions only, once published."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

from proctor.analysis.times import PointComparison
from proctor.model.canonical import finite
from proctor.verdicts.compare.judge import Comparison, MetricComparison
from proctor.verdicts.compare.sentence import caution, sentence

SCHEMA_VERSION = 1


def to_mapping(found: Comparison) -> dict[str, Any]:
    """Plain data; what is not finite becomes null, so that any JSON parser reads it."""
    data = {
        "schema_version": SCHEMA_VERSION,
        "verdict": found.verdict.value,
        "exit_code": int(found.exit_code),
        "sentence": sentence(found),
        "a": found.label_a,
        "b": found.label_b,
        "warnings": list(found.warnings),
        "metrics": [],
        "score": asdict(found.score) if found.score else None,
        "failures": [asdict(each) for each in found.failures],
        "only_a": list(found.only_a),
        "only_b": list(found.only_b),
    }
    plain: dict[str, Any] = finite(data)
    plain["metrics"] = [_metric(each) for each in found.metrics]
    return plain


def _metric(each: MetricComparison) -> dict[str, Any]:
    """One metric. Its points apart: of a hundred thousand of them no copy more than needed is made."""
    rest: dict[str, Any] = finite(asdict(replace(each.times, points=())))
    rest["points"] = [_point(point) for point in each.times.points]
    return {"metric": each.metric, "absent": list(each.absent), "caution": caution(each), **rest}


def _point(point: PointComparison) -> dict[str, Any]:
    interval = point.interval
    found = {
        "name": point.name,
        "count_a": point.count_a,
        "count_b": point.count_b,
        "median_a": point.median_a,
        "median_b": point.median_b,
        "ratio": point.ratio,
        "interval": {
            "low": interval.low,
            "high": interval.high,
            "level": interval.level,
            "method": interval.method,
        },
        "p_value": point.p_value,
        "p_holm": point.p_holm,
        "verdict": point.verdict,
        "error": point.error,
        "note": point.note,
    }
    numbers = (point.median_a, point.median_b, point.ratio, interval.low, interval.high, point.error)
    sound = math.isfinite(sum(numbers) + point.p_value + point.p_holm)
    return found if sound else finite(found)
