"""The expanded list of trials, and the stable key of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from proctor.model.canonical import Count, Signed, digest
from proctor.model.secret import shown

MARKER = "PROCTOR_PERTURBATION"
"""The variable that tells disturbed trials from their siblings in keys and tables. No sandbox sees it."""


class PlannedTrial(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One planned execution. For an experiment one parameter point, for a task one rollout."""

    key: str
    index: Count
    kind: Literal["experiment", "task"]
    subject: str
    """The experiment's slug or the task's name."""
    subject_digest: str
    """What the subject was when planned: digest of the experiment's source or the task's content."""
    body: Count
    """Which of the spec's experiments or task entries this trial belongs to."""
    params: Mapping[str, Any] = msgspec.field(default_factory=dict)
    seed: Signed = 0
    agent: str | None = None
    agent_version: str | None = None
    model: str | None = None
    overrides: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """What the run changes about the task, environment variables among it."""
    rollout: Count = 0
    path: str | None = None
    """Where the task's folder is on this machine. Not part of the key."""

    @property
    def label(self) -> str:
        """A short name for people: what distinguishes this trial from its siblings."""
        if self.kind == "experiment":
            return point_label(self.subject, self.params)
        who = "/".join(part for part in (self.agent, self.model) if part)
        variables = self.overrides.get("environment_variables")
        check = variables.get(MARKER) if isinstance(variables, dict) else None
        return f"{self.subject} × {who}{f', {check}' if check else ''} #{self.rollout + 1}"


def point_label(subject: str, params: Mapping[str, Any]) -> str:
    """A parameter point's name for people."""
    inside = ", ".join([f"{name}={shown(value)}" for name, value in params.items()])
    return f"{subject}({inside})" if inside else subject


def trial_key(
    *,
    subject_digest: str,
    agent: str | None = None,
    agent_version: str | None = None,
    model: str | None = None,
    params: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    seed: int = 0,
    rollout: int = 0,
) -> str:
    """The trial's identity. The same on any machine; nothing else may enter it."""
    return digest(
        {
            "subject": subject_digest,
            "agent": agent,
            "agent_version": agent_version,
            "model": model,
            "params": dict(params or {}),
            "overrides": dict(overrides or {}),
            "seed": seed,
            "rollout": rollout,
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything one run will do, in order."""

    trials: tuple[PlannedTrial, ...]
    warnings: tuple[str, ...] = ()
    memory_bytes: Mapping[str, int] = field(default_factory=dict, compare=False)
    """What a task's own limit is, by its digest; for who hands out trials to machines."""
    cpus: Mapping[str, float] = field(default_factory=dict, compare=False)
    """The processors that a task itself asks for, by its digest; for the same."""

    better: Mapping[str, Mapping[str, str]] = field(default_factory=dict, compare=False)
    """What an experiment's class declares about its metrics, by its slug; for the record of the run."""

    @property
    def digest(self) -> str:
        """Changes when any trial does."""
        return digest([trial.key for trial in self.trials])

    def __len__(self) -> int:
        return len(self.trials)
