"""RunResults in the layout of older tools: twelve names, and the metrics of an iteration below `metrics`."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from proctor.errors import UsageError
from proctor.model.outcome import is_pass
from proctor.model.place import safe_name
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.run import RunInfo
from proctor.runfolder.files import make_folder, new_folder, write_json
from proctor.runfolder.read import RunData
from proctor.runfolder.result import artifact_paths, how_measured, vcs
from proctor.store.blobs import Blobs


def write_results(data: RunData, blobs: Blobs, path: Path) -> int:
    """One file per parameter point in a new folder, with its artifacts; how many points."""
    if data.info.kind != "experiment":
        raise UsageError(f"run {data.info.id} made rollouts; this layout is for experiments")
    written = 0
    with new_folder(path) as beside:
        for row in data.rows():
            if row.counts:
                paths = artifact_paths(row.trial, row.record)
                _copy_artifacts(beside, row.record, paths, blobs)
                name = f"{safe_name(row.trial.subject)}-{row.trial.index}.json"
                write_json(beside / name, older_result(data.info, row.trial, row.record, paths))
                written += 1
    return written


def older_result(
    info: RunInfo, trial: PlannedTrial, record: AttemptRecord, paths: Sequence[str]
) -> dict[str, Any]:
    """The document of one point; `proctor compare` reads it too."""
    return {
        "name": info.name,
        "run_id": info.id,
        "parameters": trial.params,
        "iterations": {"warmup": _warmup(info, trial), "measured": len(record.iterations)},
        "metrics": record.metrics,
        "iteration_metrics": [_row(number, row) for number, row in enumerate(record.iterations)],
        "environment": info.environment,
        "vcs": vcs(info.vcs),
        "artifacts": [
            {"name": each.name, "type": each.media_type, "path": path}
            for each, path in zip(record.artifacts, paths, strict=True)
        ],
        "tags": info.tags,
        "notes": info.notes,
        "status": "success" if is_pass(record.outcome, record.reward) else "failed",
    }


def _row(number: int, row: Mapping[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in row.items() if name not in {"iteration", "duration_s"}}
    return {"index": row.get("iteration", number), "duration_s": row.get("duration_s"), "metrics": rest}


def _warmup(info: RunInfo, trial: PlannedTrial) -> int | str:
    """As the spec has it: a number, or `auto`."""
    (body,) = how_measured(info.resolved, trial.body).get("experiments") or [{}]
    found: int | str = body.get("iterations", {}).get("warmup", 0)
    return found


def _copy_artifacts(folder: Path, record: AttemptRecord, paths: Sequence[str], blobs: Blobs) -> None:
    for artifact, path in zip(record.artifacts, paths, strict=True):
        make_folder((folder / path).parent)
        with blobs.open(artifact.digest) as source, (folder / path).open("wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
