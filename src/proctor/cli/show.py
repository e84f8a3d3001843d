"""`proctor show`: one run: its status, results, environment and warnings."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from proctor.errors import Exit
from proctor.quantity import duration

if TYPE_CHECKING:
    from proctor.model.document import Block, Cell, Document, Section
    from proctor.model.record import AttemptRow
    from proctor.model.run import RunInfo
    from proctor.store.store import Store

FIRST_TRIALS = 20
_OTHER_METRICS = 3
MOST_LABELS = 5_000
"""Runs of more points show the whole name of each."""


@click.command("show")
@click.argument("ref", metavar="RUN")
@click.option(
    "--trials", "all_trials", is_flag=True, help=f"Show every trial, not only the first {FIRST_TRIALS}."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(ref: str, all_trials: bool, as_json: bool) -> int:
    """Show one RUN: an id, the beginning of one, a name, 'latest', 'latest~1' or a run folder."""
    from proctor.cli.remote import reading_settings
    from proctor.store.open import open_store

    with open_store(reading_settings().store_url, create=False) as store:
        info = store.run(ref)
        trials = store.attempts(info.id, counted_only=True)
        shown = trials if all_trials else islice(trials, FIRST_TRIALS)
        if as_json:
            _print_json(store, info, shown)
        else:
            from proctor.cli.table import print_document

            print_document(_document(store, info, shown, all_trials=all_trials))
    return Exit.OK


def _document(store: Store, info: RunInfo, rows: Iterator[AttemptRow], *, all_trials: bool) -> Document:
    from proctor.model.document import Document, Facts, Section, filled
    from proctor.model.run import HOST_ROOT

    facts = tuple(
        (name, _fact_text(name, value)) for name, value in info.environment.items() if value is not None
    )
    host = f"{HOST_ROOT}. " if info.host_root else ""
    return Document(
        kind=f"{info.kind} run",
        title=info.name,
        headline=f"{host}{info.name}  {info.id}",
        about=tuple(_about(store, info)),
        warnings=store.warnings(info.id),
        sections=filled(
            [
                Section(title="Environment", blocks=(Facts(pairs=facts),) if facts else ()),
                *_scores(store, info),
                _trials(store, info, rows, all_trials=all_trials),
            ]
        ),
        folder=info.folder,
    )


def _about(store: Store, info: RunInfo) -> Iterator[tuple[str, str]]:
    from proctor.cli.ls import date_text, outcomes_text, status_text, took_text

    states = store.state_counts(info.id)
    left = ", ".join(f"{states[each]} {each}" for each in ("pending", "leased", "running") if states[each])
    lines = {
        "status": status_text(info, stalled=info.id in store.stalled()),
        "waiting": _waiting(store, info),
        "trials": f"{info.done} of {info.total} done" + (f"; {left}" if left else ""),
        "outcomes": outcomes_text(info.counts),
        "started": f"{date_text(info.started_at or info.created_at)}, took {took_text(info)}",
        "seed": str(info.seed),
        "tags": ", ".join(info.tags),
        "notes": info.notes,
        "folder": info.folder,
        "artifacts": size_text(store.blob_bytes(info.id)),
        "vcs": _vcs_text(info.vcs),
        "versions": ", ".join(f"{name} {version}" for name, version in info.versions.items()),
    }
    yield from ((name, value) for name, value in lines.items() if value)


def _waiting(store: Store, info: RunInfo) -> str:
    """That no live worker can execute what is left of it."""
    return store.unattended([info.id]).get(info.id, "") if info.status == "running" else ""


def _scores(store: Store, info: RunInfo) -> list[Section]:
    """Matrix and score of rollouts, as their report has them."""
    if info.kind != "task" or not info.done:
        return []
    from proctor.render.results.rollouts import first
    from proctor.runfolder.read import RunData

    return first(RunData.from_store(store, info.id, brief=True))


def _trials(store: Store, info: RunInfo, rows: Iterator[AttemptRow], *, all_trials: bool) -> Section:
    from proctor.model.document import Column, Section, Table, Text
    from proctor.render.results.cells import outcome_of

    fixed, labels = _labels(store, info)
    notes: dict[str, None] = {}
    cells: list[tuple[Cell | str, ...]] = []
    for row in rows:
        record = row.record
        middle = _middle(record.metrics.get("duration_s"))
        again = f"  (attempt {record.number})" if record.number > 1 else ""
        more = "".join(f"  {text}" for text in (*_metrics(row), *_failure(row)))
        what = f"{labels.get(row.trial.index, row.trial.label)}{more}{again}"
        took = duration(record.took_s if middle is None else middle)
        cells.append((str(row.trial.index), outcome_of(record.outcome), took, what))
        notes.update(dict.fromkeys(record.notes))
    time_of = "took" if info.kind == "task" else "median"
    columns = (
        Column("trial", "number"),
        Column("outcome", "whole"),
        Column(time_of, "number"),
        Column("what", "prose"),
    )
    table = Table(
        columns=columns,
        rows=tuple(cells),
        total=len(cells) if all_trials else sum(info.counts.values()),
        rest=f"'proctor show {info.id} --trials' lists all",
    )
    said = [f"fixed: {fixed}"] if fixed else []
    noted = [Text(text=f"note: {each}", quiet=True) for each in sorted(notes)]
    blocks: tuple[Block, ...] = (
        (*(Text(text=each, quiet=True) for each in said), table, *noted) if cells else ()
    )
    return Section(title="Trials", blocks=blocks)


def _labels(store: Store, info: RunInfo) -> tuple[str, dict[int, str]]:
    """What all points share, and what sets each apart; rollouts keep their names."""
    from proctor.render.labels import apart

    if info.kind != "experiment" or info.total > MOST_LABELS:
        return "", {}
    planned = list(store.planned(info.id))
    shared, own = apart([trial.label for trial in planned])
    return shared, {trial.index: label for trial, label in zip(planned, own, strict=True)}


def _print_json(store: Store, info: RunInfo, rows: Iterator[AttemptRow]) -> None:
    """The trials are written as they are read: a large run is never whole in memory."""
    from msgspec.structs import asdict

    document = {
        **asdict(info),
        "status": info.status.value,
        "stalled": info.id in store.stalled(),
        "waiting": _waiting(store, info),
        "states": store.state_counts(info.id),
        "warnings": list(store.warnings(info.id)),
        "artifact_bytes": store.blob_bytes(info.id),
        **_scored(store, info),
    }
    sys.stdout.write(json.dumps(document, indent=2, default=str)[:-2] + ',\n  "trials": [')
    for number, row in enumerate(rows):
        one = {"index": row.trial.index, "label": row.trial.label, **row.record.to_mapping()}
        sys.stdout.write(",\n    " if number else "\n    ")
        sys.stdout.write(json.dumps(one, default=str))
    sys.stdout.write("\n  ]\n}\n")


def _scored(store: Store, info: RunInfo) -> dict[str, Any]:
    """The score of each arm, and how many rollouts passed, count and were lost."""
    if info.kind != "task":
        return {}
    from proctor.runfolder.read import RunData
    from proctor.verdicts.rollouts.document import overview
    from proctor.verdicts.rollouts.scores import rollouts

    run = rollouts(RunData.from_store(store, info.id, brief=True))
    counts = {name: sum(getattr(arm, name) for arm in run.arms) for name in ("passed", "scored", "errors")}
    return {**overview(run), **counts}


def _metrics(row: AttemptRow) -> Iterator[str]:
    if row.record.reward is not None:
        yield f"reward={row.record.reward:g}"
    others = ((name, _middle(value)) for name, value in row.record.metrics.items() if name != "duration_s")
    known = ((name, value) for name, value in others if value is not None)
    for name, value in islice(known, _OTHER_METRICS):
        yield f"{name}={value:.4g}"


def _failure(row: AttemptRow) -> Iterator[str]:
    if row.record.failure:
        yield row.record.failure.in_words


def _middle(value: Any) -> float | None:
    """The main number of a metric: the median of a described one, or the number itself."""
    if isinstance(value, Mapping):
        value = value.get("p50", value.get("mean"))
    return float(value) if isinstance(value, int | float) else None


def _vcs_text(vcs: Mapping[str, Any]) -> str:
    if not vcs.get("commit"):
        return ""
    dirty = ", with uncommitted changes" if vcs.get("dirty") else ""
    return f"{str(vcs['commit'])[:12]} on {vcs.get('branch') or 'no branch'}{dirty}"


def _fact_text(name: str, value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{len(value)} entries (--json shows them)" if len(value) > 4 else _pairs(value)
    if isinstance(value, list | tuple):
        return ", ".join(f"{each:g}" if isinstance(each, float) else str(each) for each in value)
    if name.endswith("_bytes") and isinstance(value, int | float):
        return size_text(int(value))
    return str(value)


def _pairs(value: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {each}" for name, each in value.items())


def size_text(size_bytes: int) -> str:
    """A size in the unit a person would choose."""
    size = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
