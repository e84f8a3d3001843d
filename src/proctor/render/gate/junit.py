"""A gate's result as JUnit XML: a case per rule, which every CI server can show."""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr

from proctor.verdicts.gate.verdict import GateResult, GateVerdict, RuleResult

_REFUSED = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML cannot hold even when escaped."""


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
