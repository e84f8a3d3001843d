"""A comparison as plain data: what `proctor compare --json` prints. Additions only, once published."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from proctor.report.compare.judge import Comparison, MetricComparison
from proctor.report.compare.sentence import caution, sentence
from proctor.report.files import finite

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
        "metrics": [_metric(each) for each in found.metrics],
        "score": asdict(found.score) if found.score else None,
        "failures": [asdict(each) for each in found.failures],
        "only_a": list(found.only_a),
        "only_b": list(found.only_b),
    }
    plain: dict[str, Any] = finite(data)
    return plain


def _metric(each: MetricComparison) -> dict[str, Any]:
    return {
        "metric": each.metric,
        "absent": each.absent,
        "caution": caution(each),
        **asdict(each.times),
    }
