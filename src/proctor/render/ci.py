"""A gate's result for CI servers: a pull-request comment, JUnit XML and GitHub's annotations."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from proctor.model.document import Document
from proctor.render.document.markdown import markdown
from proctor.verdicts.gate.verdict import GateResult, GateVerdict, RuleResult

MARKER = "<!-- proctor-gate -->"
"""First line of a comment, so that the next one can replace it."""
MOST_CHARACTERS = 60_000
"""GitHub takes 65,536 and refuses the whole comment beyond."""
_LEVEL = {
    GateVerdict.REGRESSION: "error",
    GateVerdict.INFRASTRUCTURE: "error",
    GateVerdict.INCONCLUSIVE: "warning",
}
MOST_ANNOTATIONS = 10
"""GitHub shows ten annotations of a kind per step and drops the rest."""
_REFUSED = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML cannot hold even when escaped."""


def comment(document: Document) -> str:
    """A comment, or the summary of a CI step; what is too long for one is left out from the end."""
    rest = "Too long to show in full; `proctor gate --json` has everything."
    return f"{MARKER}\n{markdown(document, level=3, most=MOST_CHARACTERS, rest=rest)}"


def junit(found: GateResult) -> str:
    """A regression is a failure, broken infrastructure an error; doubt is a skipped case with the reason."""
    count = {verdict: len(found.of(verdict)) for verdict in GateVerdict}
    cases = "".join(_case(each, found.label) for each in found.results)
    head = _attributes(
        [
            ("name", f"proctor gate: {found.label}"),
            ("tests", str(len(found.results))),
            ("failures", str(count[GateVerdict.REGRESSION])),
            ("errors", str(count[GateVerdict.INFRASTRUCTURE])),
            ("skipped", str(count[GateVerdict.INCONCLUSIVE])),
        ]
    )
    properties = "".join(
        f"  <property{_attributes([('name', name), ('value', value)])}/>\n"
        for name, value in (
            ("verdict", found.verdict.value),
            ("baseline", found.baseline or "none"),
            ("run_id", found.run_id),
        )
    )
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuite{head}>\n'
        f" <properties>\n{properties} </properties>\n{cases}"
        f" <system-out>{_text(found.sentence)}</system-out>\n"
        "</testsuite>\n"
    )


def _case(each: RuleResult, label: str) -> str:
    head = _attributes([("classname", f"proctor.gate.{label}"), ("name", each.written.title)])
    inside = "\n".join(filter(None, (each.written.text, each.n, each.change, *each.details)))
    element = {
        GateVerdict.REGRESSION: "failure",
        GateVerdict.INFRASTRUCTURE: "error",
        GateVerdict.INCONCLUSIVE: "skipped",
    }.get(each.verdict)
    if element is None:
        return f" <testcase{head}><system-out>{_text(each.sentence)}</system-out></testcase>\n"
    kind = [] if element == "skipped" else [("type", each.verdict.value)]
    said = _attributes([("message", f"{each.verdict.value}: {each.sentence}"), *kind])
    return f" <testcase{head}><{element}{said}>{_text(inside)}</{element}></testcase>\n"


def _attributes(pairs: Iterable[tuple[str, str]]) -> str:
    return "".join(f" {name}={quoteattr(_clean(value))}" for name, value in pairs)


def _text(value: str) -> str:
    return escape(_clean(value))


def _clean(value: str) -> str:
    return _REFUSED.sub("�", value)


def workflow_commands(found: GateResult) -> list[str]:
    """One command per rule that does not hold, or a single notice."""
    bad = [each for each in found.results if each.verdict is not GateVerdict.PASS]
    if not bad:
        return [_command("notice", "Proctor gate: pass", found.sentence)]
    shown = [_annotation(each) for each in bad[: MOST_ANNOTATIONS - 1]]
    if len(bad) > len(shown):
        more = f"{len(bad) - len(shown)} more rules do not hold; the step summary lists all of them"
        shown.append(_command("warning", f"Proctor gate: {found.verdict.value}", more))
    return shown


def _annotation(each: RuleResult) -> str:
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
