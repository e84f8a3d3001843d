"""A gate's result as GitHub workflow commands: annotations, on the rule's own line where it is known."""

from __future__ import annotations

from pathlib import Path

from proctor.verdicts.gate.verdict import GateResult, GateVerdict, RuleResult

_LEVEL = {
    GateVerdict.REGRESSION: "error",
    GateVerdict.INFRASTRUCTURE: "error",
    GateVerdict.INCONCLUSIVE: "warning",
}
MOST = 10
"""GitHub shows ten annotations of a kind per step and drops the rest."""


def workflow_commands(found: GateResult) -> list[str]:
    """One command per rule that does not hold, or a single notice."""
    bad = [each for each in found.results if each.verdict is not GateVerdict.PASS]
    if not bad:
        return [_command("notice", "Proctor gate: pass", found.sentence)]
    shown = [_rule(each) for each in bad[: MOST - 1]]
    if len(bad) > len(shown):
        more = f"{len(bad) - len(shown)} more rules do not hold; the step summary lists all of them"
        shown.append(_command("warning", f"Proctor gate: {found.verdict.value}", more))
    return shown


def _rule(each: RuleResult) -> str:
    text = each.sentence + (f" What would change it: {each.change}." if each.change else "")
    title = f"Proctor gate: {each.verdict.value}: {each.written.title}"
    file = each.written.file
    # An absolute path is not a place in the repository.
    known = file and each.written.line and not Path(file).is_absolute()
    place = {"file": file, "line": str(each.written.line)} if known else {}
    return _command(_LEVEL[each.verdict], title, text, place)


def _command(level: str, title: str, text: str, place: dict[str, str] | None = None) -> str:
    properties = ",".join(
        f"{name}={_property(value)}" for name, value in {**(place or {}), "title": title}.items()
    )
    return f"::{level} {properties}::{_data(text)}"


def _data(text: str) -> str:
    """Line ends would start another command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
