"""A run as a document: what came out, what failed, where it was measured, and how to run it again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from proctor.model.document import (
    Block,
    Cell,
    Code,
    Column,
    Document,
    Entries,
    Entry,
    Facts,
    Fold,
    Section,
    Table,
    Text,
    filled,
)
from proctor.model.run import RunInfo
from proctor.quantity import moment, plural
from proctor.render.document import html
from proctor.render.results.cells import amount_cell, linked, outcome_cell, outcome_of, time_cell
from proctor.render.results.gate import gate_section
from proctor.runfolder.files import write_atomic
from proctor.runfolder.read import RunData, TrialResult
from proctor.runfolder.result import artifact_paths
from proctor.verdicts.run.story import headline, warnings
from proctor.verdicts.run.survey import MOST_FILES, Survey, once, survey

BRIEF = 5
"""Failures and attempts in a terminal."""
MOST_PAIRS = 40
"""Facts of a machine that are a list of names and values; what has more is shown as JSON."""


@once
def run_document(data: RunData) -> Document:
    """The whole report."""
    info, seen = data.info, survey(data)
    if data.info.kind == "task":
        from proctor.render.results.rollouts import sections

        first, later = sections(data)
    else:
        from proctor.render.results.points import results

        first, later = results(data), [_phases(seen)]
    version = info.versions.get("proctor", "")
    return Document(
        kind=f"{info.kind} run",
        title=info.name,
        headline=headline(data),
        about=tuple(_about(info, seen)),
        warnings=tuple(warnings(data)),
        sections=filled(
            [
                gate_section(info),
                *first,
                _failures(data, seen),
                _attempts(data, seen),
                *later,
                _files(data, seen),
                _environment(info),
                _again(info),
            ]
        ),
        folder=info.folder,
        links=tuple(_links(data)),
        footer=f"Written by Proctor {version} from series.jsonl beside this page.",
    )


def brief(data: RunData) -> Document:
    """What a terminal shows when a run has ended; a gate has its say after that."""
    if data.info.kind == "task":
        from proctor.render.results.rollouts import first

        sections = filled(first(data))
    else:
        sections = tuple(each for each in run_document(data).sections if each.name != "gate")
    return Document(
        kind=f"{data.info.kind} run",
        title=data.info.name,
        headline=headline(data),
        warnings=tuple(warnings(data)),
        sections=sections,
        folder=data.info.folder,
    )


def _about(info: RunInfo, seen: Survey) -> list[tuple[str, Cell | str]]:
    count = seen.total
    took = info.finished_at - info.started_at if info.finished_at and info.started_at else None
    commit = str(info.vcs.get("commit") or "")[:10]
    dirty = " with local changes" if info.vcs.get("dirty") else ""
    found: list[tuple[str, Cell | str]] = [
        ("run", Cell(text=info.id, code=True)),
        ("started", moment(info.started_at or info.created_at)),
        ("took", time_cell(took) if took is not None else info.status.value),
        ("trials", plural(count, "trial")),
        ("machine", _machine(info.environment)),
        ("commit", f"{commit}{dirty}" if commit else ""),
        ("seed", str(info.seed)),
        ("tags", ", ".join(info.tags)),
        ("notes", info.notes),
    ]
    return [(name, value) for name, value in found if value]


def _machine(environment: Mapping[str, Any]) -> str:
    cpu = environment.get("cpu_model") or environment.get("cpu") or environment.get("machine") or ""
    return str(cpu) if isinstance(cpu, str) else str(cpu.get("model", "")) if isinstance(cpu, dict) else ""


def _links(data: RunData) -> list[Cell]:
    names = ["report.md", "summary.md"] if data.info.kind == "task" else ["report.md"]
    if data.info.kind == "experiment" and len(data.trials) > 1:
        names.append("SWEEP_SUMMARY.md")
    if data.info.race:
        names.insert(0, "race.html")
    return [Cell(text=name, href=name) for name in (*names, "summary.json", "metrics.json", "README.md")]


def _phases(seen: Survey) -> Section:
    """Where the run's own time went, by phase, summed over every attempt."""
    pairs = tuple((name, time_cell(seconds)) for name, seconds in seen.phases_s.items())
    blocks = (Facts(pairs=pairs),) if pairs else ()
    return Section(title="Where the time went", blocks=blocks, name="phases", aside=True)


def _environment(info: RunInfo) -> Section:
    """Where it was measured."""
    facts: list[tuple[str, Cell | str]] = [(name, str(value)) for name, value in info.versions.items()]
    folds = []
    for name, value in info.environment.items():
        if not isinstance(value, dict | list):
            facts.append((name.removesuffix("_bytes").replace("_", " "), _fact(name, value)))
        elif value:
            folds.append(_fold(name.replace("_", " "), value))
    if info.vcs:
        folds.append(_fold("version control", dict(info.vcs)))
    blocks: tuple[Block, ...] = (*([Facts(pairs=tuple(facts))] if facts else []), *folds)
    return Section(title="Environment", blocks=blocks, name="environment", aside=True)


def _fold(title: str, value: dict[str, Any] | list[Any]) -> Fold:
    if isinstance(value, dict) and len(value) <= MOST_PAIRS:
        return Fold(title=title, blocks=(Facts(pairs=tuple((str(k), _plain(v)) for k, v in value.items())),))
    return Fold(title=title, blocks=(Code(text=_json(value)),))


def _again(info: RunInfo) -> Section:
    """The command that runs the same again, and the spec with all defaults."""
    commit = info.vcs.get("commit")
    checkout = [f"git checkout {shlex.quote(str(commit))}"] if commit else []
    blocks: list[Text | Code] = [
        Text(text="In this run's folder:"),
        Code(text="\n".join([*checkout, "proctor run spec.json"])),
    ]
    if info.vcs.get("dirty"):
        said = "The working tree had local changes that are not in the commit."
        blocks.append(Text(text=said, quiet=True))
    for title, spec in (("The spec with all defaults", info.resolved), ("The spec as written", info.spec)):
        blocks += [Code(text=_json(spec), title=title)] if spec else []
    return Section(title="Run it again", blocks=tuple(blocks), name="reproduce", aside=True)


def _plain(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return (
        json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, dict | list) else str(value)
    )


def _fact(name: str, value: Any) -> Cell | str:
    size = isinstance(value, int | float) and name.endswith("_bytes")
    return amount_cell(name, value) if size else _plain(value)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def _failures(data: RunData, seen: Survey) -> Section:
    """What went wrong, alike failures together."""
    entries = []
    for (_, phase, kind, message), alike in seen.failures.items():
        trials = [data.trials[place] for place in alike.first]
        labels = [seen.group_of(place).label(trial) for place, trial in zip(alike.first, trials, strict=True)]
        if len(seen.groups) > 1 and data.info.kind == "experiment":
            labels = [
                f"{seen.group_of(place).subject}: {each}"
                for place, each in zip(alike.first, labels, strict=True)
            ]
        items = [linked(label, trial) for label, trial in zip(labels, trials, strict=True)]
        more = alike.count - len(items)
        record = trials[0].counted
        traceback = record.failure.traceback if record and record.failure else ""
        entries.append(
            Entry(
                title=f"{kind}: {message}" if kind else "no details were recorded",
                mark=replace(outcome_cell(trials[0]), note=f"{alike.count}×"),
                text=f"in {phase}" if phase else "",
                items=(*items, *([f"and {more} more"] if more else [])),
                code=traceback,
                folded="Traceback",
            )
        )
    others = len(seen.other_failures)
    said = f"{others} other kinds of failure are in series.jsonl." if others else ""
    blocks = (Entries(entries=tuple(entries), brief=BRIEF),) if entries else ()
    aside = data.info.kind == "task"  # reasons and logs are named before
    return Section(title="Failures", blocks=blocks, note=said, name="failures", aside=aside)


def _attempts(data: RunData, seen: Survey) -> Section:
    """Attempts that do not count, and why: they are kept, never hidden."""
    rows = []
    for place, record in seen.uncounted:
        planned = data.trials[place].planned
        said = f"{record.failure.type}: {record.failure.message}" if record.failure else ""
        number = Cell(text=str(record.number), value=record.number)
        rows.append((planned.label, number, outcome_of(record.outcome), said))
    table = Table(
        columns=(Column("trial"), Column("attempt", "number"), Column("outcome"), Column("why", "prose")),
        rows=tuple(rows),
        brief=BRIEF,
        total=seen.attempts - seen.finished,
        rest="series.jsonl lists all of them",
    )
    return Section(title="Attempts that do not count", blocks=(table,) if rows else (), name="attempts")


def _files(data: RunData, seen: Survey) -> Section:
    """Profiles and other files, linked beside this page."""
    rows = [row for place in seen.files for row in _files_of(data.trials[place])]
    if not rows:
        return Section()
    columns = (Column("file"), Column("trial"), Column("size", "number"))
    table = Table(columns=columns, rows=tuple(rows[:MOST_FILES]))
    more = (Text(text="More files are under trials/.", quiet=True),) if len(rows) > MOST_FILES else ()
    fold = Fold(title="Profiles and other artifacts", blocks=(table, *more))
    return Section(title="Files", blocks=(fold,), name="files", aside=True)


def _files_of(trial: TrialResult) -> Iterator[tuple[Cell | str, ...]]:
    record = trial.counted
    if record is None:
        return
    for artifact, path in zip(record.artifacts, artifact_paths(trial.planned, record), strict=True):
        size = amount_cell("size_bytes", artifact.size_bytes)
        yield Cell(text=artifact.name, href=path), trial.planned.label, size


def put_gate(info: RunInfo, folder: Path) -> None:
    """Put the run's verdict into its page, if it has one; the rest of the page stays as it is."""
    path = folder / "report.html"
    if not path.is_file():
        return
    page = path.read_text(errors="replace")
    # What a user wrote is escaped, so these are our own.
    start = page.find('<section id="gate">')
    end = page.find("</section>", start) + len("</section>")
    if start < 0:
        start = end = page.find("</header>") + len("</header>")
    if start > len("</header>"):
        write_atomic(path, page[:start] + html.sections(filled([gate_section(info)])) + page[end:])
