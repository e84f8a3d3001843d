"""The sections of a task run's page: the score, the matrix, tasks one by one, and what it all used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from proctor.analysis.claim import Claim
from proctor.analysis.flaky import Stability, TaskStability
from proctor.model.arms import arm_of, options_apart, with_options
from proctor.model.describe import percentile
from proctor.quantity import MISSING, duration, metric_title, show
from proctor.render.html.view import View, badge, details, facts, figure, section, table
from proctor.render.rollouts import charts, spending
from proctor.render.rollouts.matrix import MOST_ROWS, legend, matrix
from proctor.render.rollouts.overview import is_large, overview
from proctor.runfolder.read import TrialResult
from proctor.verdicts.rollouts import scores
from proctor.verdicts.rollouts.images import images_of
from proctor.verdicts.rollouts.scores import ArmScore, Rollouts, rollouts
from proctor.verdicts.rollouts.suspects import HEADERS, suspects_of
from proctor.verdicts.rollouts.words import (
    STABILITY,
    claim_of,
    denominators_text,
    error_range,
    plural,
    rate,
    reward_text,
    span,
    use_text,
)

CSS = (Path(__file__).parent / "rollouts.css").read_text()
MOST_TRIALS = 300
_MATRIX = "One square per rollout, tasks that pass most often first; a square links to its trial's result."
_HATCHED = (
    " Hatched squares with a capital letter are errors not caused by the agent; they are not in the score."
)
_OVERVIEW = (
    "One square per task, sorted by pass rate, row by row; a stronger green means that more of its "
    "scored rollouts passed. Hatched: nothing was scored. All rollouts are in "
    "series.jsonl."
)
_FLAT = "Every task always passes or always fails, so pass@k and pass^k are the pass rate at every k."
_RATES = (
    "The figures: pass rate and 95 % interval for {claim}. Wide bar: the interval for these tasks. Thin "
    "line: for tasks like these. Dashed ends, if any: the pass rate with errors counted as failures, and as "
    "passes."
)
_CURVES = "Solid, pass@k: the chance that at least one of k rollouts passes. Dashed, pass^k: that all k do."


def score(view: View) -> str:
    """The numbers, then the picture."""
    run = rollouts(view.data)
    body = _tiles(run.arms[0]) if len(run.arms) == 1 else _arm_table(run)
    if len(run.arms) > 1 and any(arm.passes.excluded for arm in run.arms):
        claim = claim_of(run)
        said = _RATES.format(claim=claim)
        body += figure(charts.pass_rates(run.arms, claim), "Pass rate with its uncertainty", said)
    return section("Score", body, name="score") + _suspects(view) + _matrix(view, run) + _curves(run)


def _matrix(view: View, run: Rollouts) -> str:
    if is_large(run):
        figure_ = figure(overview(run), "", _OVERVIEW)
        return section("Every task", figure_, name="matrix")
    body = (
        f'<div class="scroll"><div class="matrix">{matrix(run)}</div></div>{legend(list(view.data.trials))}'
    )
    caption = _MATRIX + _HATCHED * any(arm.errors for arm in run.arms)
    if len(run.table.rows) > MOST_ROWS:
        caption += f" The first {MOST_ROWS} of {len(run.table.rows)} tasks are drawn."
    return section(
        "Every rollout", f"<figure>{body}<figcaption>{caption}</figcaption></figure>", name="matrix"
    )


def _curves(run: Rollouts) -> str:
    arms = [arm for arm in run.arms if len(arm.curve) > 1]
    if not arms:
        return ""
    if not any(arm.flaky for arm in arms):
        return section("pass@k", f"<p>{_FLAT}</p>", name="pass-at-k")
    caption = _CURVES + (" Shaded: 95 % interval of pass@k." if len(arms) == 1 else "")
    if len(arms) > charts.MOST_CURVES:
        caption += f" The first {charts.MOST_CURVES} of {len(arms)} are drawn."
    if any(_ends_early(arm) for arm in arms):
        caption += " A curve ends where the first task has no more scored rollouts."
    drawn = figure(charts.at_k_curves(run.arms), "Effect of several tries", caption)
    return section("pass@k", drawn, name="pass-at-k")


def _ends_early(arm: ArmScore) -> bool:
    last = arm.common_k
    return any(last < len(cell.trials) for cell in arm.cells if cell.rewards)


def _tiles(arm: ArmScore) -> str:
    excluded = arm.passes.excluded
    tiles = [
        ("pass rate", rate(excluded.value) if excluded else MISSING),
        ("95 % interval, these tasks", span(excluded.these_tasks if excluded else None)),
        ("95 % interval, tasks like these", span(excluded.tasks_like_these if excluded else None)),
        ("errors as zero", rate(arm.passes.as_zero.value) if arm.passes.as_zero else MISSING),
        ("best case", rate(arm.passes.best_case.value) if arm.passes.best_case else MISSING),
    ]
    if len(arm.curve) > 1:
        at, hat = arm.curve[-1]
        tiles += [(f"pass@{at.k}", rate(at.value)), (f"pass^{hat.k}", rate(hat.value))]
    if arm.partial and arm.rewards.excluded:
        tiles.append(("mean reward", reward_text(arm.rewards.excluded.value)))
    tiles.append(("flaky tasks", f"{arm.flaky} of {len(arm.cells)}"))
    inside = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in tiles)
    return f'<dl class="tiles">{inside}</dl>{_said_of_errors([arm])}'


def _arm_table(run: Rollouts) -> str:
    most = run.shared_k
    partial = any(arm.partial for arm in run.arms)
    headers = ["agent", "pass rate", f"95 % interval, {claim_of(run)}", "errors as zero – best case"]
    headers += [f"pass@{most}", f"pass^{most}"] if most > 1 else []
    headers += ["mean reward"] if partial else []
    headers += ["flaky tasks", "errors"]
    rows = [_arm_row(arm, most, claim_of(run), partial=partial) for arm in run.arms]
    body = table(headers, rows, numeric=range(1, len(headers)))
    return f'<div class="arms">{body}</div>' + _said_of_errors(run.arms)


def _arm_row(arm: ArmScore, most: int, claim: Claim, *, partial: bool) -> list[str]:
    excluded = arm.passes.excluded
    cells = [
        f"<b>{escape(arm.arm.label)}</b>",
        f"<b>{rate(excluded.value if excluded else None)}</b>",
        span(excluded.interval(claim) if excluded else None),
        denominators_text(arm),
    ]
    if most > 1:
        cells += [rate(each) for each in arm.at(most)]
    if partial:
        cells.append(reward_text(arm.rewards.excluded.value if arm.rewards.excluded else None))
    errors = f"{arm.errors} of {len(arm.trials)}" if arm.errors else "0"
    return [*cells, f"{arm.flaky} of {len(arm.cells)}", errors]


def _said_of_errors(arms: Sequence[ArmScore]) -> str:
    said = [
        f"{escape(arm.arm.label)}: {plural(arm.errors, 'error')} left out; {error_range(arm)}."
        for arm in arms
        if arm.errors and error_range(arm)
    ]
    said += [
        f"{escape(arm.arm.label)}: {plural(arm.missing, 'rollout')} without a result."
        for arm in arms
        if arm.missing
    ]
    notes = dict.fromkeys(
        note for arm in arms for note in (arm.passes.excluded.notes if arm.passes.excluded else ())
    )
    said += [escape(f"{note[0].upper()}{note[1:]}.") for note in notes]
    return "".join(f"<p class=note>{each}</p>" for each in said)


def tasks(view: View) -> str:
    """Each task and agent: how often it passed, how sure that is, whether it flips."""
    run = rollouts(view.data)
    partial = any(arm.partial for arm in run.arms)
    several = len(run.arms) > 1
    headers = ["task", *(["agent"] if several else []), "passed", "", "95 % interval", "stability"]
    headers += ["mean reward"] if partial else []
    headers += ["errors", "median time"]
    rows = []
    for row in run.table.rows[:MOST_ROWS]:
        cells = [(arm, each) for arm in run.arms if (each := run.table.cells.get((row, arm.arm)))]
        for at, (arm, cell) in enumerate(cells):
            found = arm.stability[cell.row]
            scored = len(cell.rewards)
            share = cell.passed / scored if scored else 0.0
            mean = sum(cell.rewards) / scored if scored else None
            rows.append(
                [
                    escape(row.label) if at == 0 else "",
                    *([escape(arm.arm.label)] if several else []),
                    f"{cell.passed} of {scored}" if scored else MISSING,
                    f'<span class="bar" aria-hidden="true"><i style="width:{share:.0%}"></i></span>',
                    span(found.interval),
                    _stability(found),
                    *([reward_text(mean)] if partial else []),
                    str(cell.errors) if cell.errors else "",
                    escape(duration(scores.durations(cell.trials).get("p50"))),
                ]
            )
    first = 2 if several else 1
    numeric = (first, first + 2, *range(first + 4, len(headers)))
    body = table(headers, rows, numeric=numeric)
    if (more := len(run.table.rows) - MOST_ROWS) > 0:
        body += f"<p class=note>And {more} more tasks; task_results/ and summary.json list all of them.</p>"
    body += details("Every trial", _trials(view.data.trials))
    return section("Tasks", body, name="tasks")


def _stability(found: TaskStability) -> str:
    word = STABILITY[found.stability]
    tone = {Stability.FLAKY: "warn", Stability.ALWAYS_PASSES: "good"}.get(found.stability, "")
    return f'<span class="badge {tone}">{word}</span>'


def _cost(usage: Mapping[str, Any]) -> str:
    if usage.get("unknown_cost"):
        return "unknown"
    return escape(show("cost_usd", usage["cost_usd"])) if usage.get("cost_usd") else ""


def _trials(trials: Sequence[TrialResult]) -> str:
    rows = []
    options = options_apart(trial.planned for trial in trials)
    for trial in trials[:MOST_TRIALS]:
        planned, record = trial.planned, trial.counted
        usage = record.usage if record else {}
        tokens = sum(usage.get(name) or 0 for name in ("prompt_tokens", "completion_tokens"))
        rows.append(
            [
                escape(planned.subject),
                escape(with_options(planned.agent or MISSING, options[arm_of(planned)])),
                escape(planned.model or MISSING),
                str(planned.rollout + 1),
                badge(trial.outcome) + (" suspect" if record and record.suspect else ""),
                reward_text(record.reward if record else None),
                escape(duration(record.took_s if record else None)),
                str(usage.get("tool_calls") or ""),
                escape(use_text("tokens", tokens)) if tokens else "",
                _cost(usage),
            ]
        )
    headers = ["task", "agent", "model", "#", "outcome", "reward", "took", "tool calls", "tokens", "cost"]
    text = table(headers, rows, numeric=(3, 5, 6, 7, 8, 9))
    if len(trials) > MOST_TRIALS:
        text += f"<p class=note>The first {MOST_TRIALS} of {len(trials)}; series.jsonl lists all of them.</p>"
    return text


def resources(view: View) -> str:
    """Where the time of a trial went, what resources it used, and which limits were enforced."""
    run = rollouts(view.data)
    body = ""
    if drawn := charts.phase_bars(run.arms):
        body += figure(drawn, "An average trial", "Mean over the attempts that count: agent and verifier.")
    body += _around(run) + spending.memory(run.arms) + _ledger(run) + _usage(run) + _images(view)
    limits = scores.enforced(view.data.trials)
    if limits:
        body += details("Which limits were enforced, and how", facts(limits.items()))
    return section("Time and resources", body, name="resources")


def _around(run: Rollouts) -> str:
    """What the harness needed around each trial, which is in no other time of this page."""
    found = {arm.arm.label: scores.around(arm.trials) for arm in run.arms}
    names = list(dict.fromkeys(name for each in found.values() for name in each))
    if not names:
        return ""
    rows = [
        [escape(label), *(escape(_usual(each.get(name))) for name in names)] for label, each in found.items()
    ]
    note = (
        "<p class=note>Medians over the attempts that count. These times are not part of a trial's "
        "duration; an image is built or fetched once.</p>"
    )
    headers = ["around a trial", *names]
    return f"<h3>Image, queue, start</h3>{table(headers, rows, numeric=range(1, len(headers)))}{note}"


def _usual(values: Sequence[float] | None) -> str:
    if not values:
        return MISSING
    middle, most = percentile(sorted(values), 50), max(values)
    return duration(middle) if most < 2 * middle or most < 1 else f"{duration(middle)}, most {duration(most)}"


def _suspects(view: View) -> str:
    found = suspects_of(view.data)
    if not found:
        return ""
    rows = [
        [escape(each.label), reward_text(each.first), reward_text(each.second), escape(each.reason[:500])]
        for each in found[:MOST_ROWS]
    ]
    return section("Suspect rollouts", table(list(HEADERS), rows, numeric=(1, 2)), name="suspects")


def _images(view: View) -> str:
    found = images_of(view.data)
    if not found:
        return ""
    rows = [
        [escape(each.title), escape(each.digest or MISSING), str(each.trials), str(len(each.tasks))]
        for each in found
    ]
    body = table(["image", "digest", "trials", "tasks"], rows, numeric=(2, 3))
    return details("Images the sandboxes were made from", body)


def _ledger(run: Rollouts) -> str:
    found = {arm.arm.label: scores.ledger(arm.trials) for arm in run.arms}
    unknown = {arm.arm.label: scores.unknown(arm.trials) for arm in run.arms}
    known = {name for each in (found, unknown) for columns in each.values() for name in columns}
    names = [name for name in scores.LEDGER if name in known]
    if not names:
        return ""
    rows = []
    for label, columns in found.items():
        cells, middles = [], scores.middles(columns)
        for name in names:
            middle, most = middles.get(name), max(columns.get(name, ()), default=None)
            said = show(name, middle) if name in columns or name not in unknown[label] else scores.UNKNOWN
            cells.append(escape(said if middle == most else f"{said}, most {show(name, most)}"))
        rows.append([escape(label), *cells])
    headers = ["median of a trial", *(metric_title(name) for name in names)]
    reasons = {name: why for each in unknown.values() for name, why in each.items()}
    notes = "".join(
        f"<p>{escape(f'{metric_title(name)}: unknown where {why}.')}</p>" for name, why in reasons.items()
    )
    return f"<h3>Resource ledger</h3>{table(headers, rows, numeric=range(1, len(headers)))}{notes}"


def _usage(run: Rollouts) -> str:
    found = {arm.arm.label: scores.usage(arm.trials) for arm in run.arms}
    names = [name for name in scores.USAGE if any(name in each for each in found.values())]
    if not names:
        return ""
    rows = [
        [escape(label), *(escape(use_text(name, totals.get(name))) for name in names)]
        for label, totals in found.items()
    ]
    headers = ["total", *(metric_title(name) for name in names)]
    return f"<h3>Model use</h3>{table(headers, rows, numeric=range(1, len(headers)))}"
