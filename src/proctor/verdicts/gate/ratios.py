"""Times, costs, memory and other quantities against the baseline's: ratios, by point or over a suite."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from proctor.analysis.compare import paired_ratio
from proctor.analysis.distributions import two_sided_t
from proctor.analysis.interval import Interval
from proctor.analysis.tails import point_ratio, suite_ratio, widen
from proctor.analysis.times import Noise, compare_times
from proctor.model.outcome import Blame
from proctor.quantity import number, significant
from proctor.spec.node import nearest
from proctor.verdicts.compare.judge import default_noise, is_time, paired_samples
from proctor.verdicts.compare.pairing import pair_sides
from proctor.verdicts.compare.results import ResultPoint
from proctor.verdicts.gate.inputs import GateInput
from proctor.verdicts.gate.rules import NotWorse, refuse
from proctor.verdicts.gate.statistical import (
    Effect,
    Problem,
    Study,
    arm_pairs,
    lost,
    other_machine,
    ratio_detectable,
    ratio_effect,
    ratio_margin,
    unlike_infrastructure,
)
from proctor.verdicts.gate.verdict import GateVerdict

SIZE_NOISE = 0.02
"""Run-to-run spread of memory and sizes (as a log), used without history."""
Pairs = Sequence[tuple[ResultPoint, ResultPoint]]


@dataclass(slots=True)
class _Gathered:
    effects: list[Effect] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    values: list[int] = field(default_factory=lambda: [0, 0])

    def add(self, effect: Effect, error: float, count_a: int, count_b: int) -> None:
        self.effects.append(effect)
        self.errors.append(error)
        self.values[0] += count_a
        self.values[1] += count_b


def ratio_study(
    rule: NotWorse, run: GateInput, baseline: GateInput, *, noise: Mapping[str, Noise], seed: int
) -> Study:
    """A metric against the baseline's, at each shared point, or over the shared tasks as a whole."""
    if run.results.kind != baseline.results.kind:
        raise refuse(rule.written, f"{run.label} and {baseline.label} are runs of different kinds")
    tasks = run.results.kind == "task"
    problem = unlike_infrastructure(run, baseline) if tasks else None
    stops = (*other_machine(rule, run, baseline), *((problem,) if problem else ()))
    if stops:
        return Study(rule=rule, problems=stops, n=f"{run.trials} trials against {baseline.trials}")
    chosen = _noise(rule.metric, baseline, noise)
    if rule.arm and not tasks:
        raise refuse(rule.written, f"{run.label} is a run of experiments: it has no arms")
    pairing = pair_sides(baseline.results, run.results)
    arms, gone = arm_pairs(rule, run, baseline) if rule.arm else ([], ())
    names = {after.name for _, after in arms}
    chosen_pairs = [(a, b) for a, b in pairing.pairs if not rule.arm or b.arm in names]
    usable = [(a, b) for a, b in chosen_pairs if not a.failed and not b.failed]
    having = [(a, b) for a, b in usable if a.samples.get(rule.metric) and b.samples.get(rule.metric)]
    absent = () if rule.arm else lost("task" if tasks else "point", pairing.only_a)
    problems = [*_failed(chosen_pairs), *absent, *gone]
    if not having:
        if usable:
            raise refuse(rule.written, _no_metric(rule.metric, run, baseline))
        problems.append((GateVerdict.INCONCLUSIVE, "no point has a result on both sides"))
        return Study(rule=rule, problems=tuple(problems))
    found = _by_arm(rule, having, chosen, seed) if tasks else _at_points(rule, having, chosen, seed)
    what = "tasks" if tasks else "points"
    return Study(
        rule=rule,
        effects=tuple(found.effects),
        unit="arm" if tasks else "point",
        margin=ratio_margin(rule),
        n=f"{len(having)} {what if len(having) > 1 else what[:-1]}, "
        f"{found.values[1]} values against {found.values[0]}",
        detectable=ratio_detectable(rule, found.errors, chosen),
        settle=_settle(rule, chosen),
        problems=tuple(problems),
    )


def _noise(metric: str, baseline: GateInput, known: Mapping[str, Noise]) -> Noise:
    """From this store's history, from the baseline's, or a default."""
    if metric in known:
        return known[metric]
    stored = baseline.noise.get(metric)
    sigma = number(stored.get("sigma")) if stored else None
    if stored and sigma is not None and 0 < sigma < 10:
        df = number(stored.get("df"))
        return Noise(sigma=sigma, df=max(df, 1.0) if df else math.inf, source=str(stored.get("source", "")))
    if not is_time(metric) and metric.endswith("_bytes"):
        return Noise(sigma=SIZE_NOISE, source="default for sizes")
    return default_noise(metric)


def _at_points(rule: NotWorse, pairs: Pairs, noise: Noise, seed: int) -> _Gathered:
    found = _Gathered()
    metric, name = rule.metric, rule.statistic or "p50"
    if name == "p50":
        times = compare_times(
            paired_samples(metric, pairs),
            noise=noise,
            margin=rule.margin,
            higher_is_better=not rule.higher_is_worse,
            level=rule.level,
            seed=seed,
        )
        for point in times.points:
            effect = ratio_effect(rule, point.name, point.ratio, point.interval, point.p_value, point.note)
            error = point.error if math.isfinite(point.ratio) else math.inf
            found.add(effect, error, point.count_a, point.count_b)
        return found
    for a, b in pairs:
        ratio = point_ratio(
            a.samples[metric], b.samples[metric], name, noise=noise, level=rule.level, seed=seed
        )
        effect = ratio_effect(rule, a.name, ratio.ratio, ratio.interval, ratio.p_value, ratio.note)
        found.add(effect, ratio.error, ratio.count_a, ratio.count_b)
    return found


def _by_arm(rule: NotWorse, pairs: Pairs, noise: Noise, seed: int) -> _Gathered:
    """The suite of each arm as a whole."""
    arms: dict[str, list[tuple[ResultPoint, ResultPoint]]] = {}
    for a, b in pairs:
        arms.setdefault(b.arm, []).append((a, b))
    found = _Gathered()
    for arm, own in arms.items():
        if len(own) == 1:
            each = _at_points(rule, own, noise, seed)
        else:
            each = _over_suite(rule, own, noise, seed, "the suite" if len(arms) == 1 else arm)
        found.effects += each.effects
        found.errors += each.errors
        found.values = [one + more for one, more in zip(found.values, each.values, strict=True)]
    return found


def _over_suite(rule: NotWorse, pairs: Pairs, noise: Noise, seed: int, name: str) -> _Gathered:
    before = {a.name: a.samples[rule.metric] for a, _ in pairs}
    after = {a.name: b.samples[rule.metric] for a, b in pairs}
    counts = tuple(sum(map(len, run.values())) for run in (before, after))
    found = _Gathered()
    if rule.statistic not in {"", "mean"}:
        ratio = suite_ratio(before, after, rule.statistic, noise=noise, level=rule.level, seed=seed)
        effect = ratio_effect(rule, name, ratio.ratio, ratio.interval, ratio.p_value, ratio.note)
        found.add(effect, ratio.error, *counts)
        return found
    if min(value for run in (before, after) for values in run.values() for value in values) <= 0:
        found.add(_with_zeros(rule, name, before, after), math.inf, *counts)
        return found
    means = paired_ratio(before, after, seed=seed, level=rule.level)
    assert means is not None
    interval, error = widen(means.interval, means.ratio, noise)
    # The sign-flip test has not heard of run-to-run noise; the wider interval has.
    p_value = max(means.p_value, two_sided_t(math.log(means.ratio) / error, noise.df) if error else 0.0)
    found.add(ratio_effect(rule, name, means.ratio, interval, p_value), error, *counts)
    return found


def _with_zeros(
    rule: NotWorse, name: str, before: Mapping[str, Sequence[float]], after: Mapping[str, Sequence[float]]
) -> Effect:
    """Without ratios only equality can be judged: both sides are zero."""
    if all(list(before[task]) == list(after[task]) for task in before):
        return ratio_effect(rule, name, 1.0, Interval(1.0, 1.0, rule.level, "equal"), 1.0)
    unknown = Interval(0.0, math.inf, rule.level, "none")
    note = "no ratio: a value is not above zero"
    return ratio_effect(rule, name, math.nan, unknown, 1.0, note)


def _failed(pairs: Pairs) -> list[Problem]:
    """Points that had a result and now have none, by whose doing."""
    found: list[Problem] = []
    for a, b in pairs:
        if a.failed or not b.failed:
            continue
        text = f"{a.name} had a result in the baseline and now: {b.failed}"
        if b.blame in {Blame.INFRASTRUCTURE, Blame.PROVIDER}:
            found.append((GateVerdict.INFRASTRUCTURE, text))
        elif b.blame in {Blame.AGENT, Blame.AUTHOR} and b.failed != "not run":
            found.append((GateVerdict.REGRESSION, text))
        else:
            found.append((GateVerdict.INCONCLUSIVE, text))
    return found


def _no_metric(metric: str, run: GateInput, baseline: GateInput) -> str:
    names = {name for point in run.results.points for name, values in point.samples.items() if values}
    known = {*names, *run.results.metrics, *baseline.results.metrics} - {metric}
    where = "neither side" if metric not in names else "the baseline"
    return f"'{metric}' was not measured: {where} has a value{nearest(metric, sorted(known)[:40])}"


def _settle(rule: NotWorse, noise: Noise) -> str:
    if not is_time(rule.metric):
        return "more values on each side, or a wider margin"
    known = f"run-to-run noise {significant(100 * noise.sigma, 2)} % ({noise.source})"
    learn = "" if math.isfinite(noise.df) else "4 runs of unchanged code in the store replace the default; "
    return f"{known}; {learn}proctor ab measures both versions together and can detect 2 %"
