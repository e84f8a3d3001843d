"""Statistical rules: gather what the data say against the baseline, then judge it after Holm's correction.

Gathering and judging are two steps because every comparison of a gate belongs to one family: the chance of a
single false regression among all rules is held at the level, not the chance of one per rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from proctor.analysis.claim import Claim, chosen_claim, too_few
from proctor.analysis.compare import PairedScores, missing_bounds, paired_scores
from proctor.analysis.distributions import normal_quantile, t_quantile
from proctor.analysis.estimate import TaskRewards
from proctor.analysis.interval import Interval
from proctor.analysis.p_values import fisher
from proctor.analysis.times import Noise
from proctor.analysis.verdict import Verdict, judge
from proctor.quantity import plural, significant, some
from proctor.verdicts.compare.judge import is_time
from proctor.verdicts.compare.pairing import pair_arms
from proctor.verdicts.compare.power import what_settles
from proctor.verdicts.compare.results import ArmRewards
from proctor.verdicts.compare.sentence import plain_ratio, points
from proctor.verdicts.gate.inputs import GateInput
from proctor.verdicts.gate.rules import NotWorse, refuse
from proctor.verdicts.gate.verdict import Estimate, GateVerdict, RuleResult, overall

ALIKE = 0.05
"""Infrastructure error rates differ when the p-value is below this."""
HARDWARE = ("cpu", "cores", "cores allowed", "CPU quota", "turbo")
"""Machine facts that must match before two times are compared. Host names may differ."""
MOST_DETAILS = 20
_MEANING = {
    Verdict.WORSE: GateVerdict.REGRESSION,
    Verdict.INCONCLUSIVE: GateVerdict.INCONCLUSIVE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One comparison: a gain below zero is worse. In log ratios, or in shares of the score's scale."""

    name: str
    gain: float
    low: float
    high: float
    p_value: float
    estimate: Estimate
    note: str = ""
    others: tuple[Effect, ...] = ()
    """The same comparison with errors counted in other ways; if the verdicts differ, there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Everything that a rule's verdict uses."""

    rule: NotWorse
    effects: tuple[Effect, ...] = ()
    unit: str = "point"
    """What an effect is of, where there are several: a point or an arm."""
    margin: float = 0.0
    """In the unit of the effects' gains."""
    n: str = ""
    detectable: float | None = None
    settle: str = ""
    """What would settle it."""
    narrowed: str = ""
    """Why nothing is claimed about tasks like these, where nobody asked for less."""
    problems: tuple[tuple[GateVerdict, str], ...] = ()
    """Why it is not judged, or not by numbers alone."""


Problem = tuple[GateVerdict, str]


def score_study(rule: NotWorse, run: GateInput, baseline: GateInput, *, seed: int) -> Study:
    """Rewards against the baseline's, paired by task; one comparison for each arm."""
    for each in (run, baseline):
        if each.results.kind != "task":
            raise refuse(rule.written, f"{each.label} is a run of experiments: it has times and no scores")
    if problem := unlike_infrastructure(run, baseline):
        return Study(rule=rule, problems=(problem,), n=f"{run.trials} trials against {baseline.trials}")
    pairs, problems = arm_pairs(rule, run, baseline)
    studies = [_arm_study(rule, before, after, seed) for before, after in pairs]
    if len(studies) == 1:
        return replace(studies[0], problems=(*studies[0].problems, *problems))
    known = [each.detectable for each in studies if each.detectable is not None]
    return Study(
        rule=rule,
        effects=tuple(effect for each in studies for effect in each.effects),
        unit="arm",
        margin=rule.margin,
        n="; ".join(f"{arm.name}: {each.n}" for (_, arm), each in zip(pairs, studies, strict=True) if each.n),
        detectable=max(known, default=None),
        settle=next((each.settle for each in studies if each.settle), ""),
        narrowed=next((each.narrowed for each in studies if each.narrowed), ""),
        problems=(
            *(
                (verdict, f"{arm.name}: {text}")
                for (_, arm), each in zip(pairs, studies, strict=True)
                for verdict, text in each.problems
            ),
            *problems,
        ),
    )


def arm_pairs(
    rule: NotWorse, run: GateInput, baseline: GateInput
) -> tuple[list[tuple[ArmRewards, ArmRewards]], tuple[Problem, ...]]:
    """The arms that a rule compares, and what is missing on a side."""
    wanted = run.arms(rule)
    paired = pair_arms(baseline.results, run.results)
    pairs = [(before, after) for before, after in paired if after in wanted]
    if rule.arm:
        gone: tuple[Problem, ...] = ()
        if not pairs:
            gone = ((GateVerdict.INCONCLUSIVE, f"the baseline has no arm '{rule.arm}'"),)
        return pairs, gone
    matched = [before for before, _ in paired]
    return pairs, lost("arm", [arm.name for arm in baseline.results.arms if arm not in matched])


def _arm_study(rule: NotWorse, was: ArmRewards, now: ArmRewards, seed: int) -> Study:
    before, after = was.rewards(rule.metric), now.rewards(rule.metric)
    headline, others = _readings(before, after, seed, rule.level)
    if headline is None:
        return Study(rule=rule, problems=((GateVerdict.INCONCLUSIVE, "no task was scored on both sides"),))
    tasks = len({task.name for task in before} & {task.name for task in after})
    claim = chosen_claim(rule.these_tasks, tasks, rule.level)
    few = too_few(headline.tasks, rule.level)
    effect = replace(
        _score(rule, headline, claim, now.name),
        others=tuple(_score(rule, each, claim, now.name) for each in others),
    )
    return Study(
        rule=rule,
        effects=(effect,),
        margin=rule.margin,
        n=f"{headline.tasks} tasks, {headline.rollouts_b} rollouts against {headline.rollouts_a}",
        detectable=None if few and claim is Claim.TASKS_LIKE_THESE else headline.detects(claim),
        settle=what_settles(before, after, claim=claim, margin=rule.margin, level=rule.level),
        narrowed=few if rule.these_tasks is None and claim is Claim.THESE_TASKS else "",
        problems=lost("task", headline.only_in_a),
    )


def _readings(
    before: Sequence[TaskRewards], after: Sequence[TaskRewards], seed: int, level: float
) -> tuple[PairedScores | None, list[PairedScores]]:
    """The comparison without the errors; where there are any, also with errors as zero and as full marks."""
    if not any(task.errors for task in (*before, *after)):
        sides = ({task.name: task.scored for task in run} for run in (before, after))
        return paired_scores(*sides, seed=seed, level=level), []
    bounds = missing_bounds(before, after, seed=seed, level=level)
    return bounds.excluded, [each for each in (bounds.as_zero, bounds.best_case) if each]


def _score(rule: NotWorse, found: PairedScores, claim: Claim, arm: str) -> Effect:
    interval = found.interval(claim)
    sign = -1.0 if rule.higher_is_worse else 1.0
    low, high = sorted((sign * interval.low, sign * interval.high))
    return Effect(
        name=arm,
        gain=sign * found.difference,
        low=low,
        high=high,
        # The paired tests are about the tasks as a sample; for these tasks alone the interval decides.
        p_value=found.p_of(claim),
        estimate=Estimate(
            value=found.difference,
            low=interval.low,
            high=interval.high,
            level=rule.level,
            unit="pp",
            claim=claim.value,
            arm=arm,
        ),
    )


def unlike_infrastructure(run: GateInput, baseline: GateInput) -> Problem | None:
    """Why scores may not be compared: machines or providers broke more of one run than of the other."""
    if run.judged and run.broken == run.judged:
        return (
            GateVerdict.INFRASTRUCTURE,
            f"all {run.broken} trials were broken by infrastructure or provider",
        )
    p_value = fisher(baseline.broken, baseline.judged, run.broken, run.judged)
    if p_value >= ALIKE:
        return None
    rates = (
        f"infrastructure or provider broke {run.broken} of {run.judged} trials "
        f"against {baseline.broken} of {baseline.judged} in the baseline (p {p_value:.2g})"
    )
    if run.broken * baseline.judged > baseline.broken * run.judged:
        return GateVerdict.INFRASTRUCTURE, f"{rates}, so scores are not compared"
    return GateVerdict.INCONCLUSIVE, f"{rates}: the errors are in the baseline; pin a new one"


def other_machine(rule: NotWorse, run: GateInput, baseline: GateInput) -> tuple[Problem, ...]:
    """Times from different hardware are not compared."""
    if not is_time(rule.metric):
        return ()
    before, after = (each.results.facts.get("machine", {}) for each in (baseline, run))
    changed = [
        f"{name} {before[name]} → {after[name]}"
        for name in HARDWARE
        if name in before and name in after and before[name] != after[name]
    ]
    if not changed:
        return ()
    return (
        (
            GateVerdict.INCONCLUSIVE,
            f"measured on another machine ({'; '.join(changed)}): pin a baseline on this machine",
        ),
    )


def lost(what: str, names: Sequence[str]) -> tuple[Problem, ...]:
    """Points or tasks that the baseline has and this run has not: what is not measured cannot pass."""
    if not names:
        return ()
    missing = f"{plural(len(names), what)} of the baseline missing in this run"
    return ((GateVerdict.INCONCLUSIVE, f"{missing}: {some(names, 3)}"),)


def ratio_effect(
    rule: NotWorse, name: str, ratio: float, interval: Interval, p_value: float, note: str = ""
) -> Effect:
    """A ratio to the baseline as a effect."""
    logs = [math.log(each) if each > 0 else -math.inf for each in (ratio, interval.low, interval.high)]
    gain, low, high = (-logs[0], -logs[2], -logs[1]) if rule.higher_is_worse else logs
    estimate = Estimate(value=ratio, low=interval.low, high=interval.high, level=interval.level, unit="ratio")
    return Effect(name=name, gain=gain, low=low, high=high, p_value=p_value, estimate=estimate, note=note)


def ratio_margin(rule: NotWorse) -> float:
    """The margin as a log ratio: 5 % more is not the mirror image of 5 % less."""
    return math.log1p(rule.margin) if rule.higher_is_worse else -math.log1p(-min(rule.margin, 0.999))


def ratio_detectable(rule: NotWorse, errors: Sequence[float], noise: Noise) -> float | None:
    """The smallest change at one point that would be detected with 80 % probability, as a fraction."""
    known = sorted(error for error in errors if math.isfinite(error))
    if not known:
        return None
    certain = t_quantile(1 - (1 - rule.level) / (2 * len(known)), noise.df)
    return math.expm1(min((certain + normal_quantile(0.8)) * known[len(known) // 2], 50.0))


def settle(study: Study, adjusted: Sequence[float]) -> RuleResult:
    """The verdict, from the effects and their p-values after correction."""
    rule, alpha = study.rule, 1 - study.rule.level
    judged = [
        (effect, _judge(effect, p_value, study.margin, alpha))
        for effect, p_value in zip(study.effects, adjusted, strict=True)
    ]
    straddled = {
        effect.name: contradiction
        for (effect, verdict), p_value in zip(judged, adjusted, strict=True)
        if (contradiction := _straddled(effect, p_value, verdict, study.margin, alpha))
    }
    judged = [
        (effect, GateVerdict.INCONCLUSIVE if effect.name in straddled else verdict)
        for effect, verdict in judged
    ]
    verdict = overall([*(verdict for _, verdict in judged), *(verdict for verdict, _ in study.problems)])
    shown = _sentence(study, judged, verdict, straddled)
    worst = _worst(judged)
    return RuleResult(
        written=rule.written,
        verdict=verdict,
        sentence=shown,
        n=study.n,
        estimate=worst[0].estimate if worst else None,
        margin=f"{100 * rule.margin:g} {'pp' if rule.is_score else '%'}",
        change=_change(study, verdict),
        detectable=study.detectable,
        p_value=min(adjusted, default=None),
        details=_details(study, judged),
        tolerated=rule.margin,
    )


def _judge(effect: Effect, p_value: float, margin: float, alpha: float) -> GateVerdict:
    if math.isnan(effect.gain):
        return GateVerdict.INCONCLUSIVE
    found = judge(
        gain=effect.gain, low=effect.low, high=effect.high, p_value=p_value, margin=margin, alpha=alpha
    )
    return _MEANING.get(found, GateVerdict.PASS)


def _straddled(effect: Effect, p_value: float, verdict: GateVerdict, margin: float, alpha: float) -> str:
    """Which readings of the errors contradict each other; empty when none does."""
    times = p_value / effect.p_value if effect.p_value > 0 else 1.0
    readings = [_judge(other, min(1.0, other.p_value * times), margin, alpha) for other in effect.others]
    if set(readings) <= {verdict}:
        return ""
    said = [verdict, *readings]
    names = ("errors left out", "errors as zero", "errors as passes")
    return ", ".join(f"{name}: {verdict.value}" for name, verdict in zip(names, said, strict=False))


Judged = Sequence[tuple[Effect, GateVerdict]]


def _worst(judged: Judged) -> tuple[Effect, GateVerdict] | None:
    """The effect that decided: the lowest gain among those with the leading verdict."""
    leading = overall(verdict for _, verdict in judged)
    return min(
        (each for each in judged if each[1] is leading),
        key=lambda each: each[0].gain if math.isfinite(each[0].gain) else math.inf,
        default=None,
    )


def _sentence(study: Study, judged: Judged, verdict: GateVerdict, straddled: Mapping[str, str]) -> str:
    decisive = [text for each, text in study.problems if each is verdict]
    numbers = overall(each for _, each in judged)
    if decisive and (not judged or numbers is not verdict):
        return f"{_subject(study.rule)}: {'; '.join(decisive)}."
    worst = _worst(judged)
    if worst is None:
        return f"{_subject(study.rule)}: nothing to compare."
    effect, leading = worst
    of = ""
    if len(judged) > 1:
        hits = sum(each is leading for _, each in judged)
        at = "of" if study.unit == "arm" else "at"
        of = f" {at} {hits} of {len(judged)} {study.unit}s, worst {at} {effect.name}:"
        if leading is GateVerdict.PASS:
            of = f" {at} each of {len(judged)} {study.unit}s, nearest to the margin {effect.name}:"
    mixed = straddled.get(effect.name)
    why = f"; the verdict depends on how errors are counted ({mixed})" if mixed else ""
    note = f" ({effect.note})" if effect.note else ""
    return f"{_subject(study.rule)}{of} {said(effect.estimate)}{note}; {_tolerated(study.rule)}{why}."


def _subject(rule: NotWorse) -> str:
    name = {"reward": "score", "pass_rate": "pass rate"}.get(rule.metric, rule.metric)
    return f"{rule.statistic} {name}" if rule.statistic else name


def _tolerated(rule: NotWorse) -> str:
    word = "more" if rule.higher_is_worse else "less"
    unit = "pp" if rule.is_score else "%"
    return f"{100 * rule.margin:g} {unit} {word} is tolerated"


def said(estimate: Estimate) -> str:
    """An estimate with its interval, for people."""
    level = f"{100 * (estimate.level or 0):g} %"
    if estimate.unit == "pp":
        span = f"{_pp(estimate.low)} to {_pp(estimate.high)}"
        return f"{_pp(estimate.value)} against the baseline ({level} {span}, for {estimate.claim})"
    if not math.isfinite(estimate.value):
        return "no ratio to the baseline"
    low, high = (plain_ratio(each) if each is not None else "?" for each in (estimate.low, estimate.high))
    return f"{plain_ratio(estimate.value)} times the baseline ({level} {low} to {high})"


def _pp(value: float | None) -> str:
    return "?" if value is None else points(value)


def _change(study: Study, verdict: GateVerdict) -> str:
    if not study.effects:
        return study.settle
    detected = ""
    if study.detectable is not None and math.isfinite(study.detectable):
        unit = "pp" if study.rule.is_score else "%"
        detected = (
            f"a loss of {significant(100 * study.detectable, 2)} {unit} would "
            "be detected with 80 % probability"
        )
        if study.detectable >= 1:
            detected = "not even a doubling would be detected with 80 % probability"
    first = {
        GateVerdict.PASS: "it would fail if a loss beyond the margin could not be excluded",
        GateVerdict.REGRESSION: "it would change only if the estimate came back inside the margin",
    }.get(verdict, "")
    rest = study.settle if verdict is GateVerdict.INCONCLUSIVE else ""
    return "; ".join(filter(None, (first, detected, rest, study.narrowed)))


def _details(study: Study, judged: Judged) -> tuple[str, ...]:
    lines = [f"{verdict.value}: {text}" for verdict, text in study.problems if judged]
    ranked = sorted(judged, key=lambda each: each[0].gain if math.isfinite(each[0].gain) else math.inf)
    if len(judged) > 1:
        bad = [each for each in ranked if each[1] is not GateVerdict.PASS] or ranked[:3]
        shown = bad[:MOST_DETAILS]
        lines += [f"{verdict.value}: {effect.name} {said(effect.estimate)}" for effect, verdict in shown]
        lines += [f"and {len(bad) - len(shown)} more"] if len(bad) > len(shown) else []
    return tuple(lines)
