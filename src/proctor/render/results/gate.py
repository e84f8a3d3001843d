"""A gate's verdict as a document: every rule with its result, a picture of the statistical ones, evidence."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from proctor.errors import UsageError
from proctor.model.document import (
    Cell,
    Chart,
    Document,
    Entries,
    Entry,
    Section,
    Text,
    Tone,
    filled,
    outcome,
)
from proctor.model.run import RunInfo
from proctor.runfolder.files import read_document
from proctor.verdicts.compare.sentence import plain_ratio, points
from proctor.verdicts.gate.verdict import PRECEDENCE, GateResult, GateVerdict, RuleResult

NAME = "gate.json"
MOST_RULES = 100
"""Rules on the page of a run."""
_TONES: dict[str, Tone] = {GateVerdict.PASS: "good", GateVerdict.REGRESSION: "bad"}


def gate(
    found: GateResult,
    *,
    run: Cell | str = "",
    baseline: Cell | str = "",
    evidence: Sequence[Section] = (),
    folder: Path = Path(),
) -> Document:
    """The whole answer. `run` and `baseline` lead to their reports; `evidence`: the comparison behind it."""
    run, baseline = run or found.label, baseline or found.baseline
    reports = (("report of the run", run), ("report of the baseline", baseline))
    return Document(
        kind="gate",
        title=f"Gate: {found.label}",
        headline=found.sentence,
        verdict=found.verdict.value,
        tone=_tone(found.verdict),
        about=(("run", run), *((("compared with", baseline),) if baseline else ())),
        warnings=found.warnings,
        sections=filled(
            [
                Section(
                    title="Rules",
                    blocks=(_entries([each.to_dict() for each in found.results], found.comparisons),),
                    note="" if evidence else _where(found),
                    name="rules",
                ),
                Section(title="Statistical rules", blocks=tuple(_pictures(found)), name="statistics"),
                *evidence,
            ]
        ),
        folder=str(folder),
        links=tuple(
            Cell(text=title, href=each.href)
            for title, each in reports
            if isinstance(each, Cell) and each.href
        ),
        footer="Written by 'proctor gate'.",
    )


def _where(found: GateResult) -> str:
    """How to see the comparison behind the rules, where both runs are at hand."""
    before = found.baseline_facts.get("run_id")
    pinned = "file" in found.baseline_facts
    if pinned or not before or not found.run_id or all(each.tolerated is None for each in found.results):
        return ""
    return f"Point by point: proctor compare {before} {found.run_id}"


def kept_gate(found: Mapping[str, Any]) -> Document:
    """The answer again, from what `gate.json` keeps of it: without its pictures."""
    rules, against = found.get("rules"), found.get("baseline")
    chosen = [each for each in rules if isinstance(each, Mapping)] if isinstance(rules, list) else []
    verdict, label = str(found.get("verdict", "")), str(found.get("run", ""))
    return Document(
        kind="gate",
        title=f"Gate: {label}",
        headline=str(found.get("sentence", "")),
        verdict=verdict,
        tone=_tone(verdict),
        about=(("run", label), *((("compared with", str(against)),) if against else ())),
        warnings=tuple(map(str, found.get("warnings") or ())),
        sections=(
            Section(title="Rules", blocks=(_entries(chosen, found.get("comparisons")),), name="rules"),
        ),
        footer="Written by 'proctor gate'.",
    )


def gate_section(info: RunInfo) -> Section:
    """The verdict in the report of a run, from `gate.json` in its folder; empty when no gate judged it."""
    found = kept_verdict(info)
    rules = found.get("rules")
    if not isinstance(rules, list) or not isinstance(found.get("sentence"), str):
        return Section()
    against = found.get("baseline")
    chosen = [each for each in rules[:MOST_RULES] if isinstance(each, Mapping)]
    return Section(
        title="Gate",
        blocks=(
            Text(text=str(found["sentence"])),
            *((Text(text=f"Compared with {against}.", quiet=True),) if against else ()),
            _entries(chosen, found.get("comparisons")),
        ),
        name="gate",
    )


def kept_verdict(info: RunInfo) -> Mapping[str, Any]:
    """What `gate.json` in a run's folder says.

    Only of this very run: a folder that was copied over keeps its old verdict to itself.
    """
    if not info.folder or not Path(info.folder, NAME).is_file():
        return {}
    try:
        found = read_document(Path(info.folder), NAME)
    except UsageError:
        return {}
    return found if found.get("run_id") == info.id else {}


def _tone(verdict: str) -> Tone:
    return _TONES.get(verdict, "warn")


def _entries(rules: Sequence[Mapping[str, Any]], comparisons: Any) -> Entries:
    """The rules as `gate.json` has them, the bad ones first. The file may be a stranger's."""
    order = [each.value for each in PRECEDENCE]
    ranked = sorted(rules, key=lambda rule: [*order, rule.get("verdict")].index(rule.get("verdict")))
    return Entries(entries=tuple(_entry(rule, comparisons) for rule in ranked))


def _entry(rule: Mapping[str, Any], comparisons: Any) -> Entry:
    verdict, title, text = (str(rule.get(name, "")) for name in ("verdict", "name", "rule"))
    details = rule.get("details")
    return Entry(
        title=title,
        mark=outcome(verdict, _tone(verdict)),
        text=str(rule.get("sentence", "")),
        notes=(*([text] if text != title else []), *_notes(rule, comparisons)),
        items=tuple(map(str, details)) if isinstance(details, list) else (),
    )


def _notes(rule: Mapping[str, Any], comparisons: Any) -> Iterator[str]:
    p_value = rule.get("p_holm")
    many = isinstance(comparisons, int) and comparisons > 1
    over = f" after Holm over {comparisons} comparisons" if many else ""
    facts = (
        str(rule.get("n") or ""),
        f"margin {rule['margin']}" if rule.get("margin") else "",
        f"p {p_value:.2g}{over}" if isinstance(p_value, int | float) else "",
    )
    if any(facts):
        yield "; ".join(filter(None, facts))
    if rule.get("what_would_change_it"):
        yield f"What would change it: {rule['what_would_change_it']}"


def _pictures(found: GateResult) -> Iterator[Chart]:
    """Rules with an estimate against a margin: differences of scores, and ratios of everything else."""
    for unit, title in (("pp", "Scores"), ("ratio", "Ratios")):
        rules = [each for each in found.results if each.tolerated is not None and _is_drawn(each, unit)]
        if rules:
            yield _picture(rules, unit, title)


def _picture(rules: Sequence[RuleResult], unit: str, title: str) -> Chart:
    levels = sorted({each.estimate.level or 0 for each in rules if each.estimate})
    named = " or ".join(f"{100 * level:g} %" for level in levels)
    margin = _margin(rules)
    grey = f" Grey: the margin of {100 * margin:g} {'pp' if unit == 'pp' else '%'}." if margin else ""
    return Chart(
        title=title,
        draw=lambda: _forest(rules, unit),
        caption=f"The estimate that decided each rule, with its {named} interval.{grey}",
    )


def _is_drawn(each: RuleResult, unit: str) -> bool:
    found = each.estimate
    return (
        found is not None
        and found.unit == unit
        and found.low is not None
        and found.high is not None
        and math.isfinite(found.value)
    )


def _margin(rules: Sequence[RuleResult]) -> float:
    """The margin that all of them have; 0 when they differ."""
    margins = {each.tolerated for each in rules}
    return (margins.pop() or 0.0) if len(margins) == 1 else 0.0


def _forest(rules: Sequence[RuleResult], unit: str) -> partial[str]:
    from proctor.render.charts.forest import Branch, forest

    scores, margin = unit == "pp", _margin(rules)
    rows = []
    for each in rules:
        assert each.estimate is not None
        ends = (each.estimate.value, each.estimate.low or 0.0, each.estimate.high or 0.0)
        shown = [points(end) if scores else plain_ratio(end) for end in ends]
        level = f"{100 * (each.estimate.level or 0):g} %"
        rows.append(
            Branch(
                label=each.written.title,
                value=ends[0],
                low=ends[1],
                high=ends[2],
                text=f"{shown[0]} ({level} {shown[1]} to {shown[2]})",
                tone={GateVerdict.REGRESSION: "bad", GateVerdict.PASS: "good"}.get(each.verdict, ""),
            )
        )
    return partial(
        forest,
        rows=rows,
        title="Rules",
        ratio=not scores,
        band=(-margin, margin) if scores else (1 / (1 + margin), 1 + margin),
        axis="against the baseline, percentage points" if scores else "times the baseline, log scale",
    )
