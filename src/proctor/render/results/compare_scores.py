"""Rollouts in a comparison: the scores of both sides, every task, cost against score, what was spent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from proctor.analysis.claim import FEW_TASKS, Claim, widest_claim
from proctor.analysis.interval import Interval
from proctor.model.document import Block, Cell, Chart, Column, Section, Table, interval, number
from proctor.quantity import MISSING, metric_title, show, significant
from proctor.render.results.cells import trial_link
from proctor.render.results.compare_points import UNFOLDED
from proctor.verdicts.compare.by_task import (
    ArmScore,
    Spent,
    TaskDifference,
    arm_scores,
    spent,
    task_differences,
)
from proctor.verdicts.compare.judge import Comparison, ScoreComparison
from proctor.verdicts.compare.pairing import pair_arms
from proctor.verdicts.compare.results import ArmRewards, ResultSet
from proctor.verdicts.compare.sentence import detectable_sentence, points, ways_out
from proctor.verdicts.run.story import NOT_DISTINGUISHABLE

MOST_TABLE = 200
MOST_PRINTED = 20
"""Tasks in a terminal: the ones that differ most."""
READINGS = (("errors excluded", "excluded"), ("errors as zero", "as_zero"), ("best case", "best_case"))


def score_sections(found: Comparison, a: ResultSet, b: ResultSet, folder: Path) -> list[Section]:
    """One for each arm."""
    several = len(found.scores) > 1
    pairs = {after.name: (before, after) for before, after in pair_arms(a, b)}
    return [
        _score_section(score, pairs[score.arm], a, b, folder, f"Score of {score.arm}" if several else "Score")
        for score in found.scores
    ]


def _score_section(
    score: ScoreComparison,
    arms: tuple[ArmRewards, ArmRewards],
    a: ResultSet,
    b: ResultSet,
    folder: Path,
    title: str,
) -> Section:
    """The three readings, the forest of tasks, and every task in a row."""
    found = task_differences(arms[0].tasks, arms[1].tasks)
    blocks: list[Block] = [_readings(score)]
    if found:
        blocks += [
            Chart(
                title="B minus A, task by task",
                draw=lambda: _forest(score, found),
                caption=_caption(score, found),
            ),
            _tasks(found, (a, b), arms, folder),
        ]
    return Section(title=title, blocks=tuple(blocks), name="score")


def _readings(score: ScoreComparison) -> Table:
    rows = []
    for title, name in READINGS:
        one, two, both = (getattr(side, name) for side in (score.a, score.b, score.bounds))
        rows.append(
            (
                title,
                _share(one.value if one else None),
                _share(two.value if two else None),
                number(points(both.difference), both.difference, strong=True) if both else MISSING,
                _span(both.tasks_like_these) if both else MISSING,
                _span(both.these_tasks) if both else MISSING,
            )
        )
    return Table(
        columns=(
            Column("score"),
            *(Column(title, "number") for title in ("A", "B", "B - A")),
            Column("tasks like these, 95 %", "whole"),
            Column("these tasks, 95 %", "whole"),
        ),
        rows=tuple(rows),
        caption=f"Errors not caused by the agent: {score.a.errors} in A, {score.b.errors} in B.",
    )


def _share(value: float | None) -> Cell:
    return number(MISSING if value is None else f"{100 * value:.1f} %", value)


def _span(found: Interval) -> Cell:
    if not (math.isfinite(found.low) and math.isfinite(found.high)):
        return interval(MISSING, None, None)
    return interval(f"{points(found.low)} to {points(found.high)}", found.low, found.high)


def _forest(score: ScoreComparison, found: Sequence[TaskDifference]) -> partial[str]:
    from proctor.render.charts.forest import Branch, forest

    rows = [
        Branch(
            label=each.name,
            value=each.difference,
            low=each.low,
            high=each.high,
            text=f"{points(each.difference)} · {100 * each.a:.0f} → {100 * each.b:.0f} %",
            tone="" if each.low <= 0 <= each.high else "good" if each.difference > 0 else "bad",
        )
        for each in found
    ]
    headline, whole = score.bounds.excluded, None
    if headline:
        ends = headline.interval(score.claim)
        whole = Branch(
            label="mean over tasks",
            value=headline.difference,
            low=ends.low,
            high=ends.high,
            text=f"{points(headline.difference)} ({_span(ends).text})",
        )
    return partial(
        forest,
        rows=rows,
        title="Differences by task",
        ratio=False,
        band=(-score.margin, score.margin),
        whole=whole,
        axis="B minus A, percentage points; to the right is better",
    )


def _caption(score: ScoreComparison, found: Sequence[TaskDifference]) -> str:
    n_a, n_b = sum(each.n_a for each in found), sum(each.n_b for each in found)
    return (
        f"{len(found)} tasks, {n_a} scored rollouts in A and {n_b} in B. A task's line is the 95 % "
        "interval for new rollouts of that task (coloured when it excludes 0); of many unchanged "
        "tasks 1 in 20 is coloured by chance. The verdict uses only the last row: the mean over "
        f"tasks, for {score.claim}. Grey: the margin of {significant(100 * score.margin)} pp."
    )


def _tasks(
    found: Sequence[TaskDifference],
    sides: tuple[ResultSet, ResultSet],
    arms: tuple[ArmRewards, ArmRewards],
    folder: Path,
) -> Table:
    shown = sorted(found, key=lambda each: -abs(each.difference))[:MOST_TABLE]
    names = {each.name for each in shown}
    trials = [
        {point.task: point.folder for point in side.points if point.arm == arm.name and point.task in names}
        for side, arm in zip(sides, arms, strict=True)
    ]

    def rate(side: int, name: str, value: float, n: int) -> Cell:
        href = trial_link(sides[side], trials[side].get(name, ""), folder)
        return Cell(text=f"{100 * value:.0f} %", value=value, note=f"of {n}", href=href)

    rows = tuple(
        (
            each.name,
            rate(0, each.name, each.a, each.n_a),
            rate(1, each.name, each.b, each.n_b),
            number(points(each.difference), each.difference, strong=True),
            _span(Interval(each.low, each.high, 0.95, "")),
            f"{each.errors_a}/{each.errors_b}" if each.errors_a or each.errors_b else "",
        )
        for each in shown
    )
    return Table(
        columns=(
            Column("task", "prose"),
            *(Column(title, "number") for title in ("A", "B", "B - A")),
            Column("95 % interval", "whole"),
            Column("errors A/B", "number", spare=True),
        ),
        rows=rows,
        total=len(found),
        brief=MOST_PRINTED,
        folded=f"Every task, {len(found)} of them" if len(found) > UNFOLDED else "",
    )


def cost_section(a: ResultSet, b: ResultSet) -> Section:
    """Score against money, or against time where no money was spent."""
    for metric in ("cost_usd", "duration_s"):
        before, after = arm_scores(a, metric), arm_scores(b, metric)
        if before and after:
            break
    else:
        return Section()
    what = metric_title(metric)
    claim = widest_claim(min(each.score.tasks for each in (*before, *after)))
    sides = [("A", each) for each in before] + [("B", each) for each in after]
    chart = Chart(
        title="Cost and score of a rollout" if metric == "cost_usd" else "Time and score of a rollout",
        draw=lambda: _scatter(before, after, metric, claim),
        caption=f"Mean {what} of a rollout and mean reward, both over tasks, with 95 % intervals for "
        f"{claim}. Dashed: from A to B. Further up is better, further left is cheaper; overlapping intervals "
        "here do not mean no difference, because the comparison above is paired by task.",
        text=tuple(
            f"{side} {each.arm}: {100 * each.score.value:.1f} % for {show(metric, each.cost.value)}"
            for side, each in sides
        ),
    )
    return Section(title=f"{what.capitalize()} against score", blocks=(chart,), name="cost")


def _scatter(
    before: Sequence[ArmScore], after: Sequence[ArmScore], metric: str, claim: Claim
) -> partial[str]:
    from proctor.render.charts.scatter import Place, scatter

    places = []
    known = {each.arm: at for at, each in enumerate(before)}
    single = len(before) == len(after) == 1
    for series, (side, arms) in enumerate((("A", before), ("B", after))):
        for each in arms:
            ends, cost = each.score.interval(claim), each.cost
            places.append(
                Place(
                    label=f"{side} {each.arm}".strip(),
                    cost=cost.value,
                    score=each.score.value,
                    cost_ends=None if cost.low is None or cost.high is None else (cost.low, cost.high),
                    score_ends=(ends.low, ends.high),
                    series=series,
                    after=(0 if single else known.get(each.arm)) if series else None,
                )
            )
    return partial(scatter, places=places, metric=metric, title=f"Score against {metric_title(metric)}")


def spent_section(a: ResultSet, b: ResultSet, *, seed: int = 0) -> Section:
    """Time, money, tokens and memory of both sides."""
    found = spent(a, b, seed=seed)
    if not found:
        return Section()
    rows = tuple(
        (
            metric_title(each.metric),
            number(show(each.metric, each.a.value), each.a.value),
            number(show(each.metric, each.b.value), each.b.value),
            number(f"{each.ratio:.2f}" if each.ratio and each.apart else MISSING, each.ratio, strong=True),
            interval(
                f"{each.interval.low:.2f} – {each.interval.high:.2f}", each.interval.low, each.interval.high
            )
            if each.interval
            else MISSING,
            f"{each.a.n}/{each.b.n}",
        )
        for each in found
    )
    table = Table(
        columns=(
            Column("mean of a rollout"),
            *(Column(title, "number") for title in ("A", "B", "B/A")),
            Column("95 % interval", "whole"),
            Column("n", "number", spare=True),
        ),
        rows=rows,
        caption="Scored rollouts of the tasks that both sides have; the interval is a bootstrap over tasks. "
        "Shown to explain the verdict, but not judged. To judge a metric, name it with --metric or in a rule "
        f"of a gate. B/A {MISSING}: {NOT_DISTINGUISHABLE}, because the interval includes 1.",
    )
    drawn = [each for each in found if each.ratio and each.interval]
    chart = Chart(
        title="B over A",
        draw=lambda: _spent_forest(drawn),
        caption="95 % intervals, by bootstrap over tasks.",
    )
    blocks: tuple[Block, ...] = (chart, table) if drawn else (table,)
    return Section(title="Time and resources", blocks=blocks, name="spent")


def _spent_forest(found: Sequence[Spent]) -> partial[str]:
    from proctor.render.charts.forest import Branch, forest

    rows = [
        Branch(
            label=metric_title(each.metric),
            value=each.ratio,
            low=each.interval.low,
            high=each.interval.high,
            text=f"{show(each.metric, each.a.value)} → {show(each.metric, each.b.value)}",
        )
        for each in found
        if each.ratio and each.interval
    ]
    axis = "B/A, log scale; 1 is no change"
    return partial(
        forest, rows=rows, title="What was spent, B over A", ratio=True, band=(1.0, 1.0), axis=axis
    )


def method_of_score(score: ScoreComparison) -> list[str]:
    """What was tested, and what would change the verdict on a score."""
    return list(_method(score)) or ["No task was scored on both sides, so there is nothing to compare."]


def _method(score: ScoreComparison) -> Iterator[str]:
    headline = score.bounds.excluded
    if headline is None:
        return
    how, p_value = "paired t test", headline.p_value
    if score.claim is Claim.THESE_TASKS:
        how, p_value = "interval of the difference, stratified by task", headline.p_these_tasks
    elif headline.tasks < FEW_TASKS:
        how = "exact sign-flip test"
    yield (
        f"Tested: the mean difference of per-task means over {headline.tasks} tasks, "
        f"{headline.rollouts_a} rollouts against {headline.rollouts_b}, by the {how} (p "
        f"{p_value:.2g}, for {score.claim}). Rollouts are not paired by their number."
    )
    if found := detectable_sentence(score):
        yield found
    worst, best = score.bounds.worst_for_b, score.bounds.best_for_b
    errors = score.bounds.errors_a + score.bounds.errors_b
    if worst and best and errors:
        yield (
            f"For any true result of the {errors} errors, B minus A is between {points(worst.difference)} "
            f"and {points(best.difference)}."
        )
    yield from ways_out(score)
    yield (
        "What would change the verdict: more tasks narrow the interval for tasks like these, more "
        "rollouts the one for these tasks; 'proctor aa' tells how many of each are needed."
    )
