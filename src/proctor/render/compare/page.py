"""The page of a comparison: the verdict, where it comes from point by point, and what would change it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from proctor.analysis.verdict import Verdict
from proctor.render.compare import page_tasks
from proctor.render.compare.page_points import metric_section
from proctor.render.document.html import prose
from proctor.render.html.view import section, shell, table
from proctor.runfolder.files import write_atomic
from proctor.verdicts.compare.judge import Comparison
from proctor.verdicts.compare.results import ResultSet
from proctor.verdicts.compare.sentence import caution, sentence

MOST_ROWS = 200
MOST_NAMES = 40
_TONES = {Verdict.WORSE: "bad", Verdict.BETTER: "good", Verdict.INCONCLUSIVE: "warn"}


def write(found: Comparison, a: ResultSet, b: ResultSet, path: Path, *, seed: int = 0) -> None:
    """Write the page."""
    write_atomic(path, render(found, a, b, seed=seed))


def render(found: Comparison, a: ResultSet, b: ResultSet, *, seed: int = 0) -> str:
    """The whole page."""
    body = _head(found) + _notices(found) + sections(found, a, b, seed=seed)
    return shell(
        f"{b.name or found.label_b} against {a.name or found.label_a}", body, "Written by 'proctor compare'."
    )


def sections(found: Comparison, a: ResultSet, b: ResultSet, *, seed: int = 0) -> str:
    """The evidence: what a gate's page shows too."""
    parts = []
    if found.score:
        parts.append(page_tasks.score_section(found.score, a, b))
    parts += [metric_section(each, a, b, tasks=found.score is not None) for each in found.metrics]
    if found.score:
        parts += [page_tasks.cost_section(a, b), page_tasks.spent_section(a, b, seed=seed)]
    parts += [_failures(found), _apart(found), _method(found)]
    return "".join(parts)


def _head(found: Comparison) -> str:
    tone = _TONES.get(found.verdict, "")
    word = found.verdict.value.replace("_", " ")
    return (
        f'<header><p class=kicker>Proctor comparison <span class="badge {tone}">{escape(word)}</span></p>'
        f"<h1>B against A</h1><p class=lead>{prose(sentence(found))}</p>"
        f"<p class=meta>A: {escape(found.label_a)}<br>B: {escape(found.label_b)}</p></header>"
    )


def _notices(found: Comparison) -> str:
    if not found.warnings:
        return ""
    items = "".join(f"<li>{escape(each)}</li>" for each in found.warnings[:20])
    title = "Before you quote the verdict"
    return f'<aside class="notice" aria-label="Warnings"><h2>{title}</h2><ul>{items}</ul></aside>'


def _failures(found: Comparison) -> str:
    if not found.failures:
        return ""
    rows = [
        [
            escape(each.name),
            escape(each.a),
            escape(each.b),
            '<span class="badge bad">new</span>' if each.new else "",
        ]
        for each in sorted(found.failures, key=lambda each: not each.new)[:MOST_ROWS]
    ]
    body = table(["point", "A", "B", ""], rows) + _more(len(found.failures) - len(rows))
    return section("No result on one side", body, name="failures")


def _apart(found: Comparison) -> str:
    said = [(f"only in {side}", names) for side, names in (("A", found.only_a), ("B", found.only_b)) if names]
    said += [(f"without {each.metric} on one side", each.absent) for each in found.metrics if each.absent]
    if not said:
        return ""
    body = "".join(f"<p><b>{escape(title)}</b> ({len(names)}): {_some(names)}</p>" for title, names in said)
    return section("Not compared", body, name="apart")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return escape(", ".join(names[:MOST_NAMES]) + more)


def _method(found: Comparison) -> str:
    said = [text for text in dict.fromkeys(map(caution, found.metrics)) if text]
    if found.score:
        said += page_tasks.said_of_score(found.score)
    count = sum(len(each.times.points) for each in found.metrics)
    if count > 1:
        said.append(
            f"The chance of any false alarm among the {count} comparisons of single points is 5 % "
            "(Holm); the "
            "intervals of single points are not widened for this."
        )
    body = "".join(f"<p class=note>{escape(each)}</p>" for each in said)
    return section("What was tested, and what would change the verdict", body, name="method")


def _more(count: int) -> str:
    return f"<p class=note>And {count} more; --json lists all of them.</p>" if count > 0 else ""
