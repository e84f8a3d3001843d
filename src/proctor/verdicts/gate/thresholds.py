"""Thresholds on fields, and allowed failure reasons: rules that need no estimate."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from proctor.model.describe import describe
from proctor.model.plan import Plan
from proctor.model.run import RunInfo
from proctor.quantity import number, plural, show, significant, some
from proctor.runfolder.read import RunData, TrialResult
from proctor.spec.node import nearest
from proctor.verdicts.gate.inputs import GateInput, input_of_run, is_broken
from proctor.verdicts.gate.rules import (
    NotWorse,
    OfBaseline,
    Reasons,
    RuleSet,
    Threshold,
    metric_and_statistic,
    refuse,
)
from proctor.verdicts.gate.verdict import Estimate, GateVerdict, RuleResult, overall
from proctor.verdicts.rollouts.table import kind_of

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
    "==": operator.eq,
    "!=": operator.ne,
}
_FAILURES = {"failure_count": -1, "summary.failed": -1, "success_count": 1, "summary.passed": 1}
"""Counts that a broken machine changes as a failure would, and the direction of the change."""
MOST_DETAILS = 20
STATISTICS = frozenset(describe([1.0, 2.0]))
_OPEN = ("failure_reasons", "arms", "images", "scores", "pass_rates", "subjects", "warnings")
"""Fields whose inner names come with the results."""
_UNITS = ("_s", "_ms", "_us", "_ns", "_bytes", "_usd")


@dataclass(frozen=True, slots=True)
class Reading:
    """One value of a field, where it is, and the limit there."""

    value: Any
    limit: Any
    where: str = ""


def judge_threshold(rule: Threshold, run: GateInput, baseline: GateInput | None) -> RuleResult:
    """A field against its limit. A `metrics.…` field must keep it at every point."""
    if rule.path.startswith("metrics."):
        return _judge_points(rule, run, baseline)
    value, limit = look_up(rule, run), _limit(rule, baseline)
    _check_kinds(rule, value)
    if value is None or limit is None:
        who = f"{run.label} has" if value is None else "the baseline has"
        return result(rule, GateVerdict.INCONCLUSIVE, f"{rule.path}: {who} no value")
    verdict = GateVerdict.PASS if holds(rule, value, limit) else GateVerdict.REGRESSION
    said = f"{rule.path} is {shown(rule.path, value)}, the rule requires {wants(rule, limit)}"
    moves = _FAILURES.get(rule.path)
    blamed = verdict is GateVerdict.REGRESSION and moves and run.broken
    if blamed and moves and holds(rule, value + moves * run.broken, limit):
        verdict = GateVerdict.INFRASTRUCTURE
        said += f"; {run.broken} trials were broken by infrastructure or provider"
    return result(
        rule, verdict, said, n=f"{run.trials} trials" if run.trials else "", value=value, limit=limit
    )


def _judge_points(rule: Threshold, run: GateInput, baseline: GateInput | None) -> RuleResult:
    readings = list(_readings(rule, run, baseline))
    if not readings:
        known = sorted({name for stats in run.stats.values() for name in stats})
        metric = metric_and_statistic(rule.path)[0]
        if known and metric not in known:
            raise refuse(rule.written, f"no point has the metric '{metric}'{nearest(metric, known[:40])}")
        return result(rule, GateVerdict.INCONCLUSIVE, f"{rule.path}: no point has a value")
    good = [each for each in readings if each.limit is not None and each.value is not None]
    bad = [each for each in good if not holds(rule, each.value, each.limit)]
    unknown = len(readings) - len(good)
    verdict = GateVerdict.REGRESSION if bad else GateVerdict.INCONCLUSIVE if unknown else GateVerdict.PASS
    worst = _worst(rule, bad or good)
    if worst is None:
        return result(rule, verdict, f"{rule.path}: no point has a value and a limit")
    many = f" at {worst.where}, the worst of {len(readings)} points" if len(readings) > 1 else ""
    said = (
        f"{rule.path} is {shown(rule.path, worst.value)}{many}, the rule requires {wants(rule, worst.limit)}"
    )
    if len(bad) > 1:
        said += f"; {len(bad)} points violate it"
    if unknown:
        said += f"; {unknown} points have no value"
    details = [f"{each.where}: {shown(rule.path, each.value)}" for each in bad[:MOST_DETAILS]]
    return result(
        rule,
        verdict,
        said,
        n=plural(len(readings), "point"),
        value=worst.value,
        limit=worst.limit,
        details=tuple(details),
    )


def _readings(rule: Threshold, run: GateInput, baseline: GateInput | None) -> Iterator[Reading]:
    """The field at each point; a point that failed has none, and is not left out."""
    found = {name: statistic(stats, rule.path) for name, stats in run.stats.items()}
    if all(value is None for value in found.values()):
        return
    failed = {point.name: None for point in run.results.points if point.failed}
    for name, value in {**found, **failed}.items():
        limit: Any = rule.limit
        if isinstance(limit, OfBaseline):
            stats = baseline.stats.get(name) if baseline else None
            before = statistic(stats, rule.path) if stats else None
            limit = limit.limit(before) if before is not None else None
        yield Reading(value, limit, name)


def statistic(stats: Mapping[str, Any], path: str) -> float | None:
    """`metrics.duration_s.p95` among one point's aggregates; a plain number is every statistic of itself."""
    whole = path.removeprefix("metrics.")
    metric, name = metric_and_statistic(path)
    found = stats.get(metric, stats.get(whole))
    if isinstance(found, Mapping):
        return number(found.get(name if metric in stats else "p50"))
    return number(found)


def _worst(rule: Threshold, readings: list[Reading]) -> Reading | None:
    if not readings:
        return None
    if rule.operator in {"<=", "<"}:
        return max(readings, key=lambda each: each.value)
    return min(readings, key=lambda each: each.value)


def judge_reasons(rule: Reasons, run: GateInput, baseline: GateInput | None) -> RuleResult:
    """Failure reasons against those that are allowed, or that the baseline has."""
    allowed = rule.allowed if rule.allowed is not None else tuple(baseline.reasons if baseline else ())
    new = {
        name: count
        for name, count in run.reasons.items()
        if name not in allowed and (rule.allowed is None or name.partition(":")[0].strip() not in allowed)
    }
    if not new:
        reasons = ", ".join(run.reasons)
        return RuleResult(
            written=rule.written,
            verdict=GateVerdict.PASS,
            sentence=f"only allowed failure reasons: {reasons}." if reasons else "no failures.",
            n=f"{run.trials} trials",
            change=f"any {'other ' if allowed else ''}failure reason would fail it",
        )
    verdict = overall(
        GateVerdict.INFRASTRUCTURE if is_broken(name) else GateVerdict.REGRESSION for name in new
    )
    word = "new" if rule.allowed is None else "not allowed"
    told = some([f"{name} ({count}×)" for name, count in new.items()], 5)
    return RuleResult(
        written=rule.written,
        verdict=verdict,
        sentence=f"{word}: {told}.",
        n=f"{run.trials} trials",
        change=f"allowed failure reasons: {', '.join(allowed) or 'none'}",
        details=tuple(f"{name}: {count} trials" for name, count in list(new.items())[:MOST_DETAILS]),
    )


def look_up(rule: Threshold, run: GateInput) -> Any:
    """A field by its dotted path; an unknown one is an error of the rule, with similar names."""
    found, rest = run.fields, rule.path
    while True:
        if not isinstance(found, Mapping):
            break
        if rest in found:
            return found[rest]
        # Names of outcomes and reasons may hold dots, so the longest name that fits comes first.
        parts = rest.split(".")
        heads = (".".join(parts[:count]) for count in range(len(parts) - 1, 0, -1))
        longest = next((head for head in heads if head in found), None)
        if longest is None:
            break
        found, rest = found[longest], rest[len(longest) + 1 :]
        if found is None:
            return None
    metrics = (f"metrics.{name}" for stats in run.stats.values() for name in stats)
    known = dict.fromkeys([*dict(_paths(run.fields)), *metrics][:2000])
    hint = nearest(rule.path, known)
    if "did you mean" not in hint:
        hint = "; 'proctor gate RUN --fields' lists all fields"
    raise refuse(rule.written, f"'{rule.path}' is not a field of {run.label}{hint}")


def _paths(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every name at every depth, with what it holds."""
    for name, value in fields.items():
        yield f"{prefix}{name}", value
        if isinstance(value, Mapping) and prefix.count(".") < 4:
            yield from _paths(value, f"{prefix}{name}.")


def known_fields(run: GateInput) -> Iterator[tuple[str, Any]]:
    """Every path that a threshold may name, with its value."""
    for path, value in _paths(run.fields):
        if not isinstance(value, list | tuple | Mapping):
            yield path, value
    for metric in sorted({name for stats in run.stats.values() for name in stats}):
        values = [each for stats in run.stats.values() if (each := statistic(stats, f"metrics.{metric}.p50"))]
        yield f"metrics.{metric}.p50", max(values, default=None)


def _limit(rule: Threshold, baseline: GateInput | None) -> Any:
    if not isinstance(rule.limit, OfBaseline):
        return rule.limit
    known = number(look_up(rule, baseline)) if baseline else None
    return rule.limit.limit(known) if known is not None else None


def holds(rule: Threshold, value: Any, limit: Any) -> bool:
    """Whether the value keeps the limit."""
    return bool(_COMPARE[rule.operator](value, limit))


def _check_kinds(rule: Threshold, value: Any) -> None:
    if isinstance(value, Mapping | list | tuple):
        inside = f"; it has {', '.join(list(value)[:8])}" if isinstance(value, Mapping) and value else ""
        raise refuse(rule.written, f"'{rule.path}' is not a single value{inside}")
    wants_number = isinstance(rule.limit, OfBaseline) or (
        isinstance(rule.limit, float) and not isinstance(rule.limit, bool)
    )
    if value is not None and wants_number and (isinstance(value, str | bool)):
        raise refuse(rule.written, f"'{rule.path}' is {value!r}, not a number")


def shown(path: str, value: Any) -> str:
    """A value as people read it; exact where it is a count."""
    amount = number(value)
    if amount is None:
        return "nothing" if value is None else str(value)[:200]
    name = next((part for part in reversed(path.split(".")) if part.endswith(_UNITS)), "")
    if not name and amount == int(amount) and abs(amount) < 1e9:
        return f"{int(amount)}"
    return show(name, amount)


def wants(rule: Threshold, limit: Any) -> str:
    """What a rule requires."""
    of = " (from the baseline)" if isinstance(rule.limit, OfBaseline) else ""
    return f"{rule.operator} {shown(rule.path, limit)}{of}"


def distance(path: str, value: Any, limit: Any) -> str:
    """How far from the limit, which is what would have to change."""
    amount, bound = number(value), number(limit)
    if amount is None or bound is None:
        return ""
    gap = abs(bound - amount)
    share = f", {significant(100 * gap / abs(bound), 2)} % of it" if bound and math.isfinite(gap) else ""
    return f"{shown(path, gap)} from the limit{share}"


def result(
    rule: Threshold,
    verdict: GateVerdict,
    said: str,
    *,
    n: str = "",
    value: Any = None,
    limit: Any = None,
    details: tuple[str, ...] = (),
) -> RuleResult:
    """A rule judged by one value."""
    amount = number(value)
    return RuleResult(
        written=rule.written,
        verdict=verdict,
        sentence=f"{said}.",
        n=n,
        estimate=Estimate(value=amount, unit=rule.path) if amount is not None else None,
        margin=wants(rule, limit) if limit is not None else "",
        change=distance(rule.path, value, limit) if rule.operator not in {"==", "!="} else "",
        details=details,
    )


def check_fields(rules: RuleSet, info: RunInfo, plan: Plan) -> None:
    """Before a run: UsageError, as after it, for a threshold on a field that no run of this kind has.

    A run without results has the same fields as one with them. Only names that results bring along, the
    metrics of experiments and the reasons of failures, cannot be known yet.
    """
    for rule in rules.rules:
        about_scores = (isinstance(rule, NotWorse) and rule.is_score) or (
            not isinstance(rule, Reasons) and rule.arm
        )
        if info.kind == "experiment" and about_scores:
            raise refuse(rule.written, "this is a run of experiments: it has times and no scores")
    thresholds = [rule for rule in rules.rules if isinstance(rule, Threshold)]
    named = [rule for rule in rules.rules if not isinstance(rule, Reasons) and rule.arm]
    if not thresholds and not named:
        return
    run = _without_results(info, plan)
    for each in named:
        run.arms(each)
    for rule in thresholds:
        if rule.path.startswith("metrics."):
            _check_statistic(rule)
        elif rule.path.partition(".")[0] not in _OPEN:
            look_up(rule, run)


def _check_statistic(rule: Threshold) -> None:
    """The one metric that every point has is known, and so are its statistics."""
    metric, statistic = metric_and_statistic(rule.path)
    if metric == "duration_s" and statistic not in STATISTICS:
        hint = nearest(statistic, STATISTICS)
        raise refuse(rule.written, f"'{statistic}' is not a statistic of {metric}{hint}")


def _without_results(info: RunInfo, plan: Plan) -> GateInput:
    """The run as it will be, with one trial of each kind: fields do not depend on how many there are."""
    first = {kind_of(trial): trial for trial in reversed(plan.trials)}
    trials = tuple(TrialResult(planned=trial, attempts=(), counted=None) for trial in first.values())
    return input_of_run(RunData(info=info, trials=trials))
