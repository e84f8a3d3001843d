"""RunResult: one parameter point's result as one self-contained JSON document, for people and other tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from proctor.model.arms import arm_of, shown_options
from proctor.model.outcome import is_pass
from proctor.model.place import attempt_folder, safe_name, trial_folder
from proctor.model.plan import PlannedTrial
from proctor.model.record import LATER_FIELDS, SCHEMA_VERSION, AttemptRecord
from proctor.model.run import RunInfo
from proctor.runfolder.files import encode

RUN_KEYS = ("parallel", "seed")
SPEC_KEYS = ("iterations", "instrumentation", "isolation", "loops", "gc")
"""What a resolved spec says of how was measured: for the whole run, and for each experiment."""


def artifact_paths(trial: PlannedTrial, record: AttemptRecord) -> list[str]:
    """Where each artifact of an attempt is, inside the run folder; the same on export and on import.

    An experiment's lie together under `artifacts`. A task's attempt has a folder of its own, in which the
    artifact's name is its path.
    """
    if trial.kind == "task":
        base = attempt_folder(trial, record.number)
    else:
        base = trial_folder(trial) + ("/artifacts" if record.number <= 1 else f"/artifacts-{record.number}")
    part_name = _as_written if trial.kind == "task" else safe_name
    own = f"{trial_folder(trial)}/result.json"
    paths: list[str] = []
    for each in record.artifacts:
        inside = _inside(each.name, part_name)
        path = f"{base}/{inside}"
        if path in paths or path == own:
            last = inside.rpartition("/")[2]
            path = f"{base}/{safe_name(each.digest)[:12]}-{len(paths)}-{last}"
        paths.append(path)
    return paths


@lru_cache(maxsize=1024)
def _inside(name: str, part_name: Callable[[str], str]) -> str:
    """An artifact's path inside its folder: trials of a run mostly leave files of the same names."""
    return (
        "/".join([part_name(part) for part in name.split("/") if part not in {"", ".", ".."}]) or "artifact"
    )


def _as_written(part: str) -> str:
    """A task names its own files; only what no file system takes is changed."""
    return safe_name(part) if "\0" in part or len(part.encode("utf-8", "replace")) > 255 else part


def how_measured(resolved: Mapping[str, Any], body: int) -> dict[str, Any]:
    """How the trials of one body were measured: the part of a resolved spec that comparisons look at."""
    found = {name: resolved[name] for name in RUN_KEYS if name in resolved}
    bodies = resolved.get("experiments")
    if isinstance(bodies, list | tuple) and body < len(bodies) and isinstance(bodies[body], Mapping):
        kept = {name: bodies[body][name] for name in ("experiment", *SPEC_KEYS) if name in bodies[body]}
        found["experiments"] = [kept]
    return found


def run_result(
    info: RunInfo, trial: PlannedTrial, record: AttemptRecord, paths: Sequence[str]
) -> dict[str, Any]:
    """The document. The names from `name` to `status` are a contract with other tools."""
    attempt = record.to_mapping()
    return {
        "schema_version": SCHEMA_VERSION,
        "name": info.name,
        "run_id": info.id,
        "status": "success" if is_pass(record.outcome, record.reward) else "failed",
        "outcome": record.outcome.value,
        "blame": record.outcome.blame.value,
        "experiment" if trial.kind == "experiment" else "task": trial.subject,
        "parameters": trial.params,
        "seed": trial.seed,
        "key": trial.key,
        "index": trial.index,
        "attempt": record.number,
        "iterations": len(record.iterations),
        "reward": record.reward,
        "metrics": record.metrics,
        "iteration_metrics": record.iterations,
        "error": attempt["failure"],
        "warnings": record.notes,
        "started_at": record.started_at,
        "ended_at": record.ended_at,
        "phases_s": record.phases_s,
        "ledger": record.ledger,
        "usage": record.usage,
        **{name: value for name in LATER_FIELDS if (value := getattr(record, name))},
        "artifacts": [{**each, "path": path} for each, path in zip(attempt["artifacts"], paths, strict=True)],
        "agent": trial.agent,
        "model": trial.model,
        "agent_options": shown_options(arm_of(trial).options),
        "tags": info.tags,
        "notes": info.notes,
        "spec": how_measured(info.resolved, trial.body),
        "vcs": vcs(info.vcs),
        "environment": info.environment,
    }


def vcs(found: Mapping[str, Any]) -> dict[str, Any]:
    """What was checked out; the three names are always there."""
    return {"commit": None, "branch": None, "dirty": None, **found}


class ResultWriter:
    """Encodes RunResults of one run; the environment, alike in all of them, is encoded once."""

    def __init__(self, info: RunInfo) -> None:
        self.info = info
        self._environment = encode(info.environment)

    def encode(self, trial: PlannedTrial, record: AttemptRecord, paths: Sequence[str] | None = None) -> str:
        """The large parts on lines of their own, an iteration per line: readable, and fast to write.

        `paths` are those of the artifacts, where somebody has worked them out already.
        """
        paths = artifact_paths(trial, record) if paths is None else paths
        document = run_result(self.info, trial, record, paths)
        rows, metrics = document.pop("iteration_metrics"), document.pop("metrics")
        document.pop("environment")
        listed = ",\n  ".join(map(encode, rows))
        return (
            f'{encode(document)[:-1]},\n "metrics": {encode(metrics)},\n'
            f' "iteration_metrics": [\n  {listed}\n ],\n'
            f' "environment": {self._environment}\n}}\n'
        )
