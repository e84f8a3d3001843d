"""A run of rollouts as a job folder of Harbor's, which its own tools read: viewer, analysis, traces.

Harbor has one folder per trial and no attempts: the attempt that counts is written.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from proctor.agents import atif
from proctor.errors import UsageError
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.run import RunInfo
from proctor.quantity import number
from proctor.runfolder.files import make_folder, new_folder, write_atomic, write_json
from proctor.runfolder.harbor.format import (
    CONFIG,
    EXCEPTION,
    OWN,
    RESULT,
    TRAJECTORY,
    ExceptionInfo,
    TrialResult,
    harbor_path,
)
from proctor.runfolder.harbor.result import agent_config, job_id, moment, task_path, trial_result
from proctor.runfolder.read import RunData
from proctor.store.blobs import Blobs

_LEFT_OUT = frozenset({"state.tar"})
"""What only Proctor can use."""
_METRICS = frozenset(
    {
        "prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd", "prompt_token_ids",
        "completion_token_ids", "logprobs", "extra",
    }
)  # fmt: skip
"""What ATIF knows of a step; anything else goes to its `extra`."""
_TOTALS = ("n_input_tokens", "n_cache_tokens", "n_output_tokens", "cost_usd")


def write_job(data: RunData, blobs: Blobs, path: Path) -> int:
    """Write the job to a new folder; how many trials it has."""
    info = data.info
    if info.kind != "task":
        raise UsageError(f"run {info.id} measured experiments; a Harbor job is made of rollouts on tasks")
    with new_folder(path) as beside:
        final = path.resolve()
        made: list[TrialResult] = []
        trials: dict[str, PlannedTrial] = {}
        # From the source: of a large run the records in memory are not whole.
        for row in data.rows():
            if row.counts:
                result = trial_result(info, row.trial, row.record, final)
                _write_trial(beside / result.trial_name, result, row.record, blobs)
                # Only what the statistics need is kept.
                made.append(msgspec.structs.replace(result, config={}, exception_info=_brief(result)))
                trials[row.trial.key] = row.trial
        write_json(beside / CONFIG, _job_config(info, list(trials.values()), final))
        retries = sum(len(trial.attempts) - 1 for trial in data.finished)
        write_json(beside / RESULT, _job_result(info, made, len(data.trials), retries))
    return len(made)


def _brief(result: TrialResult) -> ExceptionInfo | None:
    found = result.exception_info
    return ExceptionInfo(exception_type=found.exception_type) if found else None


def _write_trial(folder: Path, result: TrialResult, record: AttemptRecord, blobs: Blobs) -> None:
    for name in ("agent", "verifier", "artifacts"):
        make_folder(folder / name)
    write_json(folder / CONFIG, result.config)
    write_json(folder / RESULT, msgspec.to_builtins(result))
    for artifact in record.artifacts:
        if artifact.name in _LEFT_OUT or artifact.name.startswith("harbor/"):
            continue
        target = folder / harbor_path(artifact.name)
        make_folder(target.parent)
        with blobs.open(artifact.digest) as source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
    _check_trajectory(folder / TRAJECTORY)
    rewards = result.verifier_result.rewards if result.verifier_result else None
    if rewards and not any((folder / "verifier" / name).exists() for name in ("reward.txt", "reward.json")):
        write_json(folder / "verifier" / "reward.json", rewards)
    if found := result.exception_info:
        text = found.exception_traceback or f"{found.exception_type}: {found.exception_message}\n"
        write_atomic(folder / EXCEPTION, text)


def _check_trajectory(path: Path) -> None:
    """Harbor refuses a trajectory without steps, and metrics that it does not know: those go to `extra`."""
    if not path.is_file():
        return
    try:
        document = dict(atif.read(path.read_bytes()).document)
    except atif.NotATIF:
        document = {}
    if not document.get("steps"):
        path.unlink()
        return
    changed = False
    for step in document["steps"]:
        metrics = step.get("metrics") or {}
        unknown = {name: value for name, value in metrics.items() if name not in _METRICS}
        if unknown:
            kept = {name: value for name, value in metrics.items() if name in _METRICS}
            step["metrics"] = {**kept, "extra": {**(kept.get("extra") or {}), **unknown}}
            changed = True
    if changed:
        write_json(path, document)


def _job_config(info: RunInfo, trials: Sequence[PlannedTrial], job: Path) -> dict[str, Any]:
    agents = {json.dumps(each, sort_keys=True): each for each in map(agent_config, trials)}
    return {
        "job_name": job.name,
        "jobs_dir": str(job.parent),
        "n_attempts": max((trial.rollout + 1 for trial in trials), default=1),
        "n_concurrent_trials": max(1, int(number(info.resolved.get("parallel")) or 1)),
        "environment": {"import_path": f"{OWN}:sandbox"},
        "agents": list(agents.values()),
        "tasks": [{"path": path} for path in dict.fromkeys(map(task_path, trials))],
    }


def _job_result(info: RunInfo, made: Sequence[TrialResult], planned: int, retries: int) -> dict[str, Any]:
    started = moment(info.started_at or info.created_at)
    finished = moment(info.finished_at) if info.finished_at else None
    return {
        "id": job_id(info),
        "started_at": started.isoformat(),
        "updated_at": (finished or started).isoformat(),
        "finished_at": finished.isoformat() if finished else None,
        "n_total_trials": planned,
        "stats": job_stats(made, planned, retries),
    }


def job_stats(trials: Sequence[TrialResult], planned: int, retries: int) -> dict[str, Any]:
    """Counts, and for each agent and model rewards and exceptions."""
    groups: dict[str, list[TrialResult]] = {}
    for trial in trials:
        groups.setdefault(_group(trial), []).append(trial)
    ended = [trial.exception_info.exception_type for trial in trials if trial.exception_info]
    return {
        "n_completed_trials": len(trials),
        "n_errored_trials": len(ended),
        "n_running_trials": 0,
        "n_pending_trials": planned - len(trials),
        "n_cancelled_trials": ended.count("CancelledError"),
        "n_retries": retries,
        "evals": {name: _evaluation(group) for name, group in groups.items()},
        **{name: _total(trials, name) for name in _TOTALS},
    }


def _group(trial: TrialResult) -> str:
    model = trial.agent_info.model_info
    parts = (trial.agent_info.name, model.name if model else None, trial.source or "adhoc")
    return "__".join(part for part in parts if part)


def _evaluation(trials: Sequence[TrialResult]) -> dict[str, Any]:
    rewards = [_rewards(trial) for trial in trials]
    by_reward: dict[str, dict[str, list[str]]] = {}
    exceptions: dict[str, list[str]] = {}
    for trial, found in zip(trials, rewards, strict=True):
        for name, value in (found or {}).items():
            by_reward.setdefault(name, {}).setdefault(str(value), []).append(trial.trial_name)
        if trial.exception_info:
            exceptions.setdefault(trial.exception_info.exception_type, []).append(trial.trial_name)
    return {
        "n_trials": sum(found is not None for found in rewards),
        "n_errors": sum(map(len, exceptions.values())),
        "metrics": [_means(rewards)],
        "pass_at_k": _pass_at_k(trials),
        "reward_stats": by_reward,
        "exception_stats": exceptions,
    }


def _rewards(trial: TrialResult) -> Mapping[str, float] | None:
    return trial.verifier_result.rewards if trial.verifier_result else None


def _means(rewards: Sequence[Mapping[str, float] | None]) -> dict[str, float]:
    """The mean of each reward, or of the only one, whatever its name."""
    names = sorted({name for found in rewards for name in found or {}})
    if len(names) <= 1:
        return {"mean": math.fsum(next(iter((found or {}).values()), 0) for found in rewards) / len(rewards)}
    return {name: math.fsum((found or {}).get(name, 0) for found in rewards) / len(rewards) for name in names}


def _pass_at_k(trials: Sequence[TrialResult]) -> dict[str, float]:
    """Only where each trial has one reward, 0 or 1; for 2, 4, 8 … and 5, 10, 15 … trials of each task."""
    tasks: dict[str, list[float]] = {}
    for trial in trials:
        values = list((_rewards(trial) or {"": 0.0}).values())
        if len(values) != 1 or values[0] not in (0, 1):
            return {}
        tasks.setdefault(trial.task_name, []).append(values[0])
    fewest = min(map(len, tasks.values()), default=0)
    chosen = sorted({2**power for power in range(1, fewest.bit_length())} | {*range(5, fewest + 1, 5)})
    return {
        str(k): math.fsum(_chance(len(found), int(sum(found)), k) for found in tasks.values()) / len(tasks)
        for k in chosen
    }


def _chance(trials: int, passed: int, k: int) -> float:
    """That one of k passes, drawn without replacement."""
    return 1.0 - math.comb(trials - passed, k) / math.comb(trials, k)


def _total(trials: Sequence[TrialResult], name: str) -> float | int | None:
    known = [value for each in trials if (value := getattr(each.agent_result, name, None)) is not None]
    return sum(known) if known else None
