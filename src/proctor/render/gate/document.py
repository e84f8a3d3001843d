"""A gate's result as plain data: `gate.json`, and what `proctor gate --json` prints. Additions only."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from proctor.model.canonical import finite
from proctor.verdicts.gate.verdict import PRECEDENCE, GateResult, RuleResult

SCHEMA_VERSION = 1


def to_mapping(found: GateResult) -> dict[str, Any]:
    """Plain data; what is not finite becomes null, so that any JSON parser reads it."""
    data = {
        "schema_version": SCHEMA_VERSION,
        "verdict": found.verdict.value,
        "exit_code": int(found.exit_code),
        "sentence": found.sentence,
        "run": found.label,
        "run_id": found.run_id,
        "digest": found.digest,
        "baseline": found.baseline or None,
        "baseline_facts": found.baseline_facts,
        "comparisons": found.comparisons,
        "correction": "Holm over all comparisons with the baseline",
        "precedence": [each.value for each in PRECEDENCE],
        "warnings": list(found.warnings),
        "rules": [_rule(each) for each in found.results],
    }
    plain: dict[str, Any] = finite(data)
    return plain


def _rule(each: RuleResult) -> dict[str, Any]:
    written = each.written
    return {
        "rule": written.text,
        "name": written.title,
        "place": f"{written.file}:{written.line}" if written.file and written.line else None,
        "verdict": each.verdict.value,
        "sentence": each.sentence,
        "n": each.n or None,
        "estimate": asdict(each.estimate) if each.estimate else None,
        "margin": each.margin or None,
        "p_holm": each.p_value,
        "detectable": each.detectable,
        "what_would_change_it": each.change or None,
        "details": list(each.details),
    }
