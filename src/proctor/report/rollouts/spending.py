"""What rollouts took: cost against score, times in the order they came, and memory, as pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from proctor.report.charts import distribution, iterations
from proctor.report.charts.distribution import Sample
from proctor.report.charts.scatter import Place, scatter
from proctor.report.compare.means import clustered_mean
from proctor.report.data import TrialResult
from proctor.report.html.view import View, figure, section
from proctor.report.quantity import metric_title, number
from proctor.report.rollouts.scores import ArmScore, rollouts, took_s
from proctor.report.rollouts.table import Cell

MOST_ARMS = 24
MOST_TASKS = 400
LEAST_SERIES = 8
"""Fewer rollouts in a row show no drift."""


def cost(view: View) -> str:
    """Score against money, or against time where no money was spent: by agent, or by task of a single one."""
    arms = rollouts(view.data).arms
    for metric in ("cost_usd", "duration_s"):
        places = _by_arm(arms, metric) if len(arms) > 1 else _by_task(arms[0], metric)
        if len(places) > 1:
            break
    else:
        return ""
    what = metric_title(metric)
    if len(arms) > 1:
        caption = (
            f"A mark per agent and model: mean {what} of a rollout and pass rate, both over tasks, with 95 "
            "% intervals for tasks like these. Further up is better, further left is cheaper. Whether two "
            "differ is for a paired comparison to say, not for overlapping intervals."
        )
    else:
        caption = (
            f"A mark per task: mean {what} of a rollout and pass rate. Tasks at the lower right are where "
            f"{what} goes without a pass."
        )
    if len(arms) == 1 and len(arms[0].cells) > MOST_TASKS:
        caption += f" {len(places)} of {len(arms[0].cells)} tasks are drawn, evenly from best to worst."
    chart = scatter(places, metric=metric, title=f"Pass rate against {what}")
    title = "What a rollout costs, and what it earns" if metric == "cost_usd" else "Time and pass rate"
    return section(f"{what.capitalize()} against score", figure(chart, title, caption), name="cost")


def _by_arm(arms: Sequence[ArmScore], metric: str) -> list[Place]:
    places = []
    for at, arm in enumerate(arms[:MOST_ARMS]):
        score = arm.passes.excluded
        mean = clustered_mean({cell.row.label: values_of(cell.trials, metric) for cell in arm.cells})
        if score and mean and mean.value > 0:
            interval = score.tasks_like_these or score.these_tasks
            ends = (mean.low, mean.high) if mean.low is not None and mean.high is not None else None
            places.append(
                Place(
                    label=arm.arm.label,
                    cost=mean.value,
                    score=score.value,
                    cost_ends=ends,
                    score_ends=(interval.low, interval.high),
                    series=at,
                )
            )
    return places


def _by_task(arm: ArmScore, metric: str) -> list[Place]:
    places = [place for cell in arm.cells if (place := _task(cell, metric))]
    if len(places) <= MOST_TASKS:
        return places
    return [places[round(at * (len(places) - 1) / (MOST_TASKS - 1))] for at in range(MOST_TASKS)]


def _task(cell: Cell, metric: str) -> Place | None:
    values = values_of(cell.trials, metric)
    if not values or not cell.rewards or sum(values) <= 0:
        return None
    return Place(label=cell.row.label, cost=sum(values) / len(values), score=cell.passed / len(cell.rewards))


def values_of(trials: Iterable[TrialResult], metric: str) -> list[float]:
    """What each scored rollout took of something."""
    found = []
    for trial in trials:
        record = trial.counted
        if record is None or not record.outcome.scored:
            continue
        value = (
            took_s(record)
            if metric == "duration_s"
            else number(record.usage.get(metric, record.ledger.get(metric)))
        )
        if value is not None:
            found.append(value)
    return found


def latency(view: View) -> str:
    """How long rollouts took in the order they started: drift, queues and machines that tire."""
    ended = [trial.counted for trial in view.data.trials if trial.counted and trial.counted.outcome.scored]
    if len(ended) < LEAST_SERIES:
        return ""
    times = [took_s(record) for record in sorted(ended, key=lambda record: record.started_at)]
    chart = iterations.series(Sample("", times), "duration_s", each="rollout")
    caption = (
        f"{len(times)} scored rollouts of all tasks and agents in the order they started; "
        f"{iterations.trend(times)}. Shaded: p5 to p95; dashed: the median. Tasks differ, so only a slope "
        "or step over many of them means something."
    )
    if len(times) > iterations.MOST_POINTS:
        caption += " Drawn as the range of neighbouring rollouts."
    return section("Times in order", figure(chart, "How long a rollout took", caption), name="latency")


def memory(arms: Sequence[ArmScore]) -> str:
    """Peak memory and CPU of rollouts, a row per agent."""
    drawn = ""
    for metric in ("peak_memory_bytes", "cpu_s"):
        samples = [
            Sample(arm.arm.label, values)
            for arm in arms[:MOST_ARMS]
            if len(values := values_of(arm.trials, metric)) > 1 and max(values) > min(values)
        ]
        if samples:
            caption = "Box: the middle half of the rollouts; whiskers: p5 to p95; heavy line: median."
            title = f"{metric_title(metric).capitalize()} of a rollout".replace("Cpu", "CPU time")
            drawn += figure(distribution.rows(samples, metric), title, caption)
    return drawn
