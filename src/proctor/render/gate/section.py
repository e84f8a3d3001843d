"""The gate's part of a run's report, from `gate.json` in the run's folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proctor.errors import UsageError
from proctor.model.document import Cell, Column, Section, Table, Text, Tone, outcome
from proctor.model.run import RunInfo
from proctor.runfolder.files import read_document
from proctor.verdicts.gate.verdict import GateVerdict

NAME = "gate.json"
_TONE: dict[str, Tone] = {GateVerdict.PASS.value: "good", GateVerdict.REGRESSION.value: "bad"}
MOST_RULES = 100


def gate_of(info: RunInfo) -> Section:
    """The verdict sentence and a row per rule; nothing when the run was not judged by a gate."""
    found = _stored(info)
    rules = found.get("rules")
    if not isinstance(rules, list) or not isinstance(found.get("sentence"), str):
        return Section()
    against = found.get("baseline")
    held = [Text(text=f"Compared with {against}.", quiet=True)] if against else []
    columns = (
        Column("verdict"),
        Column("rule", "prose"),
        Column("result", "prose"),
        Column("what would change it", "prose"),
    )
    table = Table(
        columns=columns,
        rows=tuple(_row(each) for each in rules[:MOST_RULES] if isinstance(each, Mapping)),
        total=len(rules),
        rest="gate.json lists all of them",
    )
    return Section(
        title="Gate", blocks=(Text(text=str(found["sentence"])), *held, table), name="gate", aside=True
    )


def _row(rule: Mapping[str, Any]) -> tuple[Cell | str, ...]:
    verdict = str(rule.get("verdict", ""))
    facts = "; ".join(str(rule[name]) for name in ("n", "margin") if rule.get(name))
    return (
        outcome(verdict, _TONE.get(verdict, "warn")),
        str(rule.get("name", "")),
        Cell(text=str(rule.get("sentence", "")), note=facts),
        str(rule.get("what_would_change_it") or "–"),
    )


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
