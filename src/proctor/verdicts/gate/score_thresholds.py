"""Thresholds on scores and pass rates: each belongs to an arm, so every arm must keep the limit."""

from __future__ import annotations

import math
from dataclasses import replace

from proctor.analysis.estimate import denominators
from proctor.quantity import number, significant
from proctor.spec.node import nearest
from proctor.verdicts.compare.pairing import pair_arms
from proctor.verdicts.compare.results import ArmRewards
from proctor.verdicts.gate.inputs import GateInput
from proctor.verdicts.gate.rules import OfBaseline, Threshold, refuse
from proctor.verdicts.gate.thresholds import MOST_DETAILS, distance, holds, result, shown, wants
from proctor.verdicts.gate.verdict import Estimate, GateVerdict, RuleResult, overall
from proctor.verdicts.rollouts.document import readings

READINGS = ("errors_excluded", "errors_as_zero", "best_case")


def judge_scores(rule: Threshold, run: GateInput, baseline: GateInput | None) -> RuleResult:
    """Every arm against the limit: the worst decides."""
    arms = run.arms(rule)
    results = [_judge_score(rule, run, arm, _arm_limit(rule, run, baseline, arm)) for arm in arms]
    verdict = overall(each.verdict for each in results)
    leading = [each for each in results if each.verdict is verdict]
    lower_is_worse = rule.operator in {">", ">="}
    worst = min(leading, key=lambda each: _badness(each, lower_is_worse=lower_is_worse))
    if len(results) == 1:
        return worst
    many = f"; {len(leading)} of {len(results)} arms" if len(leading) > 1 else ""
    name = arms[results.index(worst)].name
    said = f"{worst.sentence[:-1]}: {name}, the worst of {len(results)} arms{many}."
    details = [
        f"{arm.name}: {each.verdict.value}, {each.estimate.value * 100:.1f} %"
        for arm, each in zip(arms, results, strict=True)
        if each.estimate
    ]
    return replace(worst, sentence=said, details=tuple(details[:MOST_DETAILS]))


def _badness(result: RuleResult, *, lower_is_worse: bool) -> float:
    if result.estimate is None:
        return math.inf
    return result.estimate.value if lower_is_worse else -result.estimate.value


def _arm_limit(rule: Threshold, run: GateInput, baseline: GateInput | None, arm: ArmRewards) -> float | None:
    if not isinstance(rule.limit, OfBaseline):
        return number(rule.limit)
    pairs = pair_arms(baseline.results, run.results) if baseline else []
    before = next((before for before, after in pairs if after is arm), None)
    value = _reading(rule, before) if before else None
    return rule.limit.limit(value) if value is not None else None


def _reading(rule: Threshold, arm: ArmRewards) -> float | None:
    """What a path says of an arm: `score` is the one without the errors."""
    metric, _, name = rule.path.partition(".")
    found = readings(denominators(arm.rewards(metric)))
    if name and name not in found:
        raise refuse(rule.written, f"'{rule.path}' is not a field of a score{nearest(name, found)}")
    return number(found[name or "errors_excluded"])


def _judge_score(rule: Threshold, run: GateInput, arm: ArmRewards, limit: float | None) -> RuleResult:
    """A score with errors counted in three ways; inconclusive when they disagree about the limit."""
    metric, _, name = rule.path.partition(".")
    value = _reading(rule, arm)
    found = denominators(arm.rewards(metric)).excluded
    if value is None or limit is None or (found is None and not name):
        blame = GateVerdict.INFRASTRUCTURE if run.broken and found is None else GateVerdict.INCONCLUSIVE
        why = "nothing was scored" if found is None else "the baseline has no value"
        return result(rule, blame, f"{rule.path}: {why}")
    if name:
        verdict = GateVerdict.PASS if holds(rule, value, limit) else GateVerdict.REGRESSION
        said = f"{rule.path} is {shown(rule.path, value)}, the rule requires {wants(rule, limit)}"
        return result(rule, verdict, said, value=value, limit=limit)
    assert found is not None
    counted = readings(denominators(arm.rewards(metric)))
    values = [number(counted[each]) for each in READINGS]
    verdicts = [
        GateVerdict.PASS if holds(rule, each, limit) else GateVerdict.REGRESSION
        for each in values
        if each is not None
    ]
    interval = found.interval()
    said = (
        f"{rule.path} is {100 * value:.1f} % "
        f"(95 % {100 * interval.low:.1f} to {100 * interval.high:.1f}, for {found.claim}), "
        f"the rule requires {rule.operator} {significant(100 * limit)} %"
    )
    verdict = verdicts[0]
    if len(set(verdicts)) > 1:
        verdict = GateVerdict.INCONCLUSIVE
        zero, best = (f"{100 * (each or 0):.1f} %" for each in values[1:])
        said += f"; {counted['errors']} errors leave it open: {zero} with errors as zero, {best} at best"
    return RuleResult(
        written=rule.written,
        verdict=verdict,
        sentence=f"{said}.",
        n=f"{found.tasks} tasks, {found.rollouts} rollouts",
        estimate=Estimate(
            value=value,
            low=interval.low,
            high=interval.high,
            level=0.95,
            unit=rule.path,
            claim=found.claim.value,
            arm=arm.name,
        ),
        margin=f"{rule.operator} {significant(limit)}",
        change=distance(rule.path, value, limit),
    )
