"""A comparison in words: the verdict first, and what the data could not have shown."""

from __future__ import annotations

import math

from proctor.analysis.times import PointComparison, TimesComparison
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
    margin = percent(times.margin)
    if verdict in {Verdict.WORSE, Verdict.BETTER}:
        far = max(
            hits or times.points, key=lambda point: abs(math.log(point.ratio)) if point.ratio > 0 else 0
        )
        word = "Worse" if verdict is Verdict.WORSE else "Better, and no point is worse"
        where = f"; most of all {far.name}," if count > 1 else ","
        return f"{word}: {of} changed by {margin} or more in {each.metric}{where} {_ratio_text(far)}."
    if verdict is Verdict.INCONCLUSIVE:
        if not hits:
            return "Inconclusive: a point has a result in A and none in B."
        return f"Inconclusive: {of} could be worse by more than {margin} in {each.metric}."
    scope = "any of " if count > 1 else ""
    small = " There is a change, and it is smaller than that." if verdict is Verdict.SMALL else ""
    whole = f"B is {_overall(times)} A" if times.ratio else "B equals A"
    return (
        f"No worse: {whole}; a loss of more than {margin} in {each.metric} is excluded for "
        f"{scope}{f'{count} points' if count > 1 else times.points[0].name}.{small}"
    )


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


def _overall(times: TimesComparison) -> str:
    if times.ratio is None or times.interval is None:
        return "?"
    return f"{times.ratio:.3f} × ({times.interval.low:.3f} to {times.interval.high:.3f})"


def _ratio_text(point: PointComparison) -> str:
    return f"{point.ratio:.3f} × ({point.interval.low:.3f} to {point.interval.high:.3f})"


def caution(each: MetricComparison) -> str:
    """What stored times cannot do, said plainly; empty for quantities that do not tick."""
    times = each.times
    if times.noise.sigma <= 0 or not times.points:
        return ""
    return (
        f"Stored times from different moments can rarely settle less than {percent(times.settles)} here "
        f"(run-to-run noise {percent(times.noise.sigma)}, {times.noise.source}). "
        "To settle less, measure both sides together: proctor ab."
    )


def percent(fraction: float) -> str:
    """A fraction as a percentage of two digits."""
    return f"{significant(100 * fraction, 2)} %" if math.isfinite(fraction) else "any"


def points(fraction: float) -> str:
    """A difference of scores in percentage points, with its sign."""
    return f"{100 * fraction:+.1f} pp"
