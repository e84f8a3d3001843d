"""A noise certificate as plain data: what `--json` prints and `--out x.json` writes. Additions only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from proctor.analysis.aa import TOLERATED, AlarmRate
from proctor.verdicts.aa.certificate import NoiseCertificate, Trial
from proctor.verdicts.aa.loss import USEFUL

SCHEMA_VERSION = 1


def to_mapping(found: NoiseCertificate, *, made_at: str, versions: Mapping[str, str]) -> dict[str, Any]:
    """Everything, the verdict first."""
    return {
        "schema_version": SCHEMA_VERSION,
        "certificate": "noise",
        "standing": found.standing.value,
        "exit_code": int(found.exit_code),
        "sentence": found.sentence,
        "next_steps": list(found.next_steps),
        "made_at": made_at,
        "versions": dict(versions),
        "kind": found.kind,
        "run": found.run,
        "run_id": found.run_id,
        "digest": found.digest,
        "metric": found.metric,
        "margin": found.margin,
        "level": found.level,
        "claim": found.claim,
        "tolerated_false_alarms": TOLERATED,
        "subjects": found.subjects,
        "values": found.values,
        "count": found.count,
        "detectable": found.detectable,
        "detectable_even": found.detectable_even,
        "detectable_concentrated": found.detectable_concentrated,
        "useful_detectable": USEFUL * found.margin,
        "false_alarms": [_trial(each) for each in found.trials],
        "reach": [asdict(row) for row in found.power],
        "errors": {"count": found.broken, "share": found.broken_share},
        "correlation": asdict(found.correlation) if found.correlation else None,
        "flaky_share": found.flaky_share,
        "flaky": [
            {
                "task": task.name,
                "rollouts": task.rollouts,
                "passed": task.passed,
                "disagreement": task.disagreement,
            }
            for task in found.flaky
        ],
        "noise": _finite(found.noise),
        "drift": dict(found.drift) or None,
        "notes": list(found.notes),
        "simulations": found.simulations,
        "seed": found.seed,
    }


def _trial(each: Trial) -> dict[str, Any]:
    return {
        "name": each.name,
        "how": each.how,
        "per_side": each.per_side,
        "calls": dict(each.calls),
        "rules": [_rate(each.gate), *map(_rate, each.naive)],
    }


def _rate(found: AlarmRate) -> dict[str, Any]:
    return {
        "rule": found.rule,
        "alarms": found.alarms,
        "pairs": found.pairs,
        "share": found.share,
        "low": found.interval.low,
        "high": found.interval.high,
    }


def _finite(noise: Mapping[str, Any]) -> dict[str, Any] | None:
    """An infinite number of degrees of freedom means a convention and not an estimate: null."""
    if not noise:
        return None
    return {name: None if value == float("inf") else value for name, value in noise.items()}
