"""Rollouts on the page of a comparison: the forest of tasks, cost against score, what both sides spent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from proctor.analysis.claim import FEW_TASKS, Claim, widest_claim
from proctor.quantity import MISSING, metric_title, show, significant
from proctor.render.charts.forest import Branch, forest
from proctor.render.charts.scatter import Place, scatter
from proctor.render.html.view import details, figure, section, table
from proctor.verdicts.compare.by_task import TaskDifference, arm_scores, spent, task_differences
from proctor.verdicts.compare.judge import ScoreComparison
from proctor.verdicts.compare.results import ResultSet
from proctor.verdicts.compare.sentence import points, reach, ways_out
from proctor.verdicts.run.story import NOT_DISTINGUISHABLE

MOST_TABLE = 200
UNFOLDED = 16
"""Longer tables are folded: the chart above shows the same data."""
READINGS = (("errors excluded", "excluded"), ("errors as zero", "as_zero"), ("best case", "best_case"))


def score_section(score: ScoreComparison, a: ResultSet, b: ResultSet) -> str:
    """The three readings, the forest of tasks, and every task in a row."""
    found = task_differences(a.tasks, b.tasks)
    body = _readings(score)
    if found:
        body += figure(_forest(score, found), "B minus A, task by task", _caption(score, found))
        body += _table(found)
    return section("Score", body, name="score")


def _readings(score: ScoreComparison) -> str:
    rows = []
    for title, name in READINGS:
        one, two, both = (getattr(side, name) for side in (score.a, score.b, score.bounds))
        rows.append(
            [
                title,
                f"{100 * one.value:.1f} %" if one else "–",
                f"{100 * two.value:.1f} %" if two else "–",
                f"<b>{points(both.difference)}</b>" if both else "–",
                _span(both.tasks_like_these) if both else "–",
                _span(both.these_tasks) if both else "–",
            ]
        )
    headers = ["score", "A", "B", "B - A", "tasks like these, 95 %", "these tasks, 95 %"]
    errors = f"Errors not caused by the agent: {score.a.errors} in A, {score.b.errors} in B."
    return table(headers, rows, numeric=range(1, 6)) + f"<p class=note>{errors}</p>"


def _span(interval: object) -> str:
    low, high = getattr(interval, "low", math.nan), getattr(interval, "high", math.nan)
    return f"{points(low)} to {points(high)}" if math.isfinite(low) and math.isfinite(high) else "–"


def _forest(score: ScoreComparison, found: Sequence[TaskDifference]) -> str:
    headline = score.bounds.excluded
    whole = None
    if headline:
        interval = headline.interval(score.claim)
        whole = Branch(
            label="mean over tasks",
            value=headline.difference,
            low=interval.low,
            high=interval.high,
            told=f"{points(headline.difference)} ({_span(interval)})",
        )
    return forest(
        [_branch(each) for each in found],
        title="Differences by task",
        ratio=False,
        band=(-score.margin, score.margin),
        whole=whole,
        axis="B minus A, percentage points; to the right is better",
    )


def _branch(each: TaskDifference) -> Branch:
    certain = not each.low <= 0 <= each.high
    return Branch(
        label=each.name,
        value=each.difference,
        low=each.low,
        high=each.high,
        told=f"{points(each.difference)} · {100 * each.a:.0f} → {100 * each.b:.0f} %",
        tone=("good" if each.difference > 0 else "bad") if certain else "",
    )


def _caption(score: ScoreComparison, found: Sequence[TaskDifference]) -> str:
    n_a, n_b = sum(each.n_a for each in found), sum(each.n_b for each in found)
    return (
        f"{len(found)} tasks, {n_a} scored rollouts in A and {n_b} in B. A task's line is the 95 % "
        "interval for new rollouts of that task (coloured when it excludes 0); of many unchanged "
        "tasks 1 in 20 is coloured by chance. The verdict uses only the last row: the mean over "
        f"tasks, for {score.claim}. Grey: the margin of {significant(100 * score.margin)} pp."
    )


def _table(found: Sequence[TaskDifference]) -> str:
    ranked = sorted(found, key=lambda each: -abs(each.difference))
    rows = [
        [
            escape(each.name),
            f"{100 * each.a:.0f} % <small>of {each.n_a}</small>",
            f"{100 * each.b:.0f} % <small>of {each.n_b}</small>",
            f"<b>{points(each.difference)}</b>",
            f"{points(each.low)} to {points(each.high)}" if math.isfinite(each.low) else "–",
            f"{each.errors_a} / {each.errors_b}" if each.errors_a or each.errors_b else "",
        ]
        for each in ranked[:MOST_TABLE]
    ]
    body = table(["task", "A", "B", "B - A", "95 % interval", "errors A/B"], rows, numeric=range(1, 6))
    more = len(ranked) - len(rows)
    body += f"<p class=note>And {more} more; --json lists all of them.</p>" if more > 0 else ""
    return body if len(rows) <= UNFOLDED else details(f"Every task, {len(found)} of them", body)


def cost_section(a: ResultSet, b: ResultSet) -> str:
    """Score against money, or against time where no money was spent."""
    for metric in ("cost_usd", "duration_s"):
        before, after = arm_scores(a, metric), arm_scores(b, metric)
        if before and after:
            break
    else:
        return ""
    places = []
    known = {each.arm: at for at, each in enumerate(before)}
    single = len(before) == len(after) == 1
    claim = widest_claim(min(each.score.tasks for each in (*before, *after)))
    for side, arms in (("A", before), ("B", after)):
        for each in arms:
            interval = each.score.interval(claim)
            cost = each.cost
            ends = (cost.low, cost.high) if cost.low is not None and cost.high is not None else None
            same = 0 if single else known.get(each.arm)
            places.append(
                Place(
                    label=f"{side} {each.arm}".strip(),
                    cost=cost.value,
                    score=each.score.value,
                    cost_ends=ends,
                    score_ends=(interval.low, interval.high),
                    series=0 if side == "A" else 1,
                    after=same if side == "B" else None,
                )
            )
    what = metric_title(metric)
    caption = (
        f"Mean {what} of a rollout and mean reward, both over tasks, with 95 % intervals for "
        f"{claim}. Dashed: from A to B. Further up is better, further left is cheaper; overlapping intervals "
        "here do not mean no difference, because the comparison above is paired by task."
    )
    chart = scatter(places, metric=metric, title=f"Score against {what}")
    return section(
        f"{what.capitalize()} against score",
        figure(chart, "Cost and score of a rollout", caption),
        name="cost",
    )


def spent_section(a: ResultSet, b: ResultSet, *, seed: int = 0) -> str:
    """Time, money, tokens and memory of both sides."""
    found = spent(a, b, seed=seed)
    if not found:
        return ""
    rows = [
        [
            escape(metric_title(each.metric)),
            escape(show(each.metric, each.a.value)),
            escape(show(each.metric, each.b.value)),
            f"<b>{each.ratio:.2f}</b>" if each.ratio and each.apart else MISSING,
            f"{each.interval.low:.2f} – {each.interval.high:.2f}" if each.interval else "–",
            f"{each.a.n}/{each.b.n}",
        ]
        for each in found
    ]
    headers = ["mean of a rollout", "A", "B", "B/A", "95 % interval", "n"]
    note = (
        "Scored rollouts of the tasks that both sides have; the interval is a bootstrap over tasks. Shown "
        "to explain the verdict, but not judged. To judge a metric, name it with --metric or in a rule of "
        f"a gate. B/A {MISSING}: {NOT_DISTINGUISHABLE}, because the interval includes 1."
    )
    body = table(headers, rows, numeric=range(1, 6)) + f"<p class=note>{note}</p>"
    drawn = [each for each in found if each.ratio and each.interval]
    if drawn:
        branches = [
            Branch(
                label=metric_title(each.metric),
                value=each.ratio or 1.0,
                low=each.interval.low if each.interval else 1.0,
                high=each.interval.high if each.interval else 1.0,
                told=f"{show(each.metric, each.a.value)} → {show(each.metric, each.b.value)}",
            )
            for each in drawn
        ]
        chart = forest(
            branches,
            title="What was spent, B over A",
            ratio=True,
            band=(1.0, 1.0),
            axis="B/A, log scale; 1 is no change",
        )
        body = figure(chart, "B over A", "95 % intervals, by bootstrap over tasks.") + body
    return section("Time and resources", body, name="spent")


def said_of_score(score: ScoreComparison) -> list[str]:
    """What was tested, and what would change the verdict on a score."""
    headline = score.bounds.excluded
    if headline is None:
        return ["No task was scored on both sides, so there is nothing to compare."]
    how, p_value = "paired t test", headline.p_value
    if score.claim is Claim.THESE_TASKS:
        how, p_value = "interval of the difference, stratified by task", headline.p_these_tasks
    elif headline.tasks < FEW_TASKS:
        how = "exact sign-flip test"
    said = [
        (
            f"Tested: the mean difference of per-task means over {headline.tasks} tasks, "
            f"{headline.rollouts_a} rollouts against {headline.rollouts_b}, by the {how} (p "
            f"{p_value:.2g}, for {score.claim}). Rollouts are not paired by their number."
        ),
        *filter(None, [reach(score)]),
    ]
    worst, best = score.bounds.worst_for_b, score.bounds.best_for_b
    if worst and best and (score.bounds.errors_a or score.bounds.errors_b):
        said.append(
            f"For any true result of the {score.bounds.errors_a + score.bounds.errors_b} errors, "
            "B minus A is "
            f"between {points(worst.difference)} and {points(best.difference)}."
        )
    said += ways_out(score)
    said.append(
        "What would change the verdict: more tasks narrow the interval for tasks like these, more "
        "rollouts the one for these tasks; 'proctor aa' tells how many of each are needed."
    )
    return said
