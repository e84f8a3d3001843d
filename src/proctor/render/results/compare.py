"""A comparison of two runs as a document: the verdict, where it comes from, and what would change it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from proctor.analysis.verdict import Verdict
from proctor.model.document import (
    Column,
    Document,
    Facts,
    Section,
    Table,
    Text,
    Tone,
    filled,
    outcome,
)
from proctor.quantity import some
from proctor.render.results.cells import run_link
from proctor.render.results.compare_points import metric_section
from proctor.render.results.compare_scores import cost_section, method_of_score, score_sections, spent_section
from proctor.verdicts.compare.judge import Comparison
from proctor.verdicts.compare.pairing import without_changed
from proctor.verdicts.compare.results import ResultSet
from proctor.verdicts.compare.sentence import caution, sentence

MOST_ROWS = 200
MOST_NAMES = 40
TONES: dict[Verdict, Tone] = {
    Verdict.WORSE: "bad",
    Verdict.BETTER: "good",
    Verdict.NO_WORSE: "good",
    Verdict.SAME: "good",
    Verdict.SMALL: "good",
    Verdict.INCONCLUSIVE: "warn",
    Verdict.CHANGED: "warn",
}


def comparison(
    found: Comparison, a: ResultSet, b: ResultSet, *, folder: Path = Path(), seed: int = 0
) -> Document:
    """The whole answer. `folder`: where the document will be; links are relative to it."""
    names = [side.name or side.label for side in (a, b)]
    reports = [(side, run_link(each, folder)) for side, each in (("A", a), ("B", b))]
    return Document(
        kind="compare",
        title=f"{names[0]}: B against A" if names[0] == names[1] else f"{names[1]} against {names[0]}",
        headline=sentence(found),
        verdict=found.verdict.value.replace("_", " "),
        tone=TONES[found.verdict],
        about=tuple(reports),
        warnings=found.warnings,
        sections=evidence(found, a, b, folder=folder, seed=seed),
        folder=str(folder),
        links=tuple(
            run_link(each, folder, f"report of {side}")
            for (side, report), each in zip(reports, (a, b), strict=True)
            if report.href
        ),
        footer="Written by 'proctor compare'.",
    )


def evidence(
    found: Comparison, a: ResultSet, b: ResultSet, *, folder: Path, seed: int = 0
) -> tuple[Section, ...]:
    """What the verdict rests on: the page of a gate shows it too."""
    if not found.with_changed:
        a, b, _ = without_changed(a, b)
    scores = bool(found.scores)
    parts = score_sections(found, a, b, folder)
    parts += [metric_section(each, a, b, folder, tasks=scores) for each in found.metrics]
    if scores:
        parts += [cost_section(a, b), spent_section(a, b, seed=seed)]
    return filled([*parts, _failures(found), _apart(found), _method(found)])


def _failures(found: Comparison) -> Section:
    if not found.failures:
        return Section()
    rows = tuple(
        (each.name, each.a, each.b, outcome("new", "bad") if each.new else "")
        for each in sorted(found.failures, key=lambda each: not each.new)[:MOST_ROWS]
    )
    table = Table(
        columns=(Column("point", "prose"), Column("A", "prose"), Column("B", "prose"), Column("", "whole")),
        rows=rows,
        total=len(found.failures),
    )
    return Section(title="Not compared: no result on one side", blocks=(table,), name="failures")


def _apart(found: Comparison) -> Section:
    pairs = tuple((title, some(names, MOST_NAMES)) for title, names in _unmatched(found) if names)
    facts = (Facts(pairs=pairs),) if pairs else ()
    return Section(title="Not the same on both sides", blocks=facts, name="apart")


def _unmatched(found: Comparison) -> Iterator[tuple[str, Sequence[str]]]:
    yield f"only in A ({len(found.only_a)})", found.only_a
    yield f"only in B ({len(found.only_b)})", found.only_b
    yield f"other content in B than in A ({len(found.changed)})", found.changed
    for each in found.metrics:
        yield f"without {each.metric} on one side ({len(each.absent)})", each.absent


def _method(found: Comparison) -> Section:
    said = list(dict.fromkeys(text for score in found.scores for text in method_of_score(score)))
    count = sum(len(each.times.points) for each in found.metrics)
    if count > 1:
        said.append(
            f"The chance of any false alarm among the {count} comparisons of single points is 5 % (Holm); "
            "the intervals of single points are not widened for this."
        )
    said += [text for text in dict.fromkeys(map(caution, found.metrics)) if text]
    return Section(
        title="What was tested, and what would change the verdict",
        blocks=tuple(Text(text=each, quiet=True) for each in said),
        name="method",
    )
