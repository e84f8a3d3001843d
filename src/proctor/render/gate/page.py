"""A gate's result as a page: the verdict, every rule, a picture of the statistical ones, and the evidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from proctor.render.charts.forest import Branch, forest
from proctor.render.document.html import prose
from proctor.render.gate.text import p_value
from proctor.render.html.view import details, figure, section, shell, table
from proctor.verdicts.gate.rules import NotWorse, Rule
from proctor.verdicts.gate.verdict import PRECEDENCE, GateResult, GateVerdict, RuleResult

TONES = {
    GateVerdict.PASS: "good",
    GateVerdict.REGRESSION: "bad",
    GateVerdict.INCONCLUSIVE: "warn",
    GateVerdict.INFRASTRUCTURE: "warn",
}


def render(found: GateResult, rules: Sequence[Rule], evidence: str = "") -> str:
    """The whole page. `evidence` is the sections of the comparison behind the statistical rules."""
    body = _head(found) + _notices(found) + _rules(found) + _pictures(found, rules) + evidence
    return shell(f"Gate: {found.label}", body, "Written by 'proctor gate'.")


def _head(found: GateResult) -> str:
    against = f"<br>compared with: {escape(found.baseline)}" if found.baseline else ""
    return (
        f"<header><p class=kicker>Proctor gate {_badge(found.verdict)}</p>"
        f"<h1>{escape(found.verdict.value.capitalize())}</h1><p class=lead>{prose(found.sentence)}</p>"
        f"<p class=meta>run: {escape(found.label)}{against}</p></header>"
    )


def _badge(verdict: GateVerdict) -> str:
    return f'<span class="badge {TONES[verdict]}">{escape(verdict.value)}</span>'


def _notices(found: GateResult) -> str:
    if not found.warnings:
        return ""
    items = "".join(f"<li>{escape(each)}</li>" for each in found.warnings[:20])
    title = "Before you quote the verdict"
    return f'<aside class="notice" aria-label="Warnings"><h2>{title}</h2><ul>{items}</ul></aside>'


def _rules(found: GateResult) -> str:
    ordered = sorted(found.results, key=lambda each: PRECEDENCE.index(each.verdict))
    rows = [
        [
            _badge(each.verdict),
            _rule(each),
            prose(each.sentence) + _facts(each, found.comparisons),
            prose(each.change or "–"),
        ]
        for each in ordered
    ]
    body = table(["verdict", "rule", "result", "what would change it"], rows)
    return section("Rules", body, name="rules")


def _rule(each: RuleResult) -> str:
    said = escape(each.written.title)
    return said + (f"<br><small>{escape(each.written.text)}</small>" if each.written.name else "")


def _facts(each: RuleResult, comparisons: int) -> str:
    margin = f"margin {each.margin}" if each.margin else ""
    facts = "; ".join(filter(None, (each.n, margin, p_value(each, comparisons))))
    more = "".join(f"<li>{escape(detail)}</li>" for detail in each.details)
    folded = details(f"{len(each.details)} details", f"<ul>{more}</ul>") if more else ""
    return (f" <small>{escape(facts)}</small>" if facts else "") + folded


def _pictures(found: GateResult, rules: Sequence[Rule]) -> str:
    """Rules with an estimate against a margin: differences of scores, and ratios of everything else."""
    kinds: dict[bool, list[tuple[NotWorse, Branch]]] = {}
    for rule, each in zip(rules, found.results, strict=False):
        if isinstance(rule, NotWorse) and (branch := _branch(each)):
            kinds.setdefault(rule.is_score, []).append((rule, branch))
    drawn = [_picture(rows, scores=scores) for scores, rows in kinds.items()]
    return section("Statistical rules", "".join(drawn), name="statistics")


def _branch(each: RuleResult) -> Branch | None:
    estimate = each.estimate
    if estimate is None or estimate.low is None or estimate.high is None or not math.isfinite(estimate.value):
        return None
    pp = estimate.unit == "pp"
    ends = (estimate.value, estimate.low, estimate.high)
    shown = [f"{100 * end:+.1f}" if pp else f"{end:.3f}" for end in ends]
    return Branch(
        label=each.written.title,
        value=estimate.value,
        low=estimate.low,
        high=estimate.high,
        told=f"{shown[0]} ({shown[1]} to {shown[2]})",
        tone={GateVerdict.REGRESSION: "bad", GateVerdict.PASS: "good"}.get(each.verdict, ""),
    )


def _picture(rows: Sequence[tuple[NotWorse, Branch]], *, scores: bool) -> str:
    rule = rows[0][0]
    alike = all(
        each.margin == rule.margin and each.higher_is_worse == rule.higher_is_worse for each, _ in rows
    )
    band = (0.0, 0.0) if scores else (1.0, 1.0)
    if alike:
        band = (-rule.margin, rule.margin) if scores else (1 / (1 + rule.margin), 1 + rule.margin)
    axis = "against the baseline, percentage points" if scores else "times the baseline, log scale"
    chart = forest([branch for _, branch in rows], title="Rules", ratio=not scores, band=band, axis=axis)
    grey = f" Grey: the margin of {100 * rule.margin:g} {'pp' if scores else '%'}." if alike else ""
    caption = f"The estimate that decided each rule, with its {100 * rule.level:g} % interval.{grey}"
    return figure(chart, "Scores" if scores else "Ratios", caption)
