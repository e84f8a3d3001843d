"""The results of rollouts: the score, the matrix, tasks one by one, and what it all used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from proctor.analysis.estimate import AtK
from proctor.analysis.flaky import Stability
from proctor.analysis.interval import Interval
from proctor.model.document import (
    Block,
    Cell,
    Chart,
    Code,
    Column,
    Listed,
    Matrix,
    Section,
    Sign,
    Table,
    Text,
    Tone,
)
from proctor.quantity import MISSING
from proctor.render.charts import rates
from proctor.render.results import spending
from proctor.render.results.cells import (
    amount_cell,
    linked,
    outcome_cell,
    outcome_of,
    rate_cell,
    result_of,
    reward_cell,
    share_cell,
    sign_of,
    time_cell,
)
from proctor.runfolder.read import RunData, TrialResult
from proctor.verdicts.rollouts.evidence import Evidence, UsedImage, evidence, reasons
from proctor.verdicts.rollouts.scores import ArmScore, Rollouts, middle, rollouts
from proctor.verdicts.rollouts.table import Cell as Task
from proctor.verdicts.rollouts.table import is_error
from proctor.verdicts.rollouts.words import (
    STABILITY,
    claim_of,
    denominators_text,
    error_range,
    meaning,
    outcomes_in_order,
    plural,
    rate,
    use_text,
)

MOST_ROWS = 300
BRIEF = 60
"""Tasks in a terminal."""
MOST_TRIALS = 300
MOST_SIGNS = 6_000
"""Rollouts that are drawn one by one; of more, tasks are."""
MOST_TASKS = 2_000
"""Tasks of an agent that are drawn then."""
MOST_NOTED = 2_000
"""Signs that say what they stand for and lead there; of more, these words would be most of the page."""
_MATRIX = "One square per rollout, tasks that pass most often first; a square links to its trial's result."
_HATCHED = (
    " Hatched squares with a capital letter are errors not caused by the agent; they are not in the score."
)
_OVERVIEW = (
    "One square per task, sorted by pass rate; the more of it is filled, the more of its scored rollouts "
    "passed. Hatched: nothing was scored. All rollouts are in series.jsonl."
)
_FLAT = "Every task always passes or always fails, so pass@k and pass^k are the pass rate at every k."
_CURVES = "Solid, pass@k: the chance that at least one of k rollouts passes. Dashed, pass^k: that all k do."
_AROUND = (
    "Medians over the attempts that count. These times are not part of a trial's duration; an image is built "
    "or fetched once."
)


def sections(data: RunData) -> tuple[list[Section], list[Section]]:
    """What comes before failures, the most important first, and what comes after them."""
    run, found = rollouts(data), evidence(data)
    before = [
        _score(run, found.images),
        _matrix_section(run),
        _look_first(data.info.id, found),
        _suspects(found),
        spending.model_use(run),
        _curves(run),
        spending.cost(run),
        _tasks(run),
        _trials(data, run),
    ]
    return before, [spending.latency(run), spending.resources(run, found.images)]


def _score(run: Rollouts, images: Sequence[UsedImage]) -> Section:
    claim, most = claim_of(run), run.shared_k
    chart = Chart(
        title="Pass rate with its uncertainty",
        draw=partial(rates.pass_rates, bars=list(map(_rate_bar, run.arms)), claim=str(claim)),
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


def _ends(found: Interval | None) -> tuple[float, float] | None:
    return (found.low, found.high) if found else None


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
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return [Text(text=f"images: {', '.join(names[:3])}{more}", quiet=True)] if names else []


def _matrix_section(run: Rollouts) -> Section:
    if sum(arm.rollouts for arm in run.arms) > MOST_SIGNS:
        return Section(title="Every task", blocks=(_overview(run),), name="matrix")
    rows, arms = run.table.rows[:MOST_ROWS], run.arms
    noted = sum(arm.rollouts for arm in arms) <= MOST_NOTED
    cells = [[run.table.cells.get((row, arm.arm)) for arm in arms] for row in rows]
    matrix = Matrix(
        columns=tuple(Column(arm.arm.label, note=_arm_note(arm)) for arm in arms),
        rows=tuple(
            (row.label, tuple(_signs(cell, noted=noted) if cell else () for cell in line))
            for row, line in zip(rows, cells, strict=True)
        ),
        legend=_legend(run),
        caption=(_MATRIX if noted else _MATRIX.partition(";")[0] + ".")
        + _HATCHED * any(a.errors for a in arms),
        brief=BRIEF,
        total=len(run.table.rows),
        rest="task_results/ lists all of them",
    )
    return Section(title="Every rollout", blocks=(matrix,), name="matrix")


def _arm_note(arm: ArmScore) -> str:
    score = arm.passes.excluded
    said = f"{rate(score.value)} passed" if score else "nothing scored"
    return said + (f", {plural(arm.errors, 'error')}" if arm.errors else "")


def _legend(run: Rollouts) -> tuple[tuple[Sign, str], ...]:
    found = outcomes_in_order(run)
    return tuple((sign_of(each), meaning(each) + " (not scored)" * is_error(each)) for each in found)


def _signs(cell: Task, *, noted: bool) -> tuple[Sign, ...]:
    if not noted:
        return tuple(sign_of(each) for each in cell.outcomes)
    return tuple(_noted(trial) for trial in cell.trials)


def _noted(trial: TrialResult) -> Sign:
    """One trial: its sign, what a pointer sees, and a link to its result."""
    record, label = trial.counted, trial.planned.label
    if record is None:
        return sign_of(None, tooltip=f"{label}: no result yet")
    said = f"{label}: {outcome_of(record.outcome).text}"
    said += f", reward {reward_cell(record.reward).text}" if record.reward is not None else ""
    said += f", {time_cell(took).text}" if (took := record.took_s) is not None else ""
    said += f", attempt {record.number}" if len(trial.attempts) > 1 else ""
    if failure := record.failure:
        said += f"\n{failure.phase}: {failure.type}: {failure.message[:300]}"
    return sign_of(record.outcome, record.reward, said, result_of(trial.planned, record.number))


def _overview(run: Rollouts) -> Matrix:
    """A sign per task where there are too many rollouts for a sign each."""
    rows = []
    for arm in run.arms:
        ordered = sorted(
            arm.cells, key=lambda cell: -cell.passed / len(cell.rewards) if cell.rewards else 1.0
        )
        noted = len(ordered) <= MOST_NOTED
        rows.append((arm.arm.label, (tuple(_task_sign(cell, noted=noted) for cell in ordered[:MOST_TASKS]),)))
    signs = (("✓", "pass", "always passes"), ("◐", "part", "passes sometimes"), ("✗", "fail", "never passes"))
    return Matrix(
        columns=(Column("", note="; ".join(f"{arm.arm.label}: {_counts(arm)}" for arm in run.arms)),),
        rows=tuple(rows),
        legend=(
            *((Sign(text=text, look=each), said) for text, each, said in signs),  # type: ignore[arg-type]
            (Sign(text="–", look="error"), "nothing scored"),
        ),
        counted=False,
        caption=_OVERVIEW,
    )


def _counts(arm: ArmScore) -> str:
    scored = [cell for cell in arm.cells if cell.rewards]
    always = sum(cell.passed == len(cell.rewards) for cell in scored)
    never = sum(cell.passed == 0 for cell in scored)
    sometimes = len(scored) - always - never
    return f"{always} of {len(arm.cells)} tasks always pass, {sometimes} sometimes, {never} never"


def _task_sign(cell: Task, *, noted: bool) -> Sign:
    scored = len(cell.rewards)
    share = f"{cell.passed} of {scored} passed, {rate(cell.passed / scored)}" if scored else "nothing scored"
    tooltip = f"{cell.row.label}: {share}" if noted else ""
    if not scored:
        return Sign(text="–", look="error", tooltip=tooltip)
    if cell.passed in {0, scored}:
        return Sign(text="✓" if cell.passed else "✗", look="pass" if cell.passed else "fail", tooltip=tooltip)
    return Sign(text="◐", look="part", tooltip=tooltip, level=cell.passed / scored)


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


def _curves(run: Rollouts) -> Section:
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
                amount_cell("cost_usd", usage["cost_usd"]) if usage.get("cost_usd") else "",
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
