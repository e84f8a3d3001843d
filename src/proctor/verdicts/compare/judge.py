"""Compare two sides: pair them, check the facts, and judge."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from proctor.analysis.claim import Claim, chosen_claim, too_few
from proctor.analysis.clock import CPU, HeadlineClock, clock_sentence
from proctor.analysis.compare import MissingBounds, missing_bounds
from proctor.analysis.estimate import Denominators, denominators
from proctor.analysis.interval import Interval
from proctor.analysis.p_values import holm
from proctor.analysis.times import (
    DEFAULT_NOISE,
    Noise,
    PointComparison,
    Samples,
    TimesComparison,
    adjust_together,
    compare_times,
)
from proctor.analysis.verdict import Verdict, overall
from proctor.errors import Exit, UsageError
from proctor.model.canonical import finite
from proctor.model.direction import Direction, direction_of
from proctor.model.outcome import Blame
from proctor.quantity import is_rate
from proctor.verdicts.compare.clock import judged_metrics, shared_clock, waiting_sentences
from proctor.verdicts.compare.facts import differences
from proctor.verdicts.compare.grounds import ground_differences
from proctor.verdicts.compare.pairing import (
    Pairing,
    all_changed,
    changed_sentence,
    pair_arms,
    pair_sides,
    without_changed,
)
from proctor.verdicts.compare.power import what_settles
from proctor.verdicts.compare.results import ArmRewards, ResultPoint, ResultSet

SCHEMA_VERSION = 1
SCORE_MARGIN = 0.05
_TIMES = ("_s", "_ms", "_us", "_ns", "_seconds", "_sec")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A pair of which a side has no result."""

    name: str
    a: str
    b: str
    new: bool
    """A has a result and B failed because of its own code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricComparison:
    """One metric over all pairs."""

    metric: str
    times: TimesComparison
    absent: tuple[str, ...] = ()
    """Pairs in which one side does not have this metric."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data. Its points apart: of a hundred thousand of them no copy more than needed is made."""
        from proctor.verdicts.compare.sentence import caution

        rest: dict[str, Any] = finite(asdict(replace(self.times, points=())))
        rest["points"] = [_point(point) for point in self.times.points]
        return {"metric": self.metric, "absent": list(self.absent), "caution": caution(self), **rest}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreComparison:
    """Rewards of one arm in two task runs."""

    bounds: MissingBounds
    a: Denominators
    b: Denominators
    margin: float
    claim: Claim
    """What the verdict and its interval are about."""
    verdict: Verdict
    narrowed: str = ""
    """Why nothing is claimed about tasks like these, where nobody asked for less."""
    settle: str = ""
    """What would settle an inconclusive verdict."""
    arm: str = ""
    """Whose rewards, where several arms are compared."""

    @property
    def interval(self) -> Interval | None:
        """The interval of the headline, for the claim."""
        return self.bounds.excluded.interval(self.claim) if self.bounds.excluded else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Everything that a reader of the verdict needs."""

    label_a: str
    label_b: str
    verdict: Verdict
    metrics: tuple[MetricComparison, ...]
    scores: tuple[ScoreComparison, ...]
    """Of every arm that both sides have; their verdicts are corrected together (Holm)."""
    failures: tuple[Failure, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    warnings: tuple[str, ...]
    changed: tuple[str, ...] = ()
    """Tasks whose content is not the same on both sides."""
    with_changed: bool = False
    """Whether they were asked for; else they are left out of the verdict."""
    clock: HeadlineClock | None = None
    """Of times, where nobody named a metric: the clock that leads, and why."""

    @property
    def score(self) -> ScoreComparison | None:
        """The only one; None where there are several, or none."""
        return self.scores[0] if len(self.scores) == 1 else None

    @property
    def exit_code(self) -> Exit:
        """0 no worse, 1 worse, 3 inconclusive, or changed where nobody has said what is better."""
        if self.verdict is Verdict.WORSE:
            return Exit.WORSE
        open_ = self.verdict in {Verdict.INCONCLUSIVE, Verdict.CHANGED}
        return Exit.INCONCLUSIVE if open_ else Exit.OK

    @property
    def ratio(self) -> float | None:
        """B divided by A in the first metric, as a geometric mean over its points; None for scores."""
        return self.metrics[0].times.ratio if self.metrics else None

    @property
    def difference(self) -> float | None:
        """Score of B minus score of A, errors excluded; None for several arms and without scores."""
        excluded = self.score.bounds.excluded if self.score else None
        return excluded.difference if excluded else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the ratio, or of the difference of scores for what `claim` says."""
        if self.score:
            found = self.score.interval
        else:
            found = self.metrics[0].times.interval if self.metrics else None
        return (found.low, found.high) if found else None

    @property
    def claim(self) -> str | None:
        """What a difference of scores is about: "tasks like these" or "these tasks"; None for ratios."""
        return self.score.claim.value if self.score else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data: what `proctor compare --json` prints. Additions only, once published.

        What is not finite becomes null, so that any JSON parser reads it.
        """
        plain: dict[str, Any] = finite(
            {
                "schema_version": SCHEMA_VERSION,
                "verdict": self.verdict.value,
                "exit_code": int(self.exit_code),
                "sentence": str(self),
                "a": self.label_a,
                "b": self.label_b,
                "warnings": list(self.warnings),
                "clock": self.clock.to_mapping() if self.clock else None,
                "metrics": [],
                "score": asdict(self.score) if self.score else None,
                "scores": [asdict(each) for each in self.scores],
                "failures": [asdict(each) for each in self.failures],
                "only_a": list(self.only_a),
                "only_b": list(self.only_b),
                "changed": list(self.changed),
                "with_changed": self.with_changed,
            }
        )
        plain["metrics"] = [each.to_dict() for each in self.metrics]
        return plain

    def __str__(self) -> str:
        from proctor.verdicts.compare.sentence import sentence

        return sentence(self)


def compare(
    a: ResultSet,
    b: ResultSet,
    *,
    metrics: Sequence[str] = (),
    margin: float | None = None,
    higher_is_better: bool | None = None,
    noise: Mapping[str, Noise] | None = None,
    these_tasks: bool | None = None,
    changed_tasks: bool = False,
    seed: int = 0,
) -> Comparison:
    """Compare two sides on one or more metrics; UsageError when they have nothing in common.

    `changed_tasks`: those too whose content is not the same on both sides.
    """
    if a.kind != b.kind:
        raise UsageError(f"cannot compare {a.label}, a run of {a.kind}s, with {b.label}, a run of {b.kind}s")
    same_a, same_b, changed = without_changed(a, b)
    if not changed_tasks:
        a, b = same_a, same_b
    clock = None if metrics else shared_clock(a, b)
    wanted = judged_metrics(a, b, metrics)
    rewards = "reward" in wanted and a.kind == "task"
    scores = _scores(a, b, margin, these_tasks, seed) if rewards else ()
    if these_tasks is not None and not rewards:
        raise UsageError("only scores of tasks have a claim: remove --these-tasks or --tasks-like-these")
    pairing = pair_sides(a, b)
    if not pairing.pairs:
        raise UsageError(all_changed(changed) if changed else _nothing_shared(a, b))
    failures = _failures(pairing)
    usable = [(one, two) for one, two in pairing.pairs if not one.failed and not two.failed]
    found = []
    for metric in wanted:
        if rewards and metric == "reward":
            continue
        higher = _higher_is_better(metric, a, b) if higher_is_better is None else higher_is_better
        chosen = (noise or {}).get(metric) or default_noise(metric)
        found.append(_metric(metric, usable, margin, higher, chosen, seed))
    _check_metrics(found, a, b, usable)
    if len(found) > 1:  # one alone is adjusted already
        together = adjust_together([each.times for each in found])
        found = [replace(each, times=times) for each, times in zip(found, together, strict=True)]
    warnings = [*differences(a.facts, b.facts), *ground_differences(a.grounds, b.grounds)]
    warnings += [pairing.warning] if pairing.warning else []
    warnings += [changed_sentence(changed, compared=changed_tasks)] if changed else []
    warnings += [clock_sentence(clock)] if clock and clock.why else []
    if wanted != (CPU,):
        warnings += [*waiting_sentences("A", a), *waiting_sentences("B", b)]
    warnings += [f"A: {note}" for note in a.notes] + [f"B: {note}" for note in b.notes]
    return Comparison(
        label_a=a.label,
        label_b=b.label,
        verdict=_verdict(found, scores, failures),
        metrics=tuple(found),
        scores=scores,
        failures=failures,
        only_a=pairing.only_a,
        only_b=pairing.only_b,
        warnings=tuple(warnings),
        changed=changed,
        with_changed=changed_tasks,
        clock=clock,
    )


def default_noise(metric: str) -> Noise:
    """Run-to-run noise when no history tells: for times and rates; other quantities do not tick."""
    if is_time(metric):
        return Noise(sigma=DEFAULT_NOISE, source=("the default: no earlier runs of the same code"))
    return Noise(sigma=0.0, source="none: not a time")


def is_time(metric: str) -> bool:
    """Whether a metric depends on how fast the machine happens to be."""
    name = metric.lower()
    return name.endswith(_TIMES) or is_rate(name) or "throughput" in name or "ops" in name.split("_")


def _higher_is_better(metric: str, a: ResultSet, b: ResultSet) -> bool | None:
    """As both sides say; None where nobody does, or where they disagree."""
    known = {direction_of(metric, side.better) for side in (a, b)}
    return known.pop() is Direction.HIGHER if len(known) == 1 and None not in known else None


def paired_samples(metric: str, pairs: Sequence[tuple[ResultPoint, ResultPoint]]) -> list[Samples]:
    """The values of a metric at the points that have it on both sides, and how long they waited for a CPU."""
    # The CPU clock stands still while code waits; caches and cores that others use still cost it.
    weight = 0.0 if not is_time(metric) else 0.65 if "cpu" in metric.lower() else 1.0
    return [
        Samples(
            name=one.name,
            a=one.samples[metric],
            b=two.samples[metric],
            waited_a=weight * one.waited,
            waited_b=weight * two.waited,
        )
        for one, two in pairs
        if one.samples.get(metric) and two.samples.get(metric)
    ]


def _metric(
    metric: str,
    pairs: Sequence[tuple[ResultPoint, ResultPoint]],
    margin: float | None,
    higher: bool | None,
    noise: Noise,
    seed: int,
) -> MetricComparison:
    samples = paired_samples(metric, pairs)
    names = {each.name for each in samples}
    return MetricComparison(
        metric=metric,
        times=compare_times(samples, noise=noise, margin=margin, higher_is_better=higher, seed=seed),
        absent=tuple(one.name for one, _ in pairs if one.name not in names),
    )


def _scores(
    a: ResultSet, b: ResultSet, margin: float | None, these_tasks: bool | None, seed: int
) -> tuple[ScoreComparison, ...]:
    """One comparison for each arm of both sides, corrected together."""
    arms = pair_arms(a, b)
    bounds = [missing_bounds(one.tasks, two.tasks, seed=seed) for one, two in arms]
    claims = [chosen_claim(these_tasks, each.tasks) for each in bounds]
    p_values = [
        each.excluded.p_of(claim) if each.excluded else 1.0
        for each, claim in zip(bounds, claims, strict=True)
    ]
    factors = [
        after / before if before > 0 else 1.0 for before, after in zip(p_values, holm(p_values), strict=True)
    ]
    return tuple(
        _score(pair, each, claim, SCORE_MARGIN if margin is None else margin, these_tasks, times)
        for pair, each, claim, times in zip(arms, bounds, claims, factors, strict=True)
    )


def _score(
    arms: tuple[ArmRewards, ArmRewards],
    bounds: MissingBounds,
    claim: Claim,
    margin: float,
    these_tasks: bool | None,
    times: float,
) -> ScoreComparison:
    before, after = arms
    verdict = bounds.judge(margin, these_tasks=claim is Claim.THESE_TASKS, times=times)
    open_ = verdict is Verdict.INCONCLUSIVE
    return ScoreComparison(
        bounds=bounds,
        a=denominators(before.tasks),
        b=denominators(after.tasks),
        margin=margin,
        claim=claim,
        verdict=verdict,
        narrowed=too_few(bounds.tasks) if these_tasks is None and claim is Claim.THESE_TASKS else "",
        settle=what_settles(before.tasks, after.tasks, claim=claim, margin=margin) if open_ else "",
        arm=after.name,
    )


def _failures(pairing: Pairing) -> tuple[Failure, ...]:
    return tuple(
        Failure(
            name=one.name,
            a=one.failed or "passed",
            b=two.failed or "passed",
            new=not one.failed and two.blame in {Blame.AGENT, None} and two.failed not in {"", "not run"},
        )
        for one, two in pairing.pairs
        if one.failed or two.failed
    )


def _verdict(
    metrics: Sequence[MetricComparison], scores: Sequence[ScoreComparison], failures: Sequence[Failure]
) -> Verdict:
    """Code that ran and now fails is worse; a point lost to anything else leaves the question open."""
    verdicts = [each.times.verdict for each in metrics if each.times.points]
    verdicts += [Verdict.INCONCLUSIVE for each in metrics if not each.times.points]
    verdicts += [score.verdict for score in scores]
    for failure in failures:
        if failure.new:
            verdicts.append(Verdict.WORSE)
        elif failure.a == "passed":
            verdicts.append(Verdict.INCONCLUSIVE)
    return overall(verdicts)


def _check_metrics(
    found: Sequence[MetricComparison],
    a: ResultSet,
    b: ResultSet,
    usable: Sequence[tuple[ResultPoint, ResultPoint]],
) -> None:
    from difflib import get_close_matches

    for each in found:
        if usable and not each.times.points:
            known = sorted(set(a.metrics) & set(b.metrics)) or sorted({*a.metrics, *b.metrics})
            near = get_close_matches(each.metric, known, 1)
            hint = f"did you mean '{near[0]}'?" if near else f"there are: {', '.join(known[:20]) or 'none'}"
            raise UsageError(f"no pair of points has the metric '{each.metric}'; {hint}")


def _nothing_shared(a: ResultSet, b: ResultSet) -> str:
    if not a.points or not b.points:
        empty = a if not a.points else b
        return f"{empty.label} has no points to compare"
    return (
        f"{a.label} and {b.label} have no point in common: the first has '{a.points[0].name}', "
        f"the second '{b.points[0].name}'"
    )


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
