"""The gate's part of the report page, from `gate.json` in the run's folder."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from proctor.errors import UsageError
from proctor.model.run import RunInfo
from proctor.render.html.text import prose
from proctor.render.html.view import View, section, table
from proctor.runfolder.files import read_document
from proctor.verdicts.gate.verdict import GateVerdict

NAME = "gate.json"
_TONE = {GateVerdict.PASS.value: "good", GateVerdict.REGRESSION.value: "bad"}
MOST_RULES = 100


def gate(view: View) -> str:
    """The verdict sentence and a row per rule; empty when the run was not judged by a gate."""
    return gate_of(view.data.info)


def gate_of(info: RunInfo) -> str:
    """The same, of a run without its trials."""
    found = _stored(info)
    rules = found.get("rules")
    if not isinstance(rules, list) or not isinstance(found.get("sentence"), str):
        return ""
    rows = [_row(each) for each in rules[:MOST_RULES] if isinstance(each, Mapping)]
    against = found.get("baseline")
    held = f"<p class=note>Compared with {escape(str(against))}.</p>" if against else ""
    body = f"<p class=lead>{prose(str(found['sentence']))}</p>{held}"
    body += table(["verdict", "rule", "result", "what would change it"], rows)
    return section("Gate", body, name="gate")


def _row(rule: Mapping[str, Any]) -> list[str]:
    verdict = str(rule.get("verdict", ""))
    tone = _TONE.get(verdict, "warn")
    facts = "; ".join(str(rule[name]) for name in ("n", "margin") if rule.get(name))
    result = prose(str(rule.get("sentence", ""))) + (f" <small>{escape(facts)}</small>" if facts else "")
    return [
        f'<span class="badge {tone}">{escape(verdict)}</span>',
        escape(str(rule.get("name", ""))),
        result,
        prose(str(rule.get("what_would_change_it") or "–")),
    ]


def _stored(info: RunInfo) -> Mapping[str, Any]:
    """Only of this very run: a folder that was copied over keeps its old verdict to itself."""
    folder = info.folder
    if not folder or not (Path(folder) / NAME).is_file():
        return {}
    try:
        found = read_document(Path(folder), NAME)
    except UsageError:
        return {}
    return found if found.get("run_id") == info.id else {}
