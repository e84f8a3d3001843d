"""The documented files of a rollout folder, beside those of every run folder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from proctor.model.place import attempt_folder, safe_name
from proctor.render.rollouts import markdown, trial_files
from proctor.runfolder.files import encode, make_folder, read_document, write_atomic, write_json
from proctor.runfolder.read import RunData
from proctor.verdicts.rollouts.document import task_results, trial_row


def write(data: RunData, folder: Path) -> None:
    """The reporter: nothing for experiments."""
    if data.info.kind != "task":
        return
    trial_files.write(data, folder)
    write_run(data, folder)


def write_run(data: RunData, folder: Path) -> None:
    """The files about the whole run; for tasks only."""
    make_folder(folder / "task_results")
    for row, document in task_results(data).items():
        write_json(folder / "task_results" / f"{safe_name(row.label.replace('/', '__'))}.json", document)
    write_atomic(folder / "runs.txt", "".join(f"{each}\n" for each in run_dirs(data)))
    write_atomic(folder / "summary.md", markdown.summary(data))
    if (folder / "manifest.json").is_file():
        write_atomic(folder / "manifest.json", with_results(read_document(folder, "manifest.json"), data))


def run_dirs(data: RunData) -> list[str]:
    """The folder of each trial that has a result, relative to the rollout folder."""
    return [attempt_folder(trial.planned, trial.counted.number) for trial in data.trials if trial.counted]


def with_results(manifest: dict[str, Any], data: RunData) -> str:
    """The manifest as it was when the run began, and what came of it. A trial and a result per line."""
    info = data.info
    head = {name: value for name, value in manifest.items() if name not in {"plan", "results"}}
    head |= {
        "config": info.spec,
        "name": info.name,
        "created_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(info.created_at)),
    }
    plan = dict(manifest.get("plan") or {})
    trials = ",\n".join(f"  {encode(each)}" for each in plan.pop("trials", ()))
    results = ",\n".join(f"  {encode(trial_row(trial, info.id))}" for trial in data.trials)
    about = f"{encode(plan)[1:-1]}," if plan else ""
    return (
        f'{encode(head, indent=True)[:-2]},\n "plan": {{{about}"trials":[\n{trials}\n ]}},\n'
        f' "results": [\n{results}\n ]\n}}\n'
    )
