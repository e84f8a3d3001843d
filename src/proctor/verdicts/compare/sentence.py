"""A comparison in words: the verdict first, and what the data could not have shown."""

from __future__ import annotations

import math

from proctor.analysis.claim import Claim, too_few
from proctor.analysis.interval import Interval
from proctor.analysis.times import PointComparison
from proctor.analysis.verdict import Verdict
from proctor.quantity import MISSING, decimals, plural, significant
from proctor.verdicts.compare.judge import Comparison, MetricComparison, ScoreComparison
from proctor.verdicts.run.story import NOT_DISTINGUISHABLE


def sentence(found: Comparison) -> str:
    """The verdict for a person, in one sentence."""
    new = [failure.name for failure in found.failures if failure.new]
    if new:
        more = f" and {len(new) - 1} more" if len(new) > 1 else ""
        return f"Worse: {new[0]}{more} had a result in A and fails in B."
    if found.scores:
        leading = [each for each in found.scores if each.verdict is found.verdict] or list(found.scores)
        said = _score_sentence(leading[0], several=len(found.scores) > 1)
        count = len(found.scores)
        return said if count == 1 else f"{said[:-1]} ({len(leading)} of {count} arms)."
    judged = [each for each in found.metrics if each.times.verdict is found.verdict] or list(found.metrics)
    if not judged or not judged[0].times.points:
        return "Inconclusive: no point has a result on both sides."
    return _times_sentence(judged[0], found.verdict)


def _times_sentence(each: MetricComparison, verdict: Verdict) -> str:
    times, count = each.times, len(each.times.points)
    hits = [point for point in times.points if point.verdict is verdict]
    of = f"{len(hits)} of {count} points" if count > 1 else times.points[0].name
    if verdict in {Verdict.WORSE, Verdict.BETTER}:
        far = max(hits, key=lambda point: abs(math.log(point.ratio)))
        word = "Worse" if verdict is Verdict.WORSE else "Better, and nothing is worse"
        where = f"; most of all {far.name}," if count > 1 else ","
        return (
            f"{word}: {of} changed by {percent(times.margin)} or more in {each.metric}{where} "
            f"B/A {range_text(far.ratio, far.interval)}."
        )
    if verdict is Verdict.CHANGED:
        far = max(hits, key=lambda point: abs(math.log(point.ratio)))
        return (
            f"Changed: {of} by {percent(times.margin)} or more in {each.metric}, "
            f"B/A {range_text(far.ratio, far.interval)}; nobody has said whether more of it is better: "
            "--higher-is-better or --lower-is-better, or 'better' in the spec."
        )
    margin = percent(times.margin)
    if verdict is Verdict.INCONCLUSIVE:
        if not hits:
            return "Inconclusive: a point has a result in A and none in B."
        word = "differ" if times.higher_is_better is None else "be worse"
        return f"Inconclusive: {of} could {word} by more than {margin} in {each.metric}."
    where = f"each of {count} points" if count > 1 else times.points[0].name
    whole = f" B/A {range_text(times.ratio, times.interval)}." if times.ratio and times.interval else ""
    small = " There is a change, but it is smaller than that." if verdict is Verdict.SMALL else ""
    return f"No worse: a loss of more than {margin} in {each.metric} is excluded for {where}.{small}{whole}"


def _score_sentence(score: ScoreComparison, *, several: bool) -> str:
    headline = score.bounds.excluded
    who = f"{score.arm}: " if several else ""
    if headline is None:
        return f"Inconclusive: {who}no task was scored on both sides."
    interval = headline.interval(score.claim)
    facts = (
        f"B {points(headline.difference)} over {plural(headline.tasks, 'task')} "
        f"(95 % {points(interval.low)} to {points(interval.high)}, for {score.claim})"
    )
    start = {
        Verdict.WORSE: "Worse",
        Verdict.BETTER: "Better",
        Verdict.INCONCLUSIVE: f"Inconclusive at a margin of {significant(100 * score.margin)} pp",
    }.get(score.verdict, f"Not worse by more than {significant(100 * score.margin)} pp")
    alone = headline.judge(score.margin, these_tasks=score.claim is Claim.THESE_TASKS)
    why = ""
    if score.verdict is Verdict.INCONCLUSIVE and alone is not Verdict.INCONCLUSIVE:
        why = (
            f"; without the errors it would be '{alone.value}': the verdict depends on how errors are counted"
        )
    return f"{start}: {who}{facts}{why}."


def detectable_sentence(score: ScoreComparison) -> str:
    """What would have been detected; empty where this many tasks can prove nothing for the claim."""
    headline = score.bounds.excluded
    hopeless = score.claim is Claim.TASKS_LIKE_THESE and headline and too_few(headline.tasks)
    if headline is None or hopeless:
        return ""
    return (
        f"A difference of {100 * headline.detects(score.claim):.1f} pp would be detected with 80 % "
        f"probability, for {score.claim}; the margin is {significant(100 * score.margin)} pp."
    )


def ways_out(score: ScoreComparison) -> list[str]:
    """Why the claim is no wider, and what would settle an inconclusive verdict."""
    found = [f"Judged for these tasks: {score.narrowed}."] if score.narrowed else []
    return [*found, f"What would settle it: {score.settle}."] if score.settle else found


def ratio_text(point: PointComparison) -> str:
    """B/A of one point; withheld where the interval says that it may be 1."""
    low, high = point.interval.low, point.interval.high
    return MISSING if low <= 1 <= high else plain_ratio(point.ratio)


def range_text(value: float, interval: Interval) -> str:
    """A ratio and its interval; only the interval where it includes 1."""
    if interval.low <= 1 <= interval.high:
        return f"{NOT_DISTINGUISHABLE} from 1 ({interval.low:.3f} to {interval.high:.3f})"
    return f"{plain_ratio(value)} ({plain_ratio(interval.low)} to {plain_ratio(interval.high)})"


def plain_ratio(value: float) -> str:
    """Three decimals, or as many as show that it is not 1."""
    return f"{value:.{decimals(value, 3, 1.0)}f}"


def caution(each: MetricComparison) -> str:
    """What stored times cannot prove; empty for quantities that are not times."""
    times = each.times
    if times.noise.sigma <= 0 or not times.points:
        return ""
    limit = f"can rarely prove changes below {percent(times.settles)}"
    if times.settles >= 1:
        limit = "cannot prove even a doubling"
    return (
        f"Times stored at different moments {limit} here "
        f"(run-to-run noise {percent(times.noise.sigma)}, {times.noise.source}). "
        "To detect smaller changes, measure both sides together: proctor ab."
    )


def percent(fraction: float) -> str:
    """A fraction as a percentage of two digits."""
    if not math.isfinite(fraction):
        return "any"
    return f"{100 * fraction:.0f} %" if fraction >= 0.1 else f"{significant(100 * fraction, 2)} %"


def points(fraction: float) -> str:
    """A difference of scores in percentage points, with its sign."""
    return f"{100 * fraction:+.{decimals(100 * fraction, 1)}f} pp"
