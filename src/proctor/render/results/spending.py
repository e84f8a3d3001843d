"""What rollouts took, used and cost: cost against score, times in order, phases, resources, model use."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

from proctor.analysis.claim import Claim
from proctor.analysis.estimate import AtK
from proctor.analysis.interval import Interval
from proctor.model.describe import percentile
from proctor.model.document import Block, Cell, Chart, Column, Facts, Fold, Section, Table, Text
from proctor.quantity import MISSING, metric_title
from proctor.render.charts import distribution, iterations, rates
from proctor.render.charts.distribution import Sample
from proctor.render.charts.scatter import Place, scatter
from proctor.render.results.cells import amount_cell, columns, time_cell
from proctor.verdicts.compare.means import clustered_mean
from proctor.verdicts.rollouts.evidence import UsedImage
from proctor.verdicts.rollouts.scores import ArmScore, Rollouts, middle, phases
from proctor.verdicts.rollouts.table import LEDGER, UNKNOWN
from proctor.verdicts.rollouts.table import Cell as Task
from proctor.verdicts.rollouts.words import claim_of

MOST_ARMS = 24
MOST_TASKS = 400
LEAST_SERIES = 8
"""Fewer rollouts in a row show no drift."""
LEAST_ALIKE = 3
"""Fewer rollouts of one task and agent have no median to be held against."""
_FLAT = "Every task always passes or always fails, so pass@k and pass^k are the pass rate at every k."
_CURVES = "Solid, pass@k: the chance that at least one of k rollouts passes. Dashed, pass^k: that all k do."
_AROUND = (
    "Medians over the attempts that count. These times are not part of a trial's duration; an image is built "
    "or fetched once."
)


def cost(run: Rollouts) -> Section:
    """Score against money, or against time where no money was spent: by agent, or by task of a single one."""
    arms, claim = run.arms, claim_of(run)
    for metric in ("cost_usd", "duration_s"):
        places = _by_arm(arms, metric, claim) if len(arms) > 1 else _by_task(arms[0], metric)
        if len(places) > 1:
            break
    else:
        return Section()
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
        if len(arms[0].cells) > MOST_TASKS:
            caption += f" {len(places)} of {len(arms[0].cells)} tasks are drawn, evenly from best to worst."
    chart = Chart(
        title="Cost and score of a rollout" if metric == "cost_usd" else "Time and pass rate",
        draw=partial(scatter, places=places, metric=metric, title=f"Pass rate against {what}"),
        caption=caption,
    )
    return Section(title=f"{what.capitalize()} against score", blocks=(chart,), name="cost", aside=True)


def _by_arm(arms: Sequence[ArmScore], metric: str, claim: Claim) -> list[Place]:
    places = []
    for at, arm in enumerate(arms[:MOST_ARMS]):
        score = arm.passes.excluded
        mean = clustered_mean({cell.row.label: cell.tally.spent.get(metric, ()) for cell in arm.cells})
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


def _task(cell: Task, metric: str) -> Place | None:
    values = cell.tally.spent.get(metric)
    if not values or not cell.rewards or sum(values) <= 0:
        return None
    return Place(label=cell.row.label, cost=sum(values) / len(values), score=cell.passed / len(cell.rewards))


def latency(run: Rollouts) -> Section:
    """How long rollouts took in the order they started, each against others of its own task and agent."""
    times = in_order(run)
    if len(times) < LEAST_SERIES:
        return Section()
    caption = (
        f"{len(times)} scored rollouts in the order they started. Each is divided by the median of the "
        f"rollouts of the same task and agent, so tasks of different length can be seen together; "
        f"{iterations.trend(times)}. Shaded: p5 to p95; dashed: the median."
    )
    if len(times) > iterations.MOST_POINTS:
        caption += " Drawn as the range of neighbouring rollouts."
    draw = partial(iterations.series, sample=Sample("", times), metric="times_the_median", each="rollout")
    chart = Chart(title="Time of a rollout, relative", draw=draw, caption=caption)
    return Section(title="Times in order", blocks=(chart,), name="latency", aside=True)


def in_order(run: Rollouts) -> list[float]:
    """Every scored rollout's time over the median of its task and agent, in the order they started."""
    found: list[tuple[float, float]] = []
    for arm in run.arms:
        for cell in arm.cells:
            times = [(at, took) for at, took in cell.tally.times if took]
            if len(times) >= LEAST_ALIKE:
                usual = percentile(sorted(took for _, took in times), 50)
                found += [(at, took / usual) for at, took in times]
    return [ratio for _, ratio in sorted(found)]


def resources(run: Rollouts, images: Sequence[UsedImage]) -> Section:
    """Where the time of a trial went, what it used, on which images, and which limits were enforced."""
    blocks: list[Block] = [
        *_phases(run),
        *_memory(run.arms),
        *_ledger(run),
        *_images(images),
    ]
    limits = {name: how for arm in reversed(run.arms) for name, how in arm.use.enforced.items()}
    if limits:
        facts = Facts(pairs=tuple(limits.items()))
        blocks.append(Fold(title="Which limits were enforced, and how", blocks=(facts,)))
    return Section(title="Time and resources", blocks=tuple(blocks), name="resources", aside=True)


def _phases(run: Rollouts) -> list[Block]:
    """The time of a trial, and what the harness needed around it, which is in no other time of the report."""
    blocks: list[Block] = []
    means = {
        arm.arm.label: {name: math.fsum(v) / len(v) for name, v in phases(arm.use, work=True).items()}
        for arm in run.arms
    }
    bars = [rates.PhaseBar(label, each) for label, each in means.items() if sum(each.values()) > 0]
    if bars:
        caption = "Mean over the attempts that count: agent and verifier."
        draw = partial(rates.phase_bars, bars=bars)
        blocks.append(Chart(title="An average trial", draw=draw, caption=caption))
        blocks += columns("mean of a trial", {bar.label: _texts(bar.phases_s) for bar in bars})
    around = {
        arm.arm.label: {name: _usual(values) for name, values in phases(arm.use, work=False).items()}
        for arm in run.arms
    }
    return [
        *blocks,
        *columns("around a trial, median", around, title="Image, queue, start", caption=_AROUND),
    ]


def _texts(seconds: Mapping[str, float]) -> dict[str, Cell | str]:
    return {name: time_cell(value) for name, value in seconds.items()}


def _usual(values: Sequence[float]) -> Cell:
    usual, most = percentile(sorted(values), 50), max(values)
    return time_cell(usual, "" if most < 2 * usual or most < 1 else f"most {time_cell(most).text}")


def _memory(arms: Sequence[ArmScore]) -> list[Chart]:
    """Peak memory and CPU of rollouts, a row per agent."""
    drawn = []
    for metric in ("peak_memory_bytes", "cpu_s"):
        samples = [
            Sample(arm.arm.label, values)
            for arm in arms[:MOST_ARMS]
            if len(values := arm.use.spent.get(metric, ())) > 1 and max(values) > min(values)
        ]
        if samples:
            caption = "Box: the middle half of the rollouts; whiskers: p5 to p95; thick line: median."
            title = f"{metric_title(metric).capitalize()} of a rollout".replace("Cpu", "CPU time")
            draw = partial(distribution.rows, samples=samples, metric=metric)
            drawn.append(Chart(title=title, draw=draw, caption=caption))
    return drawn


def _ledger(run: Rollouts) -> list[Table]:
    rows: dict[str, dict[str, Cell | str]] = {}
    for arm in run.arms:
        cells = rows.setdefault(arm.arm.label, {})
        for name in LEDGER:
            if values := arm.use.ledger.get(name):
                usual, most = middle(values), max(values)
                note = "" if usual == most else f"most {amount_cell(name, most).text}"
                cells[name] = amount_cell(name, usual, note)
            elif name in arm.use.unknown:
                cells[name] = UNKNOWN
    reasons = {name: why for arm in run.arms for name, why in arm.use.unknown.items()}
    caption = " ".join(f"{metric_title(name)}: unknown where {why}." for name, why in reasons.items())
    return columns("median of a trial", rows, title="Resource ledger", caption=caption)


def _images(found: Sequence[UsedImage]) -> list[Block]:
    if not found:
        return []
    rows = tuple(
        (each.title, each.digest or MISSING, str(each.trials), str(len(each.tasks))) for each in found
    )
    columns = (
        Column("image", "prose"),
        Column("digest", spare=True),
        Column("trials", "number"),
        Column("tasks", "number"),
    )
    return [Table(columns=columns, rows=rows, folded="Images the sandboxes were made from")]


def pass_rates(run: Rollouts) -> partial[str]:
    """What draws the pass rates of a run."""
    return partial(rates.pass_rates, bars=list(map(_rate_bar, run.arms)), claim=str(claim_of(run)))


def _rate_bar(arm: ArmScore) -> rates.RateBar:
    score, claimed = arm.passes.excluded, arm.passes
    open_ends = (claimed.as_zero, claimed.best_case) if arm.errors else (None, None)
    return rates.RateBar(
        label=arm.arm.label,
        value=score.value if score else None,
        near=_ends(score.these_tasks if score else None),
        wide=_ends(score.tasks_like_these if score else None),
        as_zero=open_ends[0].value if open_ends[0] else None,
        best_case=open_ends[1].value if open_ends[1] else None,
    )


def curves(run: Rollouts) -> Section:
    """What several tries at a task would earn; a sentence where they make no difference."""
    arms = [arm for arm in run.arms if len(arm.curve) > 1]
    if not arms:
        return Section()
    block: Block = Text(text=_FLAT)
    if any(arm.flaky for arm in arms):
        caption = _CURVES + (" Shaded: 95 % interval of pass@k." if len(arms) == 1 else "")
        if len(arms) > rates.MOST_CURVES:
            caption += f" The first {rates.MOST_CURVES} of {len(arms)} are drawn."
        if any(arm.common_k < len(cell.outcomes) for arm in arms for cell in arm.cells if cell.rewards):
            caption += " A curve ends where the first task has no more scored rollouts."
        draw = partial(rates.at_k_curves, curves=[_curve(arm) for arm in arms[: rates.MOST_CURVES]])
        block = Chart(title="Effect of several tries", draw=draw, caption=caption)
    return Section(title="pass@k", blocks=(block,), name="pass-at-k", aside=True)


def _curve(arm: ArmScore) -> rates.Curve:
    at, hat = zip(*arm.curve, strict=True)
    return rates.Curve(label=arm.arm.label, at_k=_ks(at), hat_k=_ks(hat))


def _ks(series: Sequence[AtK]) -> tuple[rates.AtK, ...]:
    return tuple(rates.AtK(each.k, each.value, _ends(each.interval)) for each in series)


def _ends(found: Interval | None) -> tuple[float, float] | None:
    return (found.low, found.high) if found else None
