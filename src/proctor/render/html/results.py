"""The results section: key numbers for one point, a table and charts for many, other metrics after them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from proctor.model.arms import arm_of, options_apart, with_options
from proctor.model.outcome import Outcome
from proctor.quantity import MISSING, duration, metric_title, show, span
from proctor.render.html.figures import Axis, axes_of, charts, sweep_charts
from proctor.render.html.view import View, badge, details, facts, section, table
from proctor.runfolder.read import TrialResult
from proctor.verdicts.run.points import HEADERS, numbers
from proctor.verdicts.run.story import Group, short

MOST_ROWS = 200
MOST_GROUPS = 30
MOST_METRICS = 12


def results(view: View) -> str:
    """A part per group: what was measured, what came out, pictures of it."""
    parts = []
    for number, group in enumerate(view.groups[:MOST_GROUPS], 1):
        body = _fixed(group)
        if len(group.trials) == 1:
            body += _tiles(group.trials[0], view.metric)
        else:
            body += _table(group, view.metric)
        axes = axes_of(group)
        body += charts(group, view.metric, axes)
        body += _others(group, view.metric, axes)
        title = group.subject if len(view.groups) > 1 else "Results"
        parts.append(section(title, body, name=f"results-{number}"))
    if len(view.groups) > MOST_GROUPS:
        left = len(view.groups) - MOST_GROUPS
        parts.append(f"<p class=note>{left} more subjects are in metrics.json beside this page.</p>")
    return "".join(parts)


def _fixed(group: Group) -> str:
    if not group.fixed:
        return ""
    inside = " ".join(
        f"<span class=param>{escape(name)}<b>{escape(short(value))}</b></span>"
        for name, value in group.fixed.items()
    )
    return f"<p class=params>{inside}</p>"


def _tiles(trial: TrialResult, metric: str) -> str:
    middle = trial.stat(metric, "p50")
    if middle is None:
        return f"<p>{badge(trial.outcome)}</p>"
    interval = span(metric, *trial.interval) if trial.interval else MISSING
    low, high = trial.stat(metric, "min"), trial.stat(metric, "max")
    reach = span(metric, low, high) if low is not None and high is not None else MISSING
    tiles = [
        ("median", show(metric, middle)),
        ("95 % interval", interval),
        ("mean", show(metric, trial.stat(metric, "mean"))),
        ("p95", show(metric, trial.stat(metric, "p95"))),
        ("min – max", reach),
        ("iterations", f"{int(trial.stat(metric, 'count') or 0):,}".replace(",", "\u202f")),
    ]
    inside = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in tiles)
    told = "" if trial.outcome is Outcome.PASSED else f"<p>{badge(trial.outcome)}</p>"
    return f'{told}<dl class="tiles">{inside}</dl>'


def _table(group: Group, metric: str) -> str:
    shown = group.trials[:MOST_ROWS]
    text = _rollouts(shown) if shown[0].planned.kind == "task" else _points(group, shown, metric)
    if len(group.trials) > len(shown):
        count = f"{len(shown)} of {len(group.trials)}"
        text += f"<p class=note>The first {count} trials; metrics.json lists all of them.</p>"
    return text


def _points(group: Group, shown: Sequence[TrialResult], metric: str) -> str:
    first = len(group.varying) or 1
    rows = []
    for trial in shown:
        values = [escape(short(trial.planned.params.get(name), 60)) for name in group.varying]
        rows.append([*(values or [str(trial.planned.index)]), *_numbers(trial, metric)])
    headers = [*(group.varying or ("#",)), "outcome", *HEADERS]
    numeric = [at for at, name in enumerate(group.varying) if _right(shown, name)]
    return table(headers, rows, numeric=[*numeric, *range(first + 1, first + 6)])


def _rollouts(shown: Sequence[TrialResult]) -> str:
    rows = []
    options = options_apart(trial.planned for trial in shown)
    for trial in shown:
        planned, record = trial.planned, trial.counted
        took = duration(record.took_s) if record else MISSING
        reward = show("reward", record.reward) if record else MISSING
        agent = with_options(planned.agent or MISSING, options[arm_of(planned)])
        who = [escape(agent), escape(planned.model or MISSING), str(planned.rollout + 1)]
        rows.append([*who, badge(trial.outcome), reward, escape(took)])
    return table(["agent", "model", "rollout", "outcome", "reward", "took"], rows, numeric=(2, 4, 5))


def _right(trials: Sequence[TrialResult], name: str) -> bool:
    return all(isinstance(trial.planned.params.get(name), int | float) for trial in trials)


def _numbers(trial: TrialResult, metric: str) -> list[str]:
    found = numbers(trial, metric)
    extra = f" <small>{len(trial.attempts)} attempts</small>" if len(trial.attempts) > 1 else ""
    median, interval, *rest = map(escape, found.cells)
    around = f" <small>±{found.half:.1%}</small>" if found.half is not None else ""
    return [badge(trial.outcome) + extra, f"<b>{median}</b>", interval + around, *rest]


def _others(group: Group, metric: str, axes: Sequence[Axis]) -> str:
    """What `execute_once` returned and the instruments added, folded away."""
    names: dict[str, None] = {}
    for trial in group.trials:
        for name in trial.counted.metrics if trial.counted else ():
            if name != metric and trial.stat(name, "p50") is not None:
                names[name] = None
    shown = list(names)[:MOST_METRICS]
    if not shown:
        return ""
    if len(group.trials) == 1:
        only = group.trials[0]
        rows = [
            [
                escape(name),
                *(escape(show(name, only.stat(name, stat))) for stat in ("p50", "mean", "p95", "min", "max")),
            ]
            for name in names
        ]
        body = table(["metric", "median", "mean", "p95", "min", "max"], rows, numeric=range(1, 6))
        return f"<h3>Other metrics</h3>{body}"
    rows = [
        [escape(group.label(trial)), *(escape(show(name, trial.stat(name, "p50"))) for name in shown)]
        for trial in group.trials[:MOST_ROWS]
    ]
    body = table(["median of", *shown], rows, numeric=range(1, len(shown) + 1))
    body += "".join(sweep_charts(group, name, axes) for name in shown[:4])
    if len(names) > len(shown):
        body += f"<p class=note>{len(names) - len(shown)} more metrics are in metrics.json.</p>"
    return details(f"Other metrics: {escape(', '.join(metric_title(name) for name in shown))}", body)


def timing(view: View) -> str:
    """Where the run's own time went, by phase, summed over every attempt."""
    phases: dict[str, float] = {}
    for trial in view.data.trials:
        for record in trial.attempts:
            for name, seconds in record.phases_s.items():
                if isinstance(seconds, int | float):
                    phases[name] = phases.get(name, 0.0) + seconds
    if not phases:
        return ""
    pairs = [(name, duration(seconds)) for name, seconds in phases.items()]
    return section("Where the time went", facts(pairs), name="phases")
