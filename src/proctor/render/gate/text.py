"""A gate's result for a terminal: the verdict first, then a block for each rule, the bad ones first."""

from __future__ import annotations

from proctor.verdicts.gate.verdict import PRECEDENCE, GateResult, RuleResult


def lines(found: GateResult) -> list[str]:
    """Plain lines; the first is the verdict."""
    shown = [found.sentence, f"run: {found.label}"]
    if found.baseline:
        shown.append(f"compared with: {found.baseline}")
    shown += [f"! {warning}" for warning in found.warnings]
    for each in sorted(found.results, key=lambda each: PRECEDENCE.index(each.verdict)):
        shown += ["", *_rule(each, found.comparisons)]
    return shown


def _rule(each: RuleResult, comparisons: int) -> list[str]:
    shown = [f"{each.verdict.value:<15} {each.written.title}"]
    if each.written.name:
        shown.append(f"{'':<15} {each.written.text}")
    shown.append(f"{'':<15} {each.sentence}")
    facts = [each.n, f"margin {each.margin}" if each.margin else "", p_value(each, comparisons)]
    if any(facts):
        shown.append(f"{'':<15} {'; '.join(filter(None, facts))}")
    if each.change:
        shown.append(f"{'':<15} what would change it: {each.change}")
    return shown + [f"{'':<17} {detail}" for detail in each.details]


def p_value(each: RuleResult, comparisons: int) -> str:
    """The p-value, and what it was corrected for."""
    if each.p_value is None:
        return ""
    over = f" after Holm over {comparisons} comparisons" if comparisons > 1 else ""
    return f"p {each.p_value:.2g}{over}"
