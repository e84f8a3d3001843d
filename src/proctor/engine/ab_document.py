"""A comparison in lockstep as a document: the verdict in one sentence, then what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from proctor.analysis.both_clocks import Finding
from proctor.analysis.lockstep import ClockFinding, Verdict
from proctor.engine.ab import PointResult
from proctor.engine.ab_file import call_s, pair_s
from proctor.engine.ab_run import Comparison
from proctor.engine.ab_words import change, counts, interval, whole_sentence
from proctor.model.document import (
    Cell,
    Chart,
    Column,
    Document,
    Facts,
    Listed,
    Section,
    Table,
    Text,
    Tone,
    filled,
    number,
    outcome,
)
from proctor.model.document import interval as ends
from proctor.quantity import confidence, duration
from proctor.render.labels import apart, heading

CLOCKS = {"cpu": "CPU", "wall": "elapsed"}
MOST_PANELS = 6
TONES: dict[Verdict, Tone] = {
    Verdict.SLOWER: "bad",
    Verdict.FASTER: "good",
    Verdict.SAME: "good",
    Verdict.SMALL: "good",
    Verdict.SAME_COMPUTING: "warn",
    Verdict.INCONCLUSIVE: "warn",
}


def comparison(found: Comparison, *, saved: Path | None = None) -> Document:
    """The whole answer. `saved`: the file with every measurement."""
    single = len(found.results) == 1
    said = whole_sentence(found.results[0]) if single else _overall(found)
    about: list[tuple[str, Cell | str]] = [
        ("A", Cell(text=found.a, code=True)),
        ("B", Cell(text=found.b, code=True)),
        ("cost", f"{found.cpu_s:.1f} s CPU, {found.wall_s:.1f} s"),
    ]
    if saved:
        about.append(("saved", Cell(text=str(saved), code=True)))
    return Document(
        kind="ab",
        title=f"{found.name}: B against A",
        headline=said,
        verdict=found.verdict.value,
        tone=TONES[found.verdict],
        about=tuple(about),
        warnings=(*found.notes, *(f"not compared: {each}" for each in found.lost)),
        sections=filled(
            [*([_point(found)] if single else [_points(found)]), _pictures(found.results), _method(found)]
        ),
        footer="Written by 'proctor ab'.",
    )


def _overall(found: Comparison) -> str:
    verdicts = [result.verdict for result in found.results]
    if len(set(verdicts)) == 1:
        return f"{found.verdict} at all {len(verdicts)} points"
    return f"{found.verdict}: {len(verdicts)} points, {counts(verdicts)}"


def _point(found: Comparison) -> Section:
    result = found.results[0]
    finding, check = result.finding, result.check
    fresh = sum(pair.confirms for pair in result.pairs)
    confirmed = {True: f", confirmed by {fresh} more", False: f", not confirmed by {fresh} more", None: ""}
    facts: list[tuple[str, Cell | str]] = [
        ("point", result.label),
        ("A", number(f"{duration(call_s(result, 'a'))} per call", call_s(result, "a"))),
        ("B", number(f"{duration(call_s(result, 'b'))} per call", call_s(result, "b"))),
        ("ratio", _ratio(finding)),
        *((CLOCKS[clock.clock], _clock(clock, finding)) for clock in finding.clocks),
        ("pairs", f"{finding.pairs}{confirmed[result.confirmed]}; margin ±{finding.margin:.1%}"),
        (
            "noise",
            f"{finding.noise:.2%} per pair; a change of {finding.detectable:.1%} would be detected",
        ),
    ]
    if check.pairs > 1:
        state = "passed" if check.passed else "FAILED"
        tone: Tone = "" if check.passed else "bad"
        facts.append(("A/A", Cell(text=f"{state}: {check.change:+.2%} over {check.pairs} pairs", tone=tone)))
    return Section(blocks=(Facts(pairs=tuple(facts)),), name="result")


def _ratio(finding: Finding) -> Cell:
    return Cell(
        text=f"{1 + finding.change:.4f} "
        f"({confidence(finding.level)} interval {1 + finding.low:.4f} to {1 + finding.high:.4f})",
        value=1 + finding.change,
        low=1 + finding.low,
        high=1 + finding.high,
    )


def _clock(found: ClockFinding, finding: Finding) -> Cell:
    """What one clock says by itself."""
    if found.clock == "cpu":
        what = f"computing, children included; busy {finding.busy:.0%}"
    elif finding.parallel:
        what = "it runs in parallel: waiting for other programs is included"
    else:
        what = "without waiting for other programs"
    verdict = found.verdict.value if found.verdict else "inconclusive"
    text = f"{change(found.change)} ({interval(found)}), margin ±{found.margin:.1%}: {verdict}; {what}"
    return Cell(text=text, value=found.change, low=found.low, high=found.high)


def _points(found: Comparison) -> Section:
    """A row for each point, and the reasons of those without a verdict."""
    shared, own = apart([result.label for result in found.results])
    head, labels = heading(own)
    rows = tuple(_row(result, label) for result, label in zip(found.results, labels, strict=True))
    reasons = tuple(
        f"{label}: {result.finding.reason}"
        for result, label in zip(found.results, own, strict=True)
        if result.finding.reason
    )
    table = Table(
        columns=(
            Column(head, "prose"),
            Column("verdict", "whole"),
            *(Column(title, "number") for title in ("change", "interval", "level", "A", "B")),
            Column("clock", "whole"),
            Column("pairs", "number"),
            Column("noise", "number"),
        ),
        rows=rows,
        caption=f"Fixed: {shared}." if "=" in shared else "",
    )
    return Section(blocks=(table, *([Listed(items=reasons)] if reasons else [])), name="result")


def _row(result: PointResult, label: str) -> tuple[Cell | str, ...]:
    finding = result.finding
    a, b = call_s(result, "a"), call_s(result, "b")
    return (
        label,
        outcome(result.verdict.value, TONES[result.verdict]),
        number(change(finding.change), finding.change, strong=True),
        ends(f"{change(finding.low)} … {change(finding.high)}", finding.low, finding.high),
        number(confidence(finding.level), finding.level),
        number(duration(a), a),
        number(duration(b), b),
        CLOCKS[finding.clock],
        number(str(len(result.pairs)), len(result.pairs)),
        number(f"{finding.noise:.2%}", finding.noise),
    )


def _pictures(results: Sequence[PointResult]) -> Section:
    return Section(title="Pictures", blocks=(forest_of(results), _in_order(results)), name="pictures")


def forest_of(results: Sequence[PointResult]) -> Chart:
    """Every point on both clocks, or of many points on the clock that leads."""
    return Chart(
        title="B over A",
        draw=lambda: _forest(results),
        caption=(
            "Lines: the intervals that the verdicts use, which hold over all looks together. Grey: the "
            f"margin of {results[0].finding.margin:.1%}; a difference counts when it is certain and larger "
            "than that (coloured)."
        ),
    )


def _forest(results: Sequence[PointResult]) -> partial[str]:
    from proctor.render.charts.forest import Branch, forest

    _, labels = apart([result.label for result in results])
    single, margin = len(results) == 1, results[0].finding.margin
    rows = [
        Branch(
            label=f"{CLOCKS[each.clock]} time" if single else label,
            value=1 + each.change,
            low=1 + each.low,
            high=1 + each.high,
            text=f"{change(each.change)} ({interval(each)})",
            tone={Verdict.SLOWER: "bad", Verdict.FASTER: "good"}.get(each.verdict or Verdict.SAME, ""),
        )
        for result, label in zip(results, labels, strict=True)
        for each in (single and result.finding.clocks) or [result.finding]
    ]
    return partial(
        forest,
        rows=rows,
        title="B over A",
        ratio=True,
        band=(1 / (1 + margin), 1 + margin),
        axis="B/A, log scale; less than 1 is faster",
    )


def _in_order(results: Sequence[PointResult]) -> Chart:
    count = min(len(results), MOST_PANELS)
    some = f" The first {count} of {len(results)} points." if count < len(results) else ""
    return Chart(
        title="Every pair in the order measured",
        draw=lambda: _pairs(results),
        caption=(
            "Time of one call in each pair: A in blue, B in orange; dashed: their medians. What disturbs the "
            f"machine moves both sides of a pair alike.{some}"
        ),
    )


def _pairs(results: Sequence[PointResult]) -> partial[str]:
    from proctor.render.charts.pairs import Pair, pairs

    _, labels = apart([result.label for result in results])
    drawn = [
        Pair(label=label, a=pair_s(result, "a"), b=pair_s(result, "b"))
        for result, label in zip(results[:MOST_PANELS], labels, strict=False)
    ]
    return partial(pairs, drawn=drawn, metric="call_s", each="pairs")


def _method(found: Comparison) -> Section:
    rules = found.asked.rules
    most = max((result.finding.pairs for result in found.results), default=0)
    seen = [look for look in rules.looks if not rules.open_ended or look <= most] or [most]
    looks = ", ".join(map(str, seen)) + (" (open-ended)" if rules.open_ended else "")
    return Section(
        title="What was tested",
        blocks=(
            Text(
                text=f"Pairs of processes that take turns, judged after {looks} "
                f"pairs; margins ±{rules.margin:.1%} for computing and ±{rules.wall_margin:.1%} for the "
                "elapsed time. 'Same' needs both clocks.",
                quiet=True,
            ),
        ),
        name="method",
    )
