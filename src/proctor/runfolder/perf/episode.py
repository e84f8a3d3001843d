"""One episode as the artifacts know it: how it ended, where its time went, what it left."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from proctor.disk import read_small
from proctor.model.arms import Arm, arm_of, shown_options
from proctor.model.canonical import digest
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord

PHASES = ("queue", "start", "setup", "work", "verify", "teardown")
"""Where an episode's time goes, in order. All except `work` and `verify` is time of the harness itself."""
OWN = ("queue", "start", "setup", "teardown")
_PARTS = {"start": ("image", "start"), "setup": ("setup",), "work": ("agent",), "verify": ("verify",)}
_VARYING = frozenset({"timestamp", "session_id"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What a trajectory says of an episode, and a digest of all of it but the clock."""

    entries: int = 0
    steps: int = 0
    """Actions of the agent; messages to it are not steps."""
    tool_calls: int = 0
    prompt_bytes: int = 0
    completion_bytes: int = 0
    tokens_used: int = 0
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One episode."""

    index: int
    task_ref: str
    agent: str
    model: str | None
    options: str = "{}"
    """The agent's options as canonical JSON."""
    seed: int
    outcome: Outcome
    success: bool
    """Whether it ended as the scenario expects."""
    reason: str | None = None
    """Why it is a failure: its outcome and the kind of error."""
    error: str | None = None
    reward: float | None = None
    attempts: int = 1
    started_s: float
    """Since the run began."""
    wall_clock_s: float
    phases_s: Mapping[str, float] = field(default_factory=dict)
    artifact_bytes: int = 0
    trace: Trace = field(default_factory=Trace)
    ceilings: Mapping[str, int] = field(default_factory=dict)
    """The steps and tool calls that its task allows, where it says so."""

    @property
    def group(self) -> tuple[str, Arm]:
        """What its figures are gathered by."""
        return self.task_ref, Arm(self.agent, self.model, self.options)

    def row(self) -> dict[str, Any]:
        """One row of the series."""
        return {
            "episode": f"episode-{self.index + 1:05d}",
            "episode_index": self.index,
            "agent": self.agent,
            "model": self.model,
            "agent_options": shown_options(self.options),
            "task_ref": self.task_ref,
            "seed": self.seed,
            "success": self.success,
            "outcome": self.outcome.value,
            "reward": self.reward,
            "attempts": self.attempts,
            "wall_clock_s": round(self.wall_clock_s, 6),
            "error": self.error,
            "failure_reason": self.reason,
            "artifact_bytes": self.artifact_bytes,
            "llm_trace_entries": self.trace.entries,
            "prompt_bytes": self.trace.prompt_bytes,
            "completion_bytes": self.trace.completion_bytes,
            "tokens_used": self.trace.tokens_used,
            "steps": self.trace.steps,
            "tool_calls": self.trace.tool_calls,
            "trace_sha256": self.trace.digest,
            "started_s": round(self.started_s, 6),
            **{f"{name}_s": round(self.phases_s.get(name, 0.0), 6) for name in PHASES},
        }


def episode(
    trial: PlannedTrial,
    record: AttemptRecord,
    *,
    expect: Sequence[Outcome],
    began: float,
    trace: Trace,
    attempts: int = 1,
    artifact_bytes: int = 0,
    ceilings: Mapping[str, int] | None = None,
) -> Episode:
    """An episode from the attempt that counts. Its wait for a free worker is added by `with_queue`."""
    success = record.outcome in expect
    wall_s = max(0.0, record.ended_at - record.started_at)
    return Episode(
        index=trial.index,
        task_ref=f"{trial.subject}@{trial.subject_digest[:12]}",
        agent=str(trial.agent),
        model=trial.model,
        options=arm_of(trial).options,
        seed=trial.seed,
        outcome=record.outcome,
        success=success,
        reason=None if success else _reason(record),
        error=_error(record, expect, success=success),
        reward=record.reward,
        attempts=attempts,
        started_s=record.started_at - began,
        wall_clock_s=wall_s,
        phases_s=_phases(record.phases_s, wall_s),
        artifact_bytes=artifact_bytes,
        trace=trace,
        ceilings=ceilings or {},
    )


def with_queue(episodes: Iterable[Episode], workers: int) -> list[Episode]:
    """How long each episode waited although a worker was free: what handing out and writing down costs.

    Waiting for a worker that is busy with another episode is not in it; that is what was asked for.
    """
    free = [0.0] * workers
    found = []
    for each in sorted(episodes, key=lambda one: one.started_s):
        waited = max(0.0, each.started_s - heapq.heappop(free))
        heapq.heappush(free, each.started_s + each.wall_clock_s)
        found.append(replace(each, phases_s={**each.phases_s, "queue": waited}))
    return sorted(found, key=lambda one: one.index)


def _phases(measured: Mapping[str, float], wall_s: float) -> dict[str, float]:
    """The trial's own phases under the harness's names; what is left over is teardown."""
    found = {name: sum(measured.get(part, 0.0) for part in parts) for name, parts in _PARTS.items()}
    return {**found, "teardown": max(0.0, wall_s - sum(found.values()))}


def _reason(record: AttemptRecord) -> str:
    if record.outcome is Outcome.PASSED:
        return "passed unexpectedly"
    return f"{record.outcome.value}: {record.failure.type}" if record.failure else record.outcome.value


def _error(record: AttemptRecord, expect: Sequence[Outcome], *, success: bool) -> str | None:
    if record.failure:
        failure = record.failure
        return f"{failure.phase}: {failure.type}: {failure.message}"[:2000]
    if success:
        return None
    wanted = " or ".join(each.value for each in expect)
    reward = "" if record.reward is None else f" (reward {record.reward:g})"
    return f"ended as {record.outcome.value}{reward}, but {wanted} was expected"


def read_trace(file: Path, record: AttemptRecord) -> Trace:
    """The trace of an attempt from its trajectory; an empty one when it left none that can be read."""
    try:
        document = json.loads(read_small(file, 256 << 20))
        steps = [step for step in document["steps"] if isinstance(step, dict)]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return Trace(digest=digest([record.outcome.value, record.reward]))
    given = [str(step.get("message", "")) for step in steps if step.get("source") != "agent"]
    made: list[str] = []
    for step in steps:
        given += [str(each.get("content", "")) for each in _results(step)]
        if step.get("source") == "agent":
            made += [str(step.get("message", "")), str(step.get("reasoning_content", ""))]
            made += [json.dumps(call.get("arguments", {})) for call in step.get("tool_calls", ())]
    used = (record.usage.get(name, 0) for name in ("prompt_tokens", "completion_tokens"))
    return Trace(
        entries=len(steps),
        steps=sum(step.get("source") == "agent" for step in steps),
        tool_calls=sum(len(step.get("tool_calls", ())) for step in steps),
        prompt_bytes=_size(given),
        completion_bytes=_size(made),
        tokens_used=int(sum(used)),
        digest=trace_digest(steps, record),
    )


def trace_digest(steps: Sequence[Mapping[str, Any]], record: AttemptRecord) -> str:
    """The same for two episodes that did and saw the same and ended alike, whenever that was."""
    plain = [{name: value for name, value in step.items() if name not in _VARYING} for step in steps]
    return digest([plain, record.outcome.value, record.reward])


def _results(step: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    observation = step.get("observation")
    return observation.get("results", ()) if isinstance(observation, Mapping) else ()


def _size(texts: Iterable[str]) -> int:
    return sum(len(text.encode("utf-8", "replace")) for text in texts)
