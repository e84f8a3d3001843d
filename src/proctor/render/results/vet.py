"""Task certificates as a document: the verdicts, how each check went, and the trials that show it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from proctor.model.document import (
    Cell,
    Column,
    Document,
    Entries,
    Entry,
    Section,
    Table,
    Tone,
    interval,
    outcome,
)
from proctor.model.place import safe_name
from proctor.model.vetting import Check
from proctor.quantity import MISSING
from proctor.verdicts.vet.certificate import PRECEDENCE, TaskCertificate, TaskVerdict, Tried
from proctor.verdicts.vet.words import headline, not_tried, sentence

MOST_EVIDENCE = 2
"""Trials that are named for each finding."""
_TONES: dict[TaskVerdict, Tone] = {TaskVerdict.SOUND: "good", TaskVerdict.UNSETTLED: "warn"}
_MUST = {Check.ORACLE: "must pass", Check.NOP: "must fail"}
_CAPTION = (
    f"Passed trials / all trials of each check; {MISSING}: not tried; (+n): lost to infrastructure. A check "
    "whose disturbance did not take effect counts as not tried. May fail: upper end of the 95 % interval of "
    "how often the author's own solution fails; more --rollouts narrow it."
)


def certificates(found: Sequence[TaskCertificate], *, run_id: str, folder: Path) -> Document:
    """All certificates of a run. `folder`: where the document will be; links are relative to it."""
    shown = sorted(found, key=lambda each: (PRECEDENCE.index(each.verdict), each.task))
    asides = [[line for line in (not_tried(each), *each.notes) if line] for each in shown]
    shared = [line for line in asides[0] if len(shown) > 1 and all(line in lines for lines in asides)]
    entries = tuple(
        _entry(each, [line for line in lines if line not in shared], folder)
        for each, lines in zip(shown, asides, strict=True)
    )
    verdict, note = shown[0].verdict, "; ".join(shared)
    return Document(
        kind="vet",
        title="Task certificates" if len(found) > 1 else f"Certificate of {found[0].task}",
        headline=headline(found),
        verdict=verdict.value if len(found) == 1 else "",
        tone=_tone(verdict),
        about=(("run", Cell(text=run_id, code=True)), *_made(shown[0])),
        sections=(
            Section(blocks=(_checks(shown),), name="checks"),
            Section(
                title="What was found",
                blocks=(Entries(entries=entries),),
                note=note,
                name="tasks",
            ),
        ),
        folder=str(folder),
        footer="Written by 'proctor vet' from the trials of this run.",
    )


def _made(found: TaskCertificate) -> Iterator[tuple[str, str]]:
    if found.backend:
        yield "sandbox", found.backend
    if found.versions:
        yield "versions", ", ".join(f"{name} {version}" for name, version in found.versions.items())


def _tone(verdict: TaskVerdict) -> Tone:
    return _TONES.get(verdict, "bad")


def _checks(shown: Sequence[TaskCertificate]) -> Table:
    """A row per task; only the checks that were tried with any."""
    checks = [check for check in Check if any(not each.tried[check].skipped for each in shown)]
    return Table(
        columns=(
            Column("task"),
            Column("verdict", "whole"),
            *(Column(_name(check), "number", note=_MUST.get(check, "oracle")) for check in checks),
            Column("may fail", "number", note="oracle, at most"),
        ),
        rows=tuple(
            (
                Cell(text=each.task, href=f"#{_anchor(each)}"),
                outcome(each.verdict.value, _tone(each.verdict)),
                *(_check(each.tried[check]) for check in checks),
                interval(MISSING, None, None)
                if each.flake_bound is None
                else interval(f"{100 * each.flake_bound:.0f} %", 0.0, each.flake_bound),
            )
            for each in shown
        ),
        caption=_CAPTION,
    )


def _check(tried: Tried) -> Cell:
    if tried.skipped:
        return Cell(text=MISSING)
    ended = tried.passed + tried.failed + tried.unjudged
    lost = f" (+{tried.errors + tried.missing})" if tried.errors or tried.missing else ""
    wrong = tried.passed + tried.unjudged if tried.check is Check.NOP else tried.failed
    tone: Tone = "warn" if not ended else "bad" if wrong else "good"
    return Cell(
        text=f"{tried.passed}/{ended}{lost}", value=tried.passed / ended if ended else None, tone=tone
    )


def _entry(found: TaskCertificate, asides: Sequence[str], folder: Path) -> Entry:
    return Entry(
        title=found.task,
        mark=outcome(found.verdict.value, _tone(found.verdict)),
        text=sentence(found),
        notes=tuple(asides),
        items=(*_evidence(found, folder), Cell(text=found.digest, code=True, note="content digest")),
        name=_anchor(found),
    )


def _evidence(found: TaskCertificate, folder: Path) -> Iterator[Cell]:
    """The trials that decided, with the way to their results."""
    told = set()
    for finding in found.findings:
        if finding.verdict is not found.verdict:
            continue
        for each in finding.evidence[:MOST_EVIDENCE]:
            if each.trial not in told:
                told.add(each.trial)
                file = Path(found.folder, each.folder, "evaluation_results.json")
                yield Cell(
                    text=f"trial {each.trial}: {each.outcome.replace('_', ' ')}",
                    href=os.path.relpath(file, folder),
                    note=": ".join(filter(None, (_name(finding.check), each.message))),
                )


def _name(check: Check) -> str:
    return check.value.replace("_", " ")


def _anchor(found: TaskCertificate) -> str:
    return safe_name(found.task.replace("/", "__"))
