"""The statistics in the `result.json` of a job, calculated as Harbor does: a trial without reward is a 0."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from proctor.runfolder.harbor.format import TrialResult

_TOTALS = ("n_input_tokens", "n_cache_tokens", "n_output_tokens", "cost_usd")


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
