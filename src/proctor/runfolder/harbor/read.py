"""A Harbor job folder becomes a run: with outcomes that have a blame, comparable with any other."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from proctor.errors import UsageError
from proctor.model.canonical import canonical_json, digest
from proctor.model.place import safe_name
from proctor.model.plan import Plan, PlannedTrial, trial_key
from proctor.model.run import RunInfo, written_import
from proctor.model.trial import RunStatus
from proctor.runfolder.files import read_document
from proctor.runfolder.harbor.format import CONFIG, LOCK, RESULT, JobResult, TrialResult
from proctor.runfolder.harbor.record import Found, record_of
from proctor.runfolder.read import RunData, count_outcomes
from proctor.runfolder.read import TrialResult as Result
from proctor.runfolder.series import checked
from proctor.store.blobs import Blobs

SOURCE = "harbor"
"""The tag of an imported run, and where it says that it comes from."""

_THEIRS = {"n_total_trials", "job_name", "trial_name"}
"""Keys that tell a document of a job, or of one of its trials."""


@dataclass(frozen=True, slots=True)
class Job:
    """What the files of a job itself say."""

    path: Path
    result: JobResult
    config: Mapping[str, Any]
    lock: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The job's name, or that of its folder."""
        name = self.config.get("job_name")
        return name if isinstance(name, str) and name else self.path.resolve().name

    @property
    def version(self) -> str:
        """The version of Harbor that ran it; empty when unknown."""
        harbor = self.lock.get("harbor")
        version = harbor.get("version") if isinstance(harbor, Mapping) else None
        return version if isinstance(version, str) else ""


def is_job(path: Path) -> bool:
    """Whether a folder looks like a job of Harbor's, and not like a run of ours."""
    if (path / "manifest.json").exists():
        return False
    for name in (RESULT, CONFIG):
        if (path / name).is_file():
            with suppress(UsageError):
                if _THEIRS & read_document(path, name).keys():
                    return True
    return False


def read_job(path: Path, blobs: Blobs) -> RunData:
    """The run that a job folder means. Files of its trials are kept as blobs."""
    job = _job(path)
    found, lost = _trials(path)
    if not found:
        raise UsageError(f"{path}: a Harbor job in which no trial has ended: nothing to import")
    planned = _planned(found)
    trials = []
    for trial, each in zip(planned, found, strict=True):
        record = record_of(each, trial.key, blobs)
        trials.append(Result(trial, (record,), record))
    missing = max(job.result.n_total_trials - len(found), len(lost))
    warnings = (f"{missing} of {len(found) + missing} trials of the job have no result",) if missing else ()
    return RunData(_info(job, trials, cut_short=bool(missing)), tuple(trials), warnings=warnings)


def _job(path: Path) -> Job:
    documents = {
        name: read_document(path, name) if (path / name).is_file() else {} for name in (CONFIG, RESULT, LOCK)
    }
    if "trial_name" in documents[RESULT]:
        raise UsageError(
            f"{path}: one trial of a Harbor job; import the job's folder, {path.resolve().parent}"
        )
    result = checked(documents[RESULT], JobResult, str(path / RESULT))
    return Job(path, result, documents[CONFIG], documents[LOCK])


def _trials(path: Path) -> tuple[list[Found], list[Path]]:
    """The trials that ended, in the order in which they began, and the folders of those that did not."""
    found, lost = [], []
    for folder in sorted(path.iterdir()):
        if folder.is_symlink() or not folder.is_dir():
            continue
        if (folder / RESULT).is_file():
            result = checked(read_document(folder, RESULT), TrialResult, str(folder / RESULT))
            found.append(Found(folder=folder, result=result, task_digest=_task_digest(folder, result)))
        elif (folder / CONFIG).is_file():
            lost.append(folder)
    return sorted(found, key=lambda each: (each.started_at, each.folder.name)), lost


def _task_digest(folder: Path, result: TrialResult) -> str:
    """What the task was: Harbor's digest of its content, which its lock has and older versions did not."""
    if (folder / LOCK).is_file():
        task = read_document(folder, LOCK).get("task")
        known = task.get("digest") if isinstance(task, Mapping) else None
        if isinstance(known, str) and known:
            return known.removeprefix("sha256:")
    return result.task_checksum or digest(result.task_name)


def _planned(found: list[Found]) -> list[PlannedTrial]:
    """Trials of one task, agent and model are its rollouts, in the order in which they began."""
    rollouts: Counter[str] = Counter()
    planned = []
    for index, each in enumerate(found):
        info, overrides = each.result.agent_info, each.overrides
        same: dict[str, Any] = {
            "subject_digest": each.task_digest,
            "agent": info.name,
            "agent_version": info.version or None,
            "model": each.model,
            "overrides": overrides,
        }
        cell = canonical_json(same)
        rollout = rollouts[cell]
        rollouts[cell] += 1
        key = trial_key(**same, rollout=rollout)
        planned.append(
            PlannedTrial(
                key=key,
                index=index,
                kind="task",
                subject=each.result.task_name,
                body=0,
                rollout=rollout,
                path=_task_path(each.result),
                **same,
            )
        )
    return planned


def _task_path(result: TrialResult) -> str | None:
    path = result.task_id.get("path")
    return path if isinstance(path, str) else None


def _info(job: Job, trials: list[Result], *, cut_short: bool) -> RunInfo:
    records = [each.counted for each in trials if each.counted]
    started = _seconds(job.result.started_at) or min(each.started_at for each in records)
    finished = _seconds(job.result.finished_at) or max(each.ended_at for each in records)
    version = f" {job.version}" if job.version else ""
    counts = {outcome.value: number for outcome, number in count_outcomes(trials).items()}
    return RunInfo(
        id=_run_id(job, started, trials),
        name=safe_name(job.name),
        kind="task",
        status=RunStatus.CANCELLED if cut_short else RunStatus.DONE,
        created_at=started,
        started_at=started,
        finished_at=max(started, finished),
        seed=0,
        total=len(trials),
        done=len(trials),
        counts=counts,
        tags=(SOURCE,),
        notes=f"imported from Harbor{version}: job {job.result.id or job.name}, {job.path.resolve()}",
        spec=written_import(SOURCE, job.config),
        versions={"harbor": job.version} if job.version else {},
        plan_digest=Plan(trials=tuple(each.planned for each in trials)).digest,
    )


def _run_id(job: Job, started: float, trials: list[Result]) -> str:
    """The same for the same job, wherever it is imported."""
    known = job.result.id or canonical_json([each.planned.key for each in trials])
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(started))}-{digest(known)[:6]}"


def _seconds(at: datetime | None) -> float | None:
    return at.timestamp() if at else None
