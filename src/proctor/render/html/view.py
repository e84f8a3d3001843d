"""What every section of the page sees, and the few tags they share. User text is escaped here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape

from proctor.model.outcome import Blame, Outcome
from proctor.runfolder.read import RunData, metric_of
from proctor.verdicts.run.story import Group, groups


@dataclass(frozen=True, slots=True)
class View:
    """A run, grouped once for all sections."""

    data: RunData
    groups: tuple[Group, ...]
    metric: str

    @classmethod
    def of(cls, data: RunData) -> View:
        """The view of a run."""
        return cls(data, groups(data), metric_of(data.info.kind))


Section = Callable[[View], str]
"""Returns its part of the page, or an empty text."""


def section(title: str, body: str, *, name: str) -> str:
    """A part of the page under a heading."""
    return f'<section id="{escape(name)}"><h2>{escape(title)}</h2>{body}</section>' if body else ""


def figure(chart: str, title: str, caption: str) -> str:
    """A chart with what it shows above and how to read it below."""
    heading = f"<h3>{escape(title)}</h3>" if title else ""
    return (
        f'<figure>{heading}<div class="scroll">{chart}</div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, numeric: Sequence[int] = ()) -> str:
    """A table of cells that are HTML already; `numeric` columns are set flush right."""
    number = ' class="n"'
    head = "".join(
        f"<th{number if at in numeric else ''}>{escape(name)}</th>" for at, name in enumerate(headers)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{number if at in numeric else ''}>{cell}</td>" for at, cell in enumerate(row))
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and values, both plain text."""
    inside = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in pairs)
    return f'<dl class="facts">{inside}</dl>' if inside else ""


def details(title: str, body: str, *, is_open: bool = False) -> str:
    """A part that is folded away."""
    return f"<details{' open' if is_open else ''}><summary>{title}</summary>{body}</details>"


def badge(outcome: Outcome | None) -> str:
    """An outcome as a coloured word."""
    if outcome is None:
        return '<span class="badge">no result</span>'
    tone = {Outcome.PASSED: "good", Outcome.PARTIAL: "warn"}.get(outcome)
    if tone is None:
        tone = "bad" if outcome.blame in {Blame.AGENT, Blame.TASK, Blame.AUTHOR} else "warn"
    return f'<span class="badge {tone}">{escape(outcome.value.replace("_", " "))}</span>'


def moment(at: float | None) -> str:
    """A point in time, the same wherever the page is read."""
    if at is None or not 0 <= at < 253402300800:
        return "–"
    return _second(int(at))


@lru_cache(maxsize=256)
def _second(at: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))
