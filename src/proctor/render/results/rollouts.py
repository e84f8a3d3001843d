"""The results of rollouts: the score, the matrix, tasks one by one, and what it all used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from proctor.analysis.flaky import Stability
from proctor.model.document import (
    Block,
    Cell,
    Chart,
    Code,
    Column,
    Listed,
    Section,
    Table,
    Text,
    Tone,
)
from proctor.model.record import UNKNOWN_COST
from proctor.quantity import MISSING, plural, show, some
from proctor.render.results import judging, performance
from proctor.render.results.cells import (
    amount_cell,
    columns,
    linked,
    outcome_cell,
    rate_cell,
    reward_cell,
    share_cell,
    time_cell,
)
from proctor.render.results.matrix import matrix
from proctor.runfolder.read import RunData
from proctor.verdicts.rollouts.evidence import Evidence, UsedImage, evidence, reasons
from proctor.verdicts.rollouts.scores import ArmScore, Rollouts, middle, rollouts
from proctor.verdicts.rollouts.table import USAGE
from proctor.verdicts.rollouts.words import claim_of, rate

MOST_ROWS = 300
BRIEF = 60
"""Tasks in a terminal."""
MOST_TRIALS = 300
STABILITY = {
    Stability.ALWAYS_PASSES: "stable",
    Stability.ALWAYS_FAILS: "stable",
    Stability.FLAKY: "flaky",
    Stability.UNKNOWN: "unknown",
}


def sections(data: RunData) -> tuple[list[Section], list[Section]]:
    """What comes before failures, the most important first, and what comes after them."""
    from proctor.render.results import spending

    run, found = rollouts(data), evidence(data)
    before = [*first(data), spending.curves(run), spending.cost(run), _tasks(run), _trials(data, run)]
    return before, [spending.latency(run), spending.resources(run, found.images)]


def first(data: RunData) -> list[Section]:
    """What a terminal shows too."""
    run, found = rollouts(data), evidence(data)
    return [
        _score(run, found.images),
        matrix(run),
        _look_first(data.info.id, found),
        _suspects(found),
        performance.section(data),
        judging.section(data),
        _model_use(run),
    ]


def _score(run: Rollouts, images: Sequence[UsedImage]) -> Section:
    claim, most = claim_of(run), run.shared_k
    chart = Chart(
        title="Pass rate with its uncertainty",
        draw=lambda: _pass_rates(run),
        caption=f"The figures: pass rate and 95 % interval for {claim}. Wide bar: the interval for these "
        "tasks. Thin line: for tasks like these. Dashed ends, if any: the pass rate with errors counted as "
        "failures, and as passes.",
    )
    drawn = len(run.arms) > 1 and any(arm.passes.excluded for arm in run.arms)
    return Section(
        title="Score",
        blocks=(_arm_table(run, most), *_said(run.arms), *_images(images), *([chart] if drawn else [])),
        name="score",
    )


def _pass_rates(run: Rollouts) -> partial[str]:
    from proctor.render.results.spending import pass_rates

    return pass_rates(run)


def _arm_table(run: Rollouts, most: int) -> Table:
    partial_, errors = any(arm.partial for arm in run.arms), any(arm.errors for arm in run.arms)
    columns = [
        Column("agent", "prose"),
        Column("pass rate", "number"),
        Column("95 %, these tasks", "number"),
        Column("95 %, tasks like these", "number"),
        *([Column("errors as zero – best case", "number")] if errors else []),
        *([Column(f"pass@{most}", "number"), Column(f"pass^{most}", "number")] if most > 1 else []),
        *([Column("mean reward", "number")] if partial_ else []),
        Column("passed", "number"),
        *([Column("errors", "number")] if errors else []),
        Column("flaky tasks", "number"),
        Column("median time", "number"),
    ]
    rows = [tuple(_arm_row(arm, most, errors=errors, partial_=partial_)) for arm in run.arms]
    return Table(columns=tuple(columns), rows=tuple(rows))


def _arm_row(arm: ArmScore, most: int, *, errors: bool, partial_: bool) -> list[Cell | str]:
    score, rewards = arm.passes.excluded, arm.rewards.excluded
    near = score.these_tasks if score else None
    wide = score.tasks_like_these if score else None
    cells: list[Cell | str] = [
        Cell(text=arm.arm.label, strong=True),
        rate_cell(score.value if score else None, strong=True),
        share_cell(near),
        share_cell(wide),
    ]
    cells += [denominators_text(arm)] if errors else []
    cells += map(rate_cell, arm.at(most)) if most > 1 else []
    cells += [reward_cell(rewards.value if rewards else None)] if partial_ else []
    cells.append(f"{arm.passed} of {arm.scored}")
    cells += [f"{arm.errors} of {arm.rollouts}" if arm.errors else "0"] if errors else []
    return [*cells, f"{arm.flaky} of {len(arm.cells)}", time_cell(arm.median_s)]


def _said(arms: Sequence[ArmScore]) -> list[Text]:
    """What the numbers leave open: errors, rollouts without a result, and remarks on the intervals."""
    said = [
        f"{arm.arm.label}: {plural(arm.errors, 'error')} left out; {error_range(arm)}."
        for arm in arms
        if arm.errors and error_range(arm)
    ]
    said += [
        f"{arm.arm.label}: {plural(arm.missing, 'rollout')} without a result." for arm in arms if arm.missing
    ]
    notes = dict.fromkeys(
        note for arm in arms for note in (arm.passes.excluded.notes if arm.passes.excluded else ())
    )
    said += [f"{note[0].upper()}{note[1:]}." for note in notes]
    return [Text(text=each, quiet=True) for each in said]


def _images(found: Sequence[UsedImage]) -> list[Text]:
    """Which images the rollouts ran on; the host's own system is told by the headline."""
    known = (f"{each.title} ({each.digest[:19]})" for each in found if each.digest and not each.host)
    names = list(dict.fromkeys(known))
    return [Text(text=f"images: {some(names, 3)}", quiet=True)] if names else []


def _look_first(run_id: str, found: Evidence) -> Section:
    """The errors in their own words, and whose logs to read first."""
    blocks: list[Block] = []
    if said := reasons(found):
        blocks.append(Listed(items=tuple(said)))
    if found.worth_reading:
        index, label = found.worth_reading
        blocks += [
            Text(text=f"to read what {label} printed:"),
            Code(text=f"proctor logs {run_id} {index}"),
        ]
    return Section(title="Where to look first", blocks=tuple(blocks), name="reasons")


def _suspects(found: Evidence) -> Section:
    rows = [
        (each.label, reward_cell(each.first), reward_cell(each.second), each.reason[:500])
        for each in found.suspects
    ]
    headers = ("reward at first", "reward without the changes")
    table = Table(
        columns=(Column("rollout"), *(Column(name, "number") for name in headers), Column("why", "prose")),
        rows=tuple(rows),
        brief=BRIEF,
    )
    return Section(title="Suspect rollouts", blocks=(table,) if rows else (), name="suspects")


def _tasks(run: Rollouts) -> Section:
    """Each task and agent: how often it passed, how sure that is, whether it flips."""
    several, partial_ = len(run.arms) > 1, any(arm.partial for arm in run.arms)
    columns = (
        Column("task", "prose"),
        *([Column("agent", "prose")] if several else []),
        Column("passed", "number"),
        Column("95 % interval", "number"),
        Column("stability"),
        *([Column("mean reward", "number")] if partial_ else []),
        Column("errors", "number"),
        Column("median time", "number"),
    )
    rows = []
    for row in run.table.rows[:MOST_ROWS]:
        cells = [(arm, each) for arm in run.arms if (each := run.table.cells.get((row, arm.arm)))]
        for at, (arm, cell) in enumerate(cells):
            scored = len(cell.rewards)
            mean = sum(cell.rewards) / scored if scored else None
            sure = arm.stability[row]
            rows.append(
                (
                    row.label if at == 0 else "",
                    *([arm.arm.label] if several else []),
                    Cell(text=f"{cell.passed} of {scored}", share=cell.passed / scored)
                    if scored
                    else MISSING,
                    share_cell(sure.interval),
                    _stability(sure.stability),
                    *([reward_cell(mean)] if partial_ else []),
                    str(cell.errors) if cell.errors else "",
                    time_cell(middle(cell.tally.took)),
                )
            )
    table = Table(columns=columns, rows=tuple(rows))
    more = len(run.table.rows) - MOST_ROWS
    note = f"And {more} more tasks; task_results/ and summary.json list all of them." if more > 0 else ""
    return Section(title="Tasks", blocks=(table,), note=note, name="tasks", aside=True)


def _stability(found: Stability) -> Cell:
    tones: dict[Stability, Tone] = {Stability.FLAKY: "warn", Stability.ALWAYS_PASSES: "good"}
    return Cell(text=STABILITY[found], tone=tones.get(found, ""), badge=True)


def _trials(data: RunData, run: Rollouts) -> Section:
    rows = []
    who = {
        place: cell.arm.who
        for cell in run.table.cells.values()
        for place in cell.trials.places
        if place < MOST_TRIALS
    }
    for place, trial in enumerate(data.trials[:MOST_TRIALS]):
        planned, record = trial.planned, trial.counted
        usage = record.usage if record else {}
        tokens = sum(usage.get(name) or 0 for name in ("prompt_tokens", "completion_tokens"))
        suspect = "suspect" if record and record.suspect else ""
        rows.append(
            (
                linked(planned.subject, trial),
                who[place],
                planned.model or MISSING,
                str(planned.rollout + 1),
                replace(outcome_cell(trial), note=suspect) if suspect else outcome_cell(trial),
                reward_cell(record.reward if record else None),
                time_cell(record.took_s if record else None),
                str(usage.get("tool_calls") or ""),
                use_text("tokens", tokens) if tokens else "",
                _cost(usage),
            )
        )
    names = ("#", "outcome", "reward", "took", "tool calls", "tokens", "cost")
    table = Table(
        columns=(
            *(Column(name, "prose") for name in ("task", "agent", "model")),
            *(Column(name, "text" if name == "outcome" else "number") for name in names),
        ),
        rows=tuple(rows),
        total=len(data.trials),
        rest="series.jsonl lists all of them",
        folded="Every trial",
    )
    return Section(blocks=(table,) if rows else (), aside=True)


def _cost(usage: Mapping[str, Any]) -> Cell | str:
    if usage.get(UNKNOWN_COST):
        return "unknown"
    return amount_cell("cost_usd", usage["cost_usd"]) if usage.get("cost_usd") else ""


def _model_use(run: Rollouts) -> Section:
    """Tokens, money and calls: every attempt's, for what did not count was paid for too."""
    rows: dict[str, dict[str, Cell | str]] = {}
    for arm in run.arms:
        totals = arm.use.totals
        cells: dict[str, Cell | str] = {
            name: Cell(text=use_text(name, totals[name]), value=totals[name])
            for name in USAGE
            if name in totals
        }
        if calls := totals.get(UNKNOWN_COST):
            cells["cost_usd"] = Cell(text="unknown", note=f"{plural(int(calls), 'call')} without a price")
        rows[arm.arm.label] = cells
    return Section(title="Model use", blocks=tuple(columns("total", rows)), name="usage")


def denominators_text(arm: ArmScore) -> str:
    """What the errors leave open: the pass rate with them as failures, and with them as passes."""
    zero, best = arm.passes.as_zero, arm.passes.best_case
    if zero is None or best is None:
        return MISSING
    return f"{zero.value * 100:.0f}–{best.value * 100:.0f} %" if arm.errors else rate(zero.value)


def error_range(arm: ArmScore) -> str:
    """What the errors could have meant: from all failed to all passed."""
    zero, best = arm.passes.as_zero, arm.passes.best_case
    if not arm.errors or zero is None or best is None:
        return ""
    return f"{rate(zero.value)} if every error is a failure, {rate(best.value)} if every one is a pass"


def use_text(name: str, value: float | None) -> str:
    """An amount of tokens, calls or money; what is counted has no decimals."""
    if value is None:
        return MISSING
    return show(name, value) if name.endswith("_usd") else f"{value:,.0f}".replace(",", "\u202f")
