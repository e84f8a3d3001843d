"""One attempt as `result.json` and `config.json` of a trial of Harbor's.

What Harbor has no field for (outcome, blame, run, key) is in `agent_result.metadata` under `proctor`; an
import reads it back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from proctor.model.arms import options_of
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.run import RunInfo
from proctor.quantity import number
from proctor.runfolder.harbor.format import (
    OWN,
    AgentInfo,
    AgentResult,
    ExceptionInfo,
    ModelInfo,
    StepResult,
    Timing,
    TrialResult,
    VerifierResult,
)
from proctor.runfolder.harbor.outcomes import exception_type

_NAME = 32
"""Harbor's own names of trials have no more of the task's."""
_PHASES = {
    "environment_setup": ("image", "start"),
    "agent_setup": ("setup",),
    "agent_execution": ("agent",),
}
_BACKENDS = frozenset({"docker", "podman"})


def trial_name(trial: PlannedTrial) -> str:
    """As Harbor names them, the task and seven letters; here they are the trial's number, which is unique."""
    task = trial.subject.rpartition("/")[2][:_NAME].rstrip("_-")
    return f"{task}__{trial.index:07d}"


def trial_result(info: RunInfo, trial: PlannedTrial, record: AttemptRecord, job: Path) -> TrialResult:
    """The attempt as Harbor would have written it, in a job at this place."""
    name = trial_name(trial)
    exception = _exception(record)
    timings = _timings(record)
    rewards = {
        name: value
        for name, value in (record.metrics.get("rewards") or {}).items()
        if number(value) is not None
    }
    if not rewards and record.reward is not None and exception is None:
        rewards = {"reward": record.reward}
    return TrialResult(
        id=str(uuid5(NAMESPACE_URL, f"{info.id}/{trial.key}")),
        task_name=trial.subject,
        trial_name=name,
        trial_uri=(job / name).as_uri(),
        task_id={"path": task_path(trial)},
        task_checksum=trial.subject_digest,
        config=_trial_config(info, trial, record, job),
        agent_info=AgentInfo(
            name=trial.agent or "", version=trial.agent_version or "unknown", model_info=_model(trial.model)
        ),
        agent_result=_agent_result(info, trial, record),
        verifier_result=VerifierResult(rewards=rewards) if rewards else None,
        exception_info=exception,
        started_at=moment(record.started_at),
        finished_at=moment(record.ended_at),
        step_results=_steps(record.metrics.get("steps")),
        environment_setup=timings["environment_setup"],
        agent_setup=timings["agent_setup"],
        agent_execution=timings["agent_execution"],
        verifier=timings["verifier"],
    )


def _agent_result(info: RunInfo, trial: PlannedTrial, record: AttemptRecord) -> AgentResult:
    usage = record.usage
    return AgentResult(
        n_input_tokens=_count(usage.get("prompt_tokens")),
        n_cache_tokens=_count(usage.get("cached_tokens")),
        n_output_tokens=_count(usage.get("completion_tokens")),
        cost_usd=number(usage.get("cost_usd")),
        metadata={
            OWN: {
                "run": info.id,
                "key": trial.key,
                "outcome": record.outcome.value,
                "blame": record.outcome.blame.value,
                "attempt": record.number,
                "suspect": record.suspect,
                "notes": list(record.notes),
            }
        },
    )


def _steps(steps: Any) -> tuple[StepResult, ...] | None:
    if not isinstance(steps, Mapping) or not steps:
        return None
    return tuple(
        StepResult(
            step_name=str(name),
            verifier_result=None if reward is None else VerifierResult(rewards={"reward": reward}),
        )
        for name, reward in steps.items()
    )


def _exception(record: AttemptRecord) -> ExceptionInfo | None:
    kind = exception_type(record.outcome)
    if not kind:
        return None
    failure = record.failure
    return ExceptionInfo(
        exception_type=kind,
        exception_message=failure.message if failure else record.outcome.value,
        exception_traceback=failure.traceback if failure else "",
        occurred_at=moment(record.ended_at),
    )


def _timings(record: AttemptRecord) -> dict[str, Timing | None]:
    """The phases one after the other from the start on: how long each took is known, not when it began."""
    phases, at = record.phases_s, record.started_at
    found: dict[str, Timing | None] = {}
    for name, parts in _PHASES.items():
        took = [phases[part] for part in parts if part in phases]
        found[name] = _timing(at, math.fsum(took)) if took else None
        at += math.fsum(took)
    at += phases.get("collect", 0.0)
    found["verifier"] = _timing(at, phases["verify"]) if "verify" in phases else None
    return found


def _timing(at: float, took_s: float) -> Timing:
    return Timing(started_at=moment(at), finished_at=moment(at + took_s))


def _trial_config(info: RunInfo, trial: PlannedTrial, record: AttemptRecord, job: Path) -> dict[str, Any]:
    return {
        "task": {"path": task_path(trial)},
        "trial_name": trial_name(trial),
        "trials_dir": str(job),
        "agent": agent_config(trial),
        "environment": _environment(record.ledger.get("backend")),
        "job_id": job_id(info),
    }


def agent_config(trial: PlannedTrial) -> dict[str, Any]:
    """Who works, as a job asks for it."""
    return {
        "name": trial.agent,
        **({"model_name": trial.model} if trial.model else {}),
        **({"kwargs": dict(options)} if (options := options_of(trial)) else {}),
    }


def _environment(backend: Any) -> dict[str, Any]:
    """Harbor's name for the sandbox, where it has one."""
    return {"type": backend} if backend in _BACKENDS else {"import_path": f"{OWN}:{backend or 'sandbox'}"}


def job_id(info: RunInfo) -> str:
    """The job's id: the same for every export of a run."""
    return str(uuid5(NAMESPACE_URL, info.id))


def task_path(trial: PlannedTrial) -> str:
    """Where the task is, or was."""
    return trial.path or trial.subject


def _model(model: str | None) -> ModelInfo | None:
    if not model:
        return None
    provider, _, name = model.partition("/")
    return ModelInfo(name=name, provider=provider) if name else ModelInfo(name=model)


def moment(at: float) -> datetime:
    """A time as Harbor tells it."""
    return datetime.fromtimestamp(at, UTC)


def _count(value: Any) -> int | None:
    amount = number(value)
    return None if amount is None else int(amount)
