"""A noise certificate for people: the same tables for a terminal, a Markdown page and an HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from proctor.quantity import MISSING, significant
from proctor.verdicts.aa.certificate import NoiseCertificate, Standing
from proctor.verdicts.aa.loss import USEFUL
from proctor.verdicts.aa.words import hours, percent, plural, points

_SIGN = {
    Standing.GOOD: "✅",
    Standing.BLIND: "🙈",
    Standing.FALSE_ALARMS: "❌",
    Standing.TOO_LITTLE: "❔",
    Standing.INFRASTRUCTURE: "🔧",
}
MOST_FLAKY = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table with what it shows and how to read it."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...] = ()
    caption: str = ""


def tables(found: NoiseCertificate) -> list[Table]:
    """The tables of the certificate that are not empty, in reading order."""
    made = [_alarms(found), _flaky(found)]
    if any(row.detectable is not None for row in found.power):
        made.insert(1, _power(found))
    return [table for table in made if table.rows]


def facts(found: NoiseCertificate) -> list[str]:
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


def _alarms(found: NoiseCertificate) -> Table:
    rows = []
    for trial in found.trials:
        for rate in (trial.gate, *trial.naive):
            span = f"{percent(rate.interval.low)} – {percent(rate.interval.high)}"
            rows.append((trial.name, rate.rule, percent(rate.share), span, f"{rate.alarms} of {rate.pairs}"))
    how = "; ".join(f"{trial.name}: {trial.how}, {trial.per_side} on each side" for trial in found.trials)
    calls = "; ".join(
        f"{trial.name}: "
        + ", ".join(
            f"{name} {percent(count / trial.gate.pairs)}" for name, count in trial.calls.items() if count
        )
        for trial in found.trials
    )
    return Table(
        title="False alarms: identical sides reported as worse",
        headers=("pairs", "rule", "false alarms", "95 % interval", "count"),
        rows=tuple(rows),
        right=(2, 3, 4),
        caption=f"{how}. Gate verdicts: {calls}." if rows else "",
    )


def _power(found: NoiseCertificate) -> Table:
    task = found.kind == "task"
    headers = [
        "rollouts per side" if task else "iterations",
        "smallest loss" if task else "smallest slowdown",
    ]
    headers += ["total rollouts" if task else "total iterations", "time"]
    priced = any(row.cost_usd is not None for row in found.power)
    rows = []
    for row in found.power:
        loss = MISSING
        if row.detectable is not None:
            loss = points(row.detectable) if task else f"{significant(100 * row.detectable, 2)} %"
        cells = [str(row.count), loss, f"{row.total:,}", MISSING if row.hours is None else hours(row.hours)]
        if priced:
            cells.append(MISSING if row.cost_usd is None else f"${significant(row.cost_usd, 3)}")
        rows.append(tuple(cells))
    return Table(
        title="What would be detected with 80 % probability, and what it costs",
        headers=(*headers, *(("cost",) if priced else ())),
        rows=tuple(rows),
        right=tuple(range(len(headers) + 1)),
        caption=(
            "Both sides together, at the parallelism of the run. "
            f"A loss below the margin is never reported; {MISSING}: not even a total loss would be detected."
            if task
            else "One side of a comparison. Run-to-run noise does not fall with more iterations."
        ),
    )


def _flaky(found: NoiseCertificate) -> Table:
    rows = tuple(
        (
            task.name,
            f"{task.passed} of {task.rollouts}",
            MISSING if task.disagreement is None else percent(task.disagreement),
        )
        for task in found.flaky[:MOST_FLAKY]
    )
    more = len(found.flaky) - len(rows)
    share = f"{percent(found.flaky_share)} of the tasks" if found.flaky_share is not None else ""
    return Table(
        title="Tasks whose rollouts disagree",
        headers=("task", "passed", "two rollouts differ"),
        rows=rows,
        right=(1, 2),
        caption=f"{share}, the least stable first{f'; {more} more are in the JSON' if more else ''}.",
    )


def markdown(found: NoiseCertificate) -> str:
    """One page."""
    from proctor.render.gate.markdown import plain

    lines = [
        f"# {_SIGN[found.standing]} Noise certificate: {found.standing.words}",
        "",
        f"**{plain(found.sentence)}**",
        "",
        f"Run {plain(found.run)}.",
        "",
        *(f"- {plain(line)}" for line in facts(found)),
    ]
    for table in tables(found):
        lines += ["", f"## {table.title}", "", _row(table.headers)]
        lines.append(_row(["--:" if at in table.right else ":--" for at in range(len(table.headers))]))
        lines += [_row([plain(cell) for cell in row]) for row in table.rows]
        lines += ["", plain(table.caption)] if table.caption else []
    lines += ["", "## What to do next", "", *(f"- {plain(step)}" for step in found.next_steps)]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def html(found: NoiseCertificate) -> str:
    """A single file without scripts or network access."""
    from proctor.render.html.page import CSS
    from proctor.render.html.text import prose
    from proctor.render.html.view import section, table

    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    body = [
        f"<header><h1>Noise certificate: {escape(found.standing.words)}</h1>",
        f"<p><strong>{prose(found.sentence)}</strong></p><p>Run {escape(found.run)}</p></header>",
        f"<ul>{''.join(f'<li>{prose(line)}</li>' for line in facts(found))}</ul>",
    ]
    for number, each in enumerate(tables(found)):
        rows = [[escape(cell) for cell in row] for row in each.rows]
        inside = table(each.headers, rows, numeric=each.right) + f"<p>{prose(each.caption)}</p>"
        body.append(section(each.title, inside, name=f"table-{number}"))
    steps = "".join(f"<li>{prose(step)}</li>" for step in found.next_steps)
    body.append(section("What to do next", f"<ul>{steps}</ul>", name="next"))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Noise certificate · Proctor</title><style>{CSS}</style></head>"
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )
