"""The page of a series: the verdict, the lines with their moves, every run, and what was left out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape
from pathlib import Path

from proctor.quantity import metric_title
from proctor.render.charts.timeline import Spot, Step, timeline
from proctor.render.html.shell import shell
from proctor.render.html.text import prose
from proctor.render.html.view import figure, section, table
from proctor.render.labels import apart
from proctor.runfolder.files import write_atomic
from proctor.verdicts.history.model import History, Line, Ran, Value
from proctor.verdicts.history.words import (
    NAMES,
    captions,
    change_span,
    change_text,
    date_text,
    differences,
    interval_text,
    left_out,
    line_title,
    sentence,
    sparkline,
    value_text,
)

MOST_CHARTS = 16
"""Lines that are drawn: the main ones, then those that changed most."""
MOST_ROWS = 200
MOST_SPARKS = 48
_READ = (
    "One mark per run with its 95 % interval; grey line: typical level; dashed line: lasting change. "
    "Crosses on the axis: runs without a value; yellow crosses: runs left out of the statistics."
)


def write(history: History, path: Path) -> None:
    """Write the page."""
    write_atomic(path, render(history))


def render(history: History) -> str:
    """The whole page."""
    parts = [
        _head(history),
        _notices(history),
        _charts(history),
        _moves(history),
        _lines(history),
        _runs(history),
        _how(history),
    ]
    return shell(
        f"{history.name} over time", "".join(parts), "Written by 'proctor history' from a store of runs."
    )


def _head(history: History) -> str:
    first, last = history.runs[0], history.runs[-1]
    meta = [
        f"{len(history.runs)} runs",
        f"{len(history.counted)} in the statistics",
        f"{date_text(first.at)} to {date_text(last.at)} UTC",
        f"{len(history.lines)} line{'s' * (len(history.lines) != 1)}",
    ]
    return (
        f"<header><p class=kicker>Proctor history of {escape(history.metric)}</p>"
        f"<h1>{escape(history.name)}</h1><p class=lead>{prose(sentence(history))}</p>"
        f"<p class=meta>{escape(' · '.join(meta))}</p></header>"
    )


def _notices(history: History) -> str:
    said = [*left_out(history), *differences(history), *history.notes]
    if not said:
        return ""
    shown = said[:12] + ([f"and {len(said) - 12} more; the table has them"] if len(said) > 12 else [])
    items = "".join(f"<li>{escape(each)}</li>" for each in shown)
    title = "Before you read the lines"
    return f'<aside class="notice" aria-label="Warnings"><h2>{title}</h2><ul>{items}</ul></aside>'


def _charts(history: History) -> str:
    telling = [line for line in history.lines if line.main or line.moves or line.metric != history.metric]
    chosen = telling if history.main else history.lines
    lines = [line for line in chosen if line.known][:MOST_CHARTS]
    drawn = []
    for at, line in enumerate(lines):
        metric = NAMES.get(line.metric, metric_title(line.metric))
        chart = timeline(
            _spots(history, line),
            [Step(last=move.last, at=move.at, label=change_text(line, move)) for move in line.moves],
            name=metric,
            metric=line.metric,
            share=line.is_share and _within_one(line),
            series=0 if line.main else 4,
        )
        caption = _READ if at == 0 else _said_of(line)
        drawn.append(figure(chart, line_title(history, line), caption))
    return section("Over time", "".join(drawn), name="charts")


def _lines(history: History) -> str:
    """Every line in a row."""
    if len(history.lines) < 2:
        return ""
    lines = history.lines[:MOST_ROWS]
    points = [line for line in lines if not line.main]
    shared, own = apart([line.name for line in points])
    names = dict(zip((line.name for line in points), own, strict=True))
    rows = [
        [
            escape(line_title(history, line, names.get(line.name, ""))),
            f'<span class="spark" aria-hidden="true">{escape(sparkline(line)[-MOST_SPARKS:])}</span>',
            escape(value_text(line, line.latest)),
            escape(interval_text(line, line.latest)),
            str(len(line.known)),
            escape(", ".join(change_text(line, move) for move in line.moves)) or "–",
        ]
        for line in lines
    ]
    headers = ["line", "over the runs", "newest", "95 % interval", "runs", "changes"]
    body = f"<p class=note>Fixed: {escape(shared)}</p>" if "=" in shared else ""
    body += table(headers, rows, numeric=(2, 3, 4))
    if len(history.lines) > MOST_ROWS:
        body += f"<p class=note>And {len(history.lines) - MOST_ROWS} more; --json lists all of them.</p>"
    return section("Every line", body, name="lines")


def _within_one(line: Line) -> bool:
    return all(0 <= value.value <= 1 for value in line.values if value)


def _said_of(line: Line) -> str:
    if not line.moves:
        return f"{len(line.known)} runs; no lasting change."
    said = ", ".join(f"{change_text(line, move)} ({change_span(line, move)})" for move in line.moves)
    return f"{len(line.known)} runs; {said}."


def _spots(history: History, line: Line) -> list[Spot]:
    levels: Sequence[float | None] = line.levels or (None,) * len(line.values)
    return [
        Spot(
            value=value.value if value else None,
            low=value.low if value else None,
            high=value.high if value else None,
            level=level,
            told=_told(line, run, value),
            under=(_day(run, history), run.version),
            left_out=bool(run.left_out),
        )
        for run, value, level in zip(history.runs, line.values, levels, strict=True)
    ]


def _told(line: Line, run: Ran, value: Value | None) -> str:
    said = value_text(line, value) if value else run.left_out or "no value"
    if value and value.low is not None:
        said += f", 95 % interval {interval_text(line, value)}, n={value.n}"
    version = f", commit {run.version}" if run.version else ""
    return f"{run.id}, {date_text(run.at)}{version}: {said}"


def _day(run: Ran, history: History) -> str:
    """A date, or the time of day where all runs are of few days."""
    if date_text(run.at) == "–":
        return ""
    short = history.runs[-1].at - history.runs[0].at < 3 * 86_400
    return time.strftime("%d %b %H:%M" if short else "%Y-%m-%d", time.gmtime(run.at))


def _moves(history: History) -> str:
    rows = []
    for line in history.lines:
        for move in line.moves:
            at, last = history.runs[move.at], history.runs[move.last]
            before, after = (
                escape(value_text(line, Value(value=each))) for each in (move.before, move.after)
            )
            rows.append(
                [
                    escape(line_title(history, line)),
                    f"<b>{escape(change_text(line, move))}</b>",
                    escape(change_span(line, move)),
                    f"<span class=nw>{before} → {after}</span>",
                    f"<code class=nw>{escape(last.id)}</code> <small>{escape(last.version)}</small>",
                    f"<code class=nw>{escape(at.id)}</code> <small>{escape(at.version)}</small>",
                ]
            )
    if not rows:
        return ""
    headers = ["line", "change", "95 % interval", "level", "after", "at"]
    body = table(headers, rows[:MOST_ROWS], numeric=(1, 2))
    if len(rows) > MOST_ROWS:
        body += f"<p class=note>And {len(rows) - MOST_ROWS} more changes.</p>"
    return section("Lasting changes", body, name="changes")


def _runs(history: History) -> str:
    """Newest first: what people look for is at the top."""
    line = next(iter(history.main or history.lines), None)
    rows = []
    for at in range(len(history.runs) - 1, -1, -1):
        run = history.runs[at]
        value = line.values[at] if line else None
        moved = [move for move in line.moves if move.at == at] if line else []
        badges = [
            f'<span class="badge bad">{escape(change_text(line, move))}</span>' for move in moved if line
        ]
        badges += ['<span class="badge warn">left out</span>'] if run.left_out else []
        badges += ['<span class="badge">differs</span>'] if run.differs else []
        notes = " ".join([*badges, escape(run.left_out or run.differs)])
        rows.append(
            [
                f"<code class=nw>{escape(run.id)}</code>",
                f"<span class=nw>{escape(date_text(run.at))}</span>",
                f"<code class=nw>{escape(run.version)}</code>",
                escape(value_text(line, value)) if line else "–",
                escape(interval_text(line, value)) if line else "–",
                str(value.n) if value else "–",
                f"{run.ended}/{run.trials}",
                notes,
            ]
        )
    headers = ["run", "date, UTC", "commit", "value", "95 % interval", "n", "trials", ""]
    body = table(headers, rows[:MOST_ROWS], numeric=(3, 4, 5, 6))
    if len(rows) > MOST_ROWS:
        body += f"<p class=note>And {len(rows) - MOST_ROWS} older runs.</p>"
    name = f"<p class=note>Values of {escape(line.name)}.</p>" if line and len(history.lines) > 1 else ""
    return section("Runs", name + body, name="runs")


def _how(history: History) -> str:
    body = "".join(f"<p class=note>{escape(each)}</p>" for each in captions(history))
    return section("What was tested", body, name="method")
