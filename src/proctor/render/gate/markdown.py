"""A gate's result as Markdown: a pull-request comment, and the summary of a CI step."""

from __future__ import annotations

from proctor.render.document.markdown import plain
from proctor.render.gate.text import p_value
from proctor.verdicts.gate.verdict import PRECEDENCE, GateResult, GateVerdict, RuleResult

MARKER = "<!-- proctor-gate -->"
"""First line of a comment, so that the next one can replace it."""
MOST_CHARACTERS = 60_000
"""GitHub takes 65,536 and refuses the whole comment beyond."""
_SIGN = {
    GateVerdict.PASS: "✅",
    GateVerdict.REGRESSION: "❌",
    GateVerdict.INCONCLUSIVE: "❔",
    GateVerdict.INFRASTRUCTURE: "🔧",
}


def markdown(found: GateResult) -> str:
    """The verdict sentence, a row per rule, and folded details of each."""
    rules = sorted(found.results, key=lambda each: PRECEDENCE.index(each.verdict))
    head = [
        MARKER,
        f"### {_SIGN[found.verdict]} Proctor gate: {found.verdict.value}",
        "",
        plain(found.sentence),
        "",
        f"Run {plain(found.label)}"
        + (f", compared with {plain(found.baseline)}" if found.baseline else "")
        + ".",
        *(f"> ⚠️ {plain(warning)}\n" for warning in found.warnings),
        "",
        "| | rule | result |",
        "|---|---|---|",
    ]
    rows = [
        f"| {_SIGN[each.verdict]} | {plain(each.written.title)} | {plain(each.sentence)} |" for each in rules
    ]
    details = ["", "<details><summary>What was tested, and what would change the verdict</summary>", ""]
    details += [line for each in rules for line in _rule(each, found.comparisons)]
    details += ["", "</details>", ""]
    text = "\n".join([*head, *rows, *details])
    if len(text) <= MOST_CHARACTERS:
        return text
    short = "\n".join([*head, *rows])
    cut = short if len(short) <= MOST_CHARACTERS else short[: short.rfind("\n", 0, MOST_CHARACTERS)]
    return f"{cut}\n\nToo long to show in full; `proctor gate --json` has everything.\n"


def _rule(each: RuleResult, comparisons: int) -> list[str]:
    facts = [each.n, f"margin {each.margin}" if each.margin else "", p_value(each, comparisons)]
    shown = [f"- **{plain(each.written.title)}**: {each.verdict.value}"]
    if any(facts):
        shown.append(f"  {plain('; '.join(filter(None, facts)))}")
    if each.change:
        shown.append(f"  What would change it: {plain(each.change)}")
    return shown + [f"  - {plain(detail)}" for detail in each.details]
