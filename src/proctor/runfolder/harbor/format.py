"""Harbor's documents, as far as they are read and written here, and how its files are named in a run folder.

A reader ignores fields that are not here. Jobs tell local time without a zone, trials tell UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct, field

RESULT, CONFIG, LOCK = "result.json", "config.json", "lock.json"
TRAJECTORY = "agent/trajectory.json"
EXCEPTION = "exception.txt"
OWN = "proctor"
"""Where an export keeps what Harbor has no place for: a key of `metadata`, and a folder."""


class Timing(Struct, frozen=True, kw_only=True):
    """When a phase began and ended."""

    started_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def seconds(self) -> float | None:
        """How long it took; None when it did not end."""
        if self.started_at is None or self.finished_at is None:
            return None
        return max(0.0, self.finished_at.timestamp() - self.started_at.timestamp())


class ExceptionInfo(Struct, frozen=True, kw_only=True):
    """What ended a trial or a step before its time."""

    exception_type: str
    exception_message: str = ""
    exception_traceback: str = ""
    occurred_at: datetime | None = None


class AgentResult(Struct, frozen=True, kw_only=True):
    """What the agent used. Input tokens include cached ones; None is unknown."""

    n_input_tokens: int | None = None
    n_cache_tokens: int | None = None
    n_output_tokens: int | None = None
    cost_usd: float | None = None
    metadata: dict[str, Any] | None = None


class VerifierResult(Struct, frozen=True, kw_only=True):
    """What the tests said."""

    rewards: dict[str, float] | None = None


class ModelInfo(Struct, frozen=True, kw_only=True):
    """A model without and with its provider."""

    name: str
    provider: str | None = None


class AgentInfo(Struct, frozen=True, kw_only=True):
    """Who worked."""

    name: str
    version: str = ""
    model_info: ModelInfo | None = None


class StepResult(Struct, frozen=True, kw_only=True):
    """One step of a task with steps."""

    step_name: str
    agent_result: AgentResult | None = None
    verifier_result: VerifierResult | None = None
    exception_info: ExceptionInfo | None = None
    agent_execution: Timing | None = None
    verifier: Timing | None = None


class TrialResult(Struct, frozen=True, kw_only=True):
    """`result.json` of a trial."""

    id: str = ""
    task_name: str
    trial_name: str
    trial_uri: str = ""
    task_id: dict[str, Any] = field(default_factory=dict)
    source: str | None = None
    task_checksum: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    agent_info: AgentInfo
    agent_result: AgentResult | None = None
    verifier_result: VerifierResult | None = None
    exception_info: ExceptionInfo | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    environment_setup: Timing | None = None
    agent_setup: Timing | None = None
    agent_execution: Timing | None = None
    verifier: Timing | None = None
    step_results: tuple[StepResult, ...] | None = None


class JobResult(Struct, frozen=True, kw_only=True):
    """`result.json` of a job; its statistics are calculated again from the trials."""

    id: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    n_total_trials: int = 0


_PLACES: Mapping[str, str] = {
    TRAJECTORY: "trajectory.json",
    "verifier/test-stdout.txt": "logs/eval.log",
    "trial.log": "logs/trial.log",
    EXCEPTION: "logs/exception.txt",
}
_FOLDERS: Mapping[str, str] = {
    "verifier/": "verifier/",
    "agent/": "logs/",
    "artifacts/logs/artifacts/": "artifacts/files/",
    "artifacts/": "artifacts/",
    "steps/": "steps/",
    f"{OWN}/": "",
}
"""Folders in a trial of Harbor's → in an attempt of a run; the first that fits."""


def artifact_name(path: str, last_step: str = "") -> str:
    """What a file of a trial is called in a run folder; Harbor's own documents go to `harbor/`.

    Of a task with steps each step has such files: those of the last are the attempt's, as its state is.
    """
    if last_step:
        path = path.removeprefix(f"steps/{last_step}/")
    if path in _PLACES:
        return _PLACES[path]
    for theirs, ours in _FOLDERS.items():
        if path.startswith(theirs):
            return ours + path.removeprefix(theirs)
    return f"harbor/{path}"


def harbor_path(name: str) -> str:
    """Where an attempt's file is in a trial of Harbor's: the way back."""
    for theirs, ours in _PLACES.items():
        if name == ours:
            return theirs
    inside = "/".join(part for part in name.split("/") if part not in {"", ".", ".."})
    for theirs, ours in _FOLDERS.items():
        path = theirs + inside.removeprefix(ours)
        # An agent may call its own log like a file of Harbor's.
        if inside.startswith(ours) and path not in _PLACES:
            return path
    return f"{OWN}/{inside}"
