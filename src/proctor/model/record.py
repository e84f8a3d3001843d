"""What is kept of an attempt: one row of `series.jsonl`, one row of the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from proctor.model.outcome import Outcome
from proctor.model.quick import quick

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What went wrong, and in which phase."""

    phase: str
    """setup, execute_once, teardown, image, start, agent, verify, collect, stop …"""
    type: str
    message: str
    traceback: str = ""


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A file that an attempt left, addressed by content."""

    name: str
    digest: str
    size_bytes: int
    media_type: str = "application/octet-stream"


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One try at a trial, whole. `counts` is decided by the store: one attempt per trial has it."""

    key: str
    number: int
    outcome: Outcome
    started_at: float
    ended_at: float
    reward: float | None = None
    failure: Failure | None = None
    phases_s: Mapping[str, float] = field(default_factory=dict)
    """Duration of each phase: queue, image, start, setup, work, agent, verify, collect, teardown, stop."""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """Aggregates: `duration_s` and whatever the experiment or verifier reported."""
    iterations: Sequence[Mapping[str, Any]] = ()
    """Experiments: one row per measured iteration."""
    ledger: Mapping[str, Any] = field(default_factory=dict)
    """Resources: peak memory, CPU, throttling, OOM kills, I/O; which limits were enforced."""
    usage: Mapping[str, Any] = field(default_factory=dict)
    """Model use: prompt_tokens, completion_tokens, cost_usd, requests, tool_calls, steps."""
    artifacts: Sequence[Artifact] = ()
    notes: tuple[str, ...] = ()
    """Warnings a reader of the number needs: contended, throttled, host-root, unenforced limits."""
    worker: str = ""

    def to_mapping(self) -> dict[str, Any]:
        """Plain data, with the blame spelt out."""
        return {**asdict(self), "outcome": self.outcome.value, "blame": self.outcome.blame.value}

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> AttemptRecord:
        """The inverse of `to_mapping`; fields of a later schema are ignored."""
        known = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        known["outcome"] = Outcome(known["outcome"])
        if known.get("failure"):
            known["failure"] = Failure(**known["failure"])
        known["artifacts"] = tuple(Artifact(**each) for each in known.get("artifacts", ()))
        known["iterations"] = tuple(known.get("iterations", ()))
        known["notes"] = tuple(known.get("notes", ()))
        return cls(**known)
