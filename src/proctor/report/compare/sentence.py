"""A comparison in words: the verdict first, and what the data could not have shown."""

from __future__ import annotations

import math

from proctor.analysis.interval import Interval
from proctor.analysis.verdict import Verdict
from proctor.report.compare.judge import Comparison, MetricComparison, ScoreComparison
from proctor.report.quantity import significant


def sentence(found: Comparison) -> str:
    """The verdict for a person, in one sentence."""
    new = [failure.name for failure in found.failures if failure.new]
    if new:
        more = f" and {len(new) - 1} more" if len(new) > 1 else ""
        return f"Worse: {new[0]}{more} had a result in A and fails in B."
    if found.score:
        return _score_sentence(found.score)
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
            f"B/A {_range(far.ratio, far.interval)}."
        )
    promise = percent(times.promise)
    if verdict is Verdict.INCONCLUSIVE:
        if not hits:
            return "Inconclusive: a point has a result in A and none in B."
        return f"Inconclusive: {of} could be worse by more than {promise} in {each.metric}."
    where = f"each of {count} points" if count > 1 else times.points[0].name
    whole = f" B/A {_range(times.ratio, times.interval)}." if times.ratio and times.interval else ""
    small = " There is a change, and it is smaller than that." if verdict is Verdict.SMALL else ""
    return f"No worse: a loss of more than {promise} in {each.metric} is excluded for {where}.{small}{whole}"


def _score_sentence(score: ScoreComparison) -> str:
    headline = score.bounds.excluded
    if headline is None:
        return "Inconclusive: no task was scored on both sides."
    interval = headline.tasks_like_these
    facts = (
        f"B {points(headline.difference)} over {headline.tasks} tasks "
        f"(95 % {points(interval.low)} to {points(interval.high)}, for tasks like these)"
    )
    start = {
        Verdict.WORSE: "Worse",
        Verdict.BETTER: "Better",
        Verdict.INCONCLUSIVE: f"Inconclusive at a margin of {significant(100 * score.margin)} pp",
    }.get(score.verdict, f"No worse than {significant(100 * score.margin)} pp")
    alone = headline.judge(score.margin)
    why = ""
    if score.verdict is Verdict.INCONCLUSIVE and alone is not Verdict.INCONCLUSIVE:
        why = f"; without the errors it would read '{alone.value}', and how errors are counted decides"
    return f"{start}: {facts}{why}."


def _range(value: float, interval: Interval) -> str:
    return f"{value:.3f} ({interval.low:.3f} to {interval.high:.3f})"


def caution(each: MetricComparison) -> str:
    """What stored times cannot do, said plainly; empty for quantities that do not tick."""
    times = each.times
    if times.noise.sigma <= 0 or not times.points:
        return ""
    reach = f"can rarely settle less than {percent(times.settles)}"
    if times.settles >= 1:
        reach = "cannot settle even a doubling"
    return (
        f"Stored times from different moments {reach} here "
        f"(run-to-run noise {percent(times.noise.sigma)}, {times.noise.source}). "
        "To settle less, measure both sides together: proctor ab."
    )


def percent(fraction: float) -> str:
    """A fraction as a percentage of two digits."""
    if not math.isfinite(fraction):
        return "any"
    return f"{100 * fraction:.0f} %" if fraction >= 0.1 else f"{significant(100 * fraction, 2)} %"


def points(fraction: float) -> str:
    """A difference of scores in percentage points, with its sign."""
    return f"{100 * fraction:+.1f} pp"
