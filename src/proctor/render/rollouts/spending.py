"""What rollouts cost: cost against score, times in the order they came, and memory, as pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from proctor.analysis.claim import Claim
from proctor.model.describe import percentile
from proctor.quantity import metric_title, number
from proctor.render.charts import distribution, iterations
from proctor.render.charts.distribution import Sample
from proctor.render.charts.scatter import Place, scatter
from proctor.render.html.view import View, figure, section
from proctor.runfolder.read import TrialResult
from proctor.verdicts.compare.means import clustered_mean
from proctor.verdicts.rollouts.scores import ArmScore, Rollouts, rollouts
from proctor.verdicts.rollouts.table import Cell
from proctor.verdicts.rollouts.words import claim_of

MOST_ARMS = 24
MOST_TASKS = 400
LEAST_SERIES = 8
"""Fewer rollouts in a row show no drift."""
LEAST_ALIKE = 3
"""Fewer rollouts of one task and agent have no median to be held against."""


def cost(view: View) -> str:
    """Score against money, or against time where no money was spent: by agent, or by task of a single one."""
    run = rollouts(view.data)
    arms, claim = run.arms, claim_of(run)
    for metric in ("cost_usd", "duration_s"):
        places = _by_arm(arms, metric, claim) if len(arms) > 1 else _by_task(arms[0], metric)
        if len(places) > 1:
            break
    else:
        return ""
    what = metric_title(metric)
    if len(arms) > 1:
        caption = (
            f"One mark per agent and model: mean {what} of a rollout and pass rate, both over tasks, with 95 "
            f"% intervals for {claim}. Further up is better, further left is cheaper. To see whether two "
            "agents differ, use a paired comparison (proctor compare), not overlapping intervals."
        )
    else:
        caption = (
            f"One mark per task: mean {what} of a rollout and pass rate. Tasks at the lower right need much "
            f"{what} and rarely pass."
        )
    if len(arms) == 1 and len(arms[0].cells) > MOST_TASKS:
        caption += f" {len(places)} of {len(arms[0].cells)} tasks are drawn, evenly from best to worst."
    chart = scatter(places, metric=metric, title=f"Pass rate against {what}")
    title = "Cost and score of a rollout" if metric == "cost_usd" else "Time and pass rate"
    return section(f"{what.capitalize()} against score", figure(chart, title, caption), name="cost")


def _by_arm(arms: Sequence[ArmScore], metric: str, claim: Claim) -> list[Place]:
    places = []
    for at, arm in enumerate(arms[:MOST_ARMS]):
        score = arm.passes.excluded
        mean = clustered_mean({cell.row.label: values_of(cell.trials, metric) for cell in arm.cells})
        if score and mean and mean.value > 0:
            interval = score.interval(claim)
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
            record.took_s
            if metric == "duration_s"
            else number(record.usage.get(metric, record.ledger.get(metric)))
        )
        if value is not None:
            found.append(value)
    return found


def latency(view: View) -> str:
    """How long rollouts took in the order they started, each against others of its own task and agent."""
    times = in_order(rollouts(view.data))
    if len(times) < LEAST_SERIES:
        return ""
    chart = iterations.series(Sample("", times), "times_the_median", each="rollout")
    caption = (
        f"{len(times)} scored rollouts in the order they started. Each is divided by the median of the "
        f"rollouts of the same task and agent, so tasks of different length can be seen together; "
        f"{iterations.trend(times)}. Shaded: p5 to p95; dashed: the median."
    )
    if len(times) > iterations.MOST_POINTS:
        caption += " Drawn as the range of neighbouring rollouts."
    return section("Times in order", figure(chart, "Time of a rollout, relative", caption), name="latency")


def in_order(run: Rollouts) -> list[float]:
    """Every scored rollout's time over the median of its task and agent, in the order they started."""
    found: list[tuple[float, float]] = []
    for arm in run.arms:
        for cell in arm.cells:
            ended = [trial.counted for trial in cell.trials if trial.counted and trial.counted.outcome.scored]
            times = [(each.started_at, took) for each in ended if (took := each.took_s)]
            if len(times) >= LEAST_ALIKE:
                middle = percentile(sorted(took for _, took in times), 50)
                found += [(at, took / middle) for at, took in times]
    return [ratio for _, ratio in sorted(found)]


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
            caption = "Box: the middle half of the rollouts; whiskers: p5 to p95; thick line: median."
            title = f"{metric_title(metric).capitalize()} of a rollout".replace("Cpu", "CPU time")
            drawn += figure(distribution.rows(samples, metric), title, caption)
    return drawn
