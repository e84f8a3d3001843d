"""A noise certificate as a document: how often identical sides look worse, and what would be detected."""

from __future__ import annotations

from proctor.model.document import (
    Cell,
    Column,
    Document,
    Listed,
    Section,
    Table,
    Tone,
    filled,
    interval,
    number,
)
from proctor.quantity import MISSING, significant
from proctor.verdicts.aa.certificate import NoiseCertificate, Standing
from proctor.verdicts.aa.loss import USEFUL
from proctor.verdicts.aa.words import hours, percent, plural, points

_TONES: dict[Standing, Tone] = {Standing.GOOD: "good", Standing.FALSE_ALARMS: "bad"}
MOST_FLAKY = 20


def certificate(found: NoiseCertificate) -> Document:
    """The whole certificate."""
    power = _power(found) if any(row.detectable is not None for row in found.power) else Section()
    steps = (Listed(items=found.next_steps),) if found.next_steps else ()
    return Document(
        kind="aa",
        title="Noise certificate",
        headline=found.sentence,
        verdict=found.standing.words,
        tone=_TONES.get(found.standing, "warn"),
        about=(("run", found.run),),
        sections=filled(
            [
                Section(blocks=(Listed(items=tuple(_facts(found))),), name="facts"),
                _alarms(found),
                power,
                _flaky(found),
                Section(title="What to do next", blocks=steps, name="next"),
            ]
        ),
        footer="Written by 'proctor aa'.",
    )


def _facts(found: NoiseCertificate) -> list[str]:
    """One line each: what was tested, how much chance and noise there is, and warnings."""
    noun = ("task", "scored rollout") if found.kind == "task" else ("point", "iteration")
    margin = points(found.margin) if found.kind == "task" else f"{significant(100 * found.margin, 2)} %"
    size = f"{plural(found.values, noun[1])} of {plural(found.subjects, noun[0])}"
    lines = [f"{size}; margin {margin} at {100 * found.level:g} %, for {found.claim}"]
    if found.detectable is not None:
        limit = (
            points(USEFUL * found.margin) if found.kind == "task" else f"{100 * USEFUL * found.margin:g} %"
        )
        lines.append(f"good needs a detectable change of at most {limit}, {USEFUL:g} times the margin")
    if found.detectable_even is not None and found.detectable_concentrated is not None:
        lines.append(
            f"detectable when every task loses the same share: {points(found.detectable_even)}; when a few "
            f"tasks lose everything: {points(found.detectable_concentrated)}"
        )
    if found.kind == "task" or found.broken:
        lines.append(
            f"lost to errors not caused by the agent: {found.broken} ({percent(found.broken_share)})"
        )
    if found.correlation:
        each = found.correlation
        span = f", 95 % {each.interval.low:.2f} to {each.interval.high:.2f}" if each.interval else ""
        lines.append(
            f"intra-task correlation {each.icc:.2f}{span}; design effect {each.design_effect:.2f}: "
            f"{found.values} rollouts are worth {significant(each.effective_rollouts, 2)} independent ones"
        )
    if found.noise:
        sigma = significant(100 * found.noise["sigma"], 2)
        lines.append(f"run-to-run noise {sigma} % ({found.noise['source']})")
    if found.drift.get("moved"):
        moved = points(found.drift["difference"]) if found.kind == "task" else f"× {found.drift['ratio']:.3f}"
        lines.append(
            f"the run drifted: {found.drift['what']} {moved}; random splits cannot show the effect of this"
        )
    return [*lines, *found.notes]


def _alarms(found: NoiseCertificate) -> Section:
    rows = tuple(
        (
            trial.name,
            rate.rule,
            number(percent(rate.share), rate.share),
            interval(
                f"{percent(rate.interval.low)} – {percent(rate.interval.high)}",
                rate.interval.low,
                rate.interval.high,
            ),
            f"{rate.alarms} of {rate.pairs}",
        )
        for trial in found.trials
        for rate in (trial.gate, *trial.naive)
    )
    if not rows:
        return Section()
    how = "; ".join(f"{trial.name}: {trial.how}, {trial.per_side} on each side" for trial in found.trials)
    calls = "; ".join(
        f"{trial.name}: "
        + ", ".join(
            f"{name} {percent(count / trial.gate.pairs)}" for name, count in trial.calls.items() if count
        )
        for trial in found.trials
    )
    table = Table(
        columns=(Column("pairs"), Column("rule", "prose"), *_right("false alarms", "95 % interval", "count")),
        rows=rows,
        caption=f"{how}. Gate verdicts: {calls}.",
    )
    return Section(
        title="False alarms: identical sides reported as worse", blocks=(table,), name="false-alarms"
    )


def _right(*titles: str) -> tuple[Column, ...]:
    return tuple(Column(title, "number") for title in titles)


def _power(found: NoiseCertificate) -> Section:
    task = found.kind == "task"
    titles = [
        *(("rollouts per side", "smallest loss") if task else ("iterations", "smallest slowdown")),
        "total rollouts" if task else "total iterations",
        "time",
    ]
    priced = any(row.cost_usd is not None for row in found.power)
    rows = []
    for row in found.power:
        loss = MISSING
        if row.detectable is not None:
            loss = points(row.detectable) if task else f"{significant(100 * row.detectable, 2)} %"
        cells: list[Cell | str] = [
            str(row.count),
            number(loss, row.detectable),
            f"{row.total:,}",
            MISSING if row.hours is None else hours(row.hours),
        ]
        if priced:
            cells.append(MISSING if row.cost_usd is None else f"${significant(row.cost_usd, 3)}")
        rows.append(tuple(cells))
    table = Table(
        columns=_right(*titles, *(["cost"] if priced else [])),
        rows=tuple(rows),
        caption=(
            "Both sides together, at the parallelism of the run. "
            f"A loss below the margin is never reported; {MISSING}: not even a total loss would be detected."
            if task
            else "One side of a comparison. Run-to-run noise does not fall with more iterations."
        ),
    )
    title = "What would be detected with 80 % probability, and what it costs"
    return Section(title=title, blocks=(table,), name="power")


def _flaky(found: NoiseCertificate) -> Section:
    if not found.flaky:
        return Section()
    rows = tuple(
        (
            task.name,
            f"{task.passed} of {task.rollouts}",
            MISSING if task.disagreement is None else percent(task.disagreement),
        )
        for task in found.flaky[:MOST_FLAKY]
    )
    share = f"{percent(found.flaky_share)} of the tasks" if found.flaky_share is not None else "Tasks"
    table = Table(
        columns=(Column("task"), *_right("passed", "two rollouts differ")),
        rows=rows,
        total=len(found.flaky),
        caption=f"{share}, the least stable first.",
    )
    return Section(title="Tasks whose rollouts disagree", blocks=(table,), name="flaky")
