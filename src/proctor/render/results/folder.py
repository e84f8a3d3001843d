"""The files of a run folder that are made from its results: the report in each form, and rollouts' own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from proctor.model.document import Cell, Code, Document, Listed, Section
from proctor.model.place import attempt_folder, safe_name
from proctor.quantity import moment
from proctor.render.document.html import html
from proctor.render.document.markdown import markdown
from proctor.render.results import trial_files
from proctor.render.results.run import run_document
from proctor.runfolder.files import (
    decode,
    encode,
    listed,
    make_folder,
    read_document,
    write_atomic,
    write_json,
)
from proctor.runfolder.read import RunData
from proctor.verdicts.rollouts.document import task_results, trial_row

_SUMMARY = ("matrix", "score", "performance", "reasons", "suspects", "usage", "tasks", "resources")
"""Sections of `summary.md`, for a pull request or a chat."""
_PLAN = ' "plan": {'


def write_page(data: RunData, folder: Path) -> None:
    """Write `report.html`, and of a race `race.html`."""
    write_atomic(folder / "report.html", html(run_document(data)))
    if data.info.race:
        from proctor.render.results.race import race_document
        from proctor.verdicts.race.judge import judge_race

        write_atomic(folder / "race.html", html(race_document(judge_race(data), data.info)))


def write_markdown(data: RunData, folder: Path) -> None:
    """Write `report.md`, `README.md` and, of a sweep, `SWEEP_SUMMARY.md`."""
    write_atomic(folder / "report.md", markdown(run_document(data)))
    write_atomic(folder / "README.md", markdown(readme(data)))
    if data.info.kind == "experiment" and len(data.trials) > 1:
        from proctor.render.results.points import sweep_summary

        write_atomic(folder / "SWEEP_SUMMARY.md", markdown(sweep_summary(data)))


def write_rollouts(data: RunData, folder: Path) -> None:
    """The documented files of rollouts; nothing for experiments."""
    if data.info.kind == "task":
        trial_files.write(data, folder)
        write_run(data, folder)


def write_run(data: RunData, folder: Path) -> None:
    """The files about the whole run; for tasks only."""
    make_folder(folder / "task_results")
    for row, document in task_results(data):
        write_json(folder / "task_results" / f"{safe_name(row.label.replace('/', '__'))}.json", document)
    write_atomic(folder / "runs.txt", (f"{each}\n" for each in run_dirs(data)))
    write_atomic(folder / "summary.md", markdown(summary(data)))
    if (folder / "manifest.json").is_file():
        write_atomic(folder / "manifest.json", with_results(folder, data))


def summary(data: RunData) -> Document:
    """The report without what is seldom asked for."""
    report = run_document(data)
    sections = tuple(section for section in report.sections if section.name in _SUMMARY)
    return replace(report, sections=sections, links=(Cell(text="report.html", href="report.html"),))


def run_dirs(data: RunData) -> Iterator[str]:
    """The folder of each trial that has a result, relative to the rollout folder."""
    for trial in data.trials:
        if trial.counted:
            yield attempt_folder(trial.planned, trial.counted.number)


def with_results(folder: Path, data: RunData) -> Iterator[str]:
    """The manifest as it was when the run began, and what came of it. A trial and a result per line."""
    head, about, trials = _manifest(folder)
    info = data.info
    head |= {
        "config": info.spec,
        "name": info.name,
        "created_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(info.created_at)),
    }
    yield f'{encode(head, indent=True)[:-2]},\n{_PLAN}{about}"trials":[\n'
    yield from listed(trials)
    yield '\n ]},\n "results": [\n'
    yield from listed(encode(trial_row(trial, info.id)) for trial in data.trials)
    yield "\n ]\n}\n"


def _manifest(folder: Path) -> tuple[dict[str, Any], str, Iterator[str]]:
    """What is before the plan, what the plan says of itself, and its trials: one by one, if it is ours."""
    text = ""
    file = (folder / "manifest.json").open(errors="replace")
    for line in file:
        if line.startswith(_PLAN) and line.endswith('"trials":[\n'):
            head = decode(f"{text.rstrip().removesuffix(',')}}}".encode(), "manifest.json")
            return head, line.removeprefix(_PLAN).removesuffix('"trials":[\n'), _lines(file)
        text += line
    file.close()
    whole = read_document(folder, "manifest.json")
    head = {name: value for name, value in whole.items() if name not in {"plan", "results"}}
    plan = dict(whole.get("plan") or {})
    trials = list(map(encode, plan.pop("trials", ())))
    return head, f"{encode(plan)[1:-1]}," if plan else "", iter(trials)


def _lines(file: Any) -> Iterator[str]:
    with file:
        for line in file:
            if line.startswith(" ]"):
                return
            yield line.strip().removesuffix(",")


def readme(data: RunData) -> Document:
    """What the folder holds, for someone who finds it without knowing Proctor."""
    report, info = run_document(data), data.info
    sweep = info.kind == "experiment" and len(data.trials) > 1
    when = moment(info.started_at or info.created_at)
    files = (
        ("report.html", "open it in a browser; a single file, no network needed"),
        ("report.md", "the same without pictures"),
        *([("SWEEP_SUMMARY.md", "every parameter point in one table")] if sweep else []),
        ("manifest.json", "what was planned: spec, environment, version control, plan"),
        ("series.jsonl", "one JSON object per attempt, in the order they ended; all measurements"),
        ("metrics.json", "the aggregates of each trial"),
        ("summary.json", "the run in one page"),
        ("spec.json", "the spec with all defaults"),
        *([("summary.md", "scores, matrix and tasks")] if info.kind == "task" else []),
    )
    listed_ = [Cell(text=name, href=name, note=said) for name, said in files]
    places = _OF_ROLLOUTS if info.kind == "task" else _OF_POINTS
    again = "proctor run spec.json      # run it again\nproctor import .           # read it into a store"
    return replace(
        report,
        kind="folder",
        about=(("run", f"{info.kind} run {info.id}, {when}, {info.status.value}"),),
        warnings=(),
        sections=(
            Section(title="Files", blocks=(Listed(items=(*listed_, *places)),)),
            Section(title="Commands", blocks=(Code(text=again),)),
        ),
        links=(),
    )


_OF_POINTS = (
    "trials/<subject>/<index>/result.json: each point's result; profiles and logs under artifacts/",
)
_OF_ROLLOUTS = (
    "task_results/<task>.json: one file per task",
    "runs.txt: the folder of each rollout, trials/<task>/<index>",
    "in each of these: evaluation_results.json, scoring_results.md, trajectory.json, logs/",
    "what changed in the workspace: artifacts/diff.patch",
)
