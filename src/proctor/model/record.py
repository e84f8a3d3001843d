"""What is kept of an attempt: one row of `series.jsonl`, one row of the store; and its scores by rubric."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict

from proctor.model.canonical import Count, Number
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.quantity import number

SCHEMA_VERSION = 1
WORK = ("agent", "verify")
"""The phases that are a rollout's duration; image, queue, start and the others are the harness's."""
UNKNOWN_COST = "unknown_cost"
"""In the use of models: how many calls cost what nobody knows."""
LATER_FIELDS = ("image", "system_changes", "suspect")
"""Left out where they are empty: rows of earlier versions have none, and must be written as they were."""
_LASTING = "Lasting"
_SENTENCES = frozenset(
    {
        *("AgentFailed", "ImageError", "ProviderError", "SandboxError", "TaskError"),
        *("Cancelled", "Inconclusive", "ProgramFailed", "ReferenceFailed"),
    }
)
QUANTITIES = {"time": "time_s", "cpu": "cpu_s", "memory": "memory_bytes", "custom": "custom"}
"""Metric → the name by which its values are shown in their unit."""


class Failure(Struct, frozen=True, kw_only=True, gc=False):
    """What went wrong, and in which phase."""

    phase: str
    """setup, execute_once, teardown, image, start, agent, verify, collect, stop …"""
    type: str
    message: str
    traceback: str = ""

    @classmethod
    def lasting_type(cls, name: str) -> str:
        """The type of a failure that trying again cannot mend, from the name of its error."""
        return name if name.startswith(_LASTING) else f"{_LASTING}{name}"

    @property
    def lasting(self) -> bool:
        """Whether trying again cannot help: then no policy retries it."""
        return self.type.startswith(_LASTING)

    @property
    def in_words(self) -> str:
        """One line, with the last one that a failing command printed; of a surprise also phase and type."""
        first, *rest = self.message.strip().split("\n")
        printed = [line[4:].strip() for line in rest if line.startswith("  | ") and line[4:].strip()]
        if printed:
            first = f"{first}: {printed[-1]}"
        if self.type.removeprefix(_LASTING) in _SENTENCES and first:
            return first
        return ": ".join(part for part in (self.phase, self.type, first) if part)


class Artifact(Struct, frozen=True, kw_only=True, gc=False):
    """A file that an attempt left, addressed by content."""

    name: str
    digest: str
    size_bytes: Count
    media_type: str = "application/octet-stream"


class AttemptRecord(Struct, frozen=True, kw_only=True, gc=False):
    """One try at a trial, whole. `counts` is decided by the store: one attempt per trial has it."""

    key: str
    number: Count
    outcome: Outcome
    started_at: Number
    ended_at: Number
    reward: Number | None = None
    failure: Failure | None = None
    phases_s: Mapping[str, Number] = field(default_factory=dict)
    """Duration of each phase: queue, image, start, setup, work, agent, verify, collect, teardown, stop."""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """Aggregates: `duration_s` and whatever the experiment or verifier reported."""
    iterations: tuple[Mapping[str, Any], ...] = ()
    """Experiments: one row per measured iteration."""
    ledger: Mapping[str, Any] = field(default_factory=dict)
    """Resources: peak memory, CPU, throttling, OOM kills, I/O; which limits and which network were asked for
    (`limits`), and how each limit was enforced (`enforced`)."""
    usage: Mapping[str, Any] = field(default_factory=dict)
    """Model use: prompt_tokens, completion_tokens, cost_usd, requests, tool_calls, steps."""
    artifacts: tuple[Artifact, ...] = ()
    notes: tuple[str, ...] = ()
    """Warnings a reader of the number needs: contended, throttled, host-root, unenforced limits."""
    worker: str = ""
    image: Mapping[str, Any] = field(default_factory=dict)
    """Rollouts, what the sandbox's root was made from: `name` and `digest` of the image where there is one,
    `host` whether it was this machine's own system, `root` the digest of the root itself. Empty when unknown.
    """
    system_changes: Mapping[str, Any] = field(default_factory=dict)
    """Rollouts, what the agent changed outside its own folders: `count`, `first` (the first of them) and
    `judged_again` (`files`, `rewards`, `reason`) where a pass was judged a second time. Empty: nothing."""
    suspect: bool = False
    """Whether a pass rested on changed system files, or could not be confirmed without them."""

    @property
    def took_s(self) -> float | None:
        """How long it took: of a rollout agent and verifier, of anything else from start to end.

        None when a rollout ended before its agent could begin.
        """
        phases = self.phases_s
        if not phases:
            return self.ended_at - self.started_at
        if (worked := work_s(phases)) is not None:
            return worked
        return None if "image" in phases else self.ended_at - self.started_at

    def to_mapping(self) -> dict[str, Any]:
        """Plain data that shares what the record holds, with the blame spelt out."""
        found = asdict(self) | {"outcome": self.outcome.value, "blame": self.outcome.blame.value}
        found["failure"] = asdict(self.failure) if self.failure else None
        found["artifacts"] = [asdict(each) for each in self.artifacts]
        for name in LATER_FIELDS:
            if not found[name]:
                del found[name]
        return found


class AttemptRow(Struct, frozen=True, gc=False):
    """One attempt, whether it is the one that counts, and the trial it belongs to."""

    record: AttemptRecord
    counts: bool
    trial: PlannedTrial


def work_s(phases_s: Mapping[str, Any]) -> float | None:
    """The seconds of agent and verifier; None when neither began."""
    found = [phases_s[name] for name in WORK if isinstance(phases_s.get(name), int | float)]
    return sum(found) if found else None


class Round(Struct, frozen=True, kw_only=True, gc=False):
    """One execution of the reference and one of the program, on the same input."""

    number: int
    """0 is the warm-up, which does not count."""
    seed: int
    order: str
    """Who ran first: `rp` or `pr`."""
    reference: float
    program: float

    def to_mapping(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def performance_of(record: AttemptRecord) -> dict[str, Any]:
    """What the record says of the program's performance; empty for a task without."""
    found = record.metrics.get("performance")
    return dict(found) if isinstance(found, Mapping) else {}


def gain_of(record: AttemptRecord) -> float | None:
    """The logarithm of how many times better the program was; None where no reward followed from it."""
    found = performance_of(record)
    ratio = number(found.get("ratio"))
    return math.log(ratio) if ratio and ratio > 0 and found.get("verdict") in {"settled", "erratic"} else None


def error_of(record: AttemptRecord) -> float | None:
    """Half of the interval of that, as a logarithm."""
    found = performance_of(record).get("interval")
    low, high = (number(each) for each in found) if isinstance(found, list | tuple) else (None, None)
    return math.log(high / low) / 2 if low and high and 0 < low <= high else None


def rubrics_of(record: AttemptRecord) -> list[dict[str, Any]]:
    """The rubrics of an attempt; none where there are neither rubrics with tests nor a judge."""
    found = record.metrics.get("rubrics")
    return [dict(each) for each in found if isinstance(each, dict)] if isinstance(found, list | tuple) else []


def judge_of(record: AttemptRecord) -> dict[str, Any]:
    """What the record says of its judge; empty where there was none."""
    found = record.metrics.get("judge")
    return dict(found) if isinstance(found, Mapping) else {}


def weighted(rubrics: Sequence[Mapping[str, Any]], column: str) -> float | None:
    """The weighted mean over the rubrics that have this score. The untested leave the denominator."""
    known = [
        (weight, score)
        for each in rubrics
        if (score := number(each.get(column))) is not None and (weight := number(each.get("weight")))
    ]
    total = sum(weight for weight, _ in known)
    return sum(weight * score for weight, score in known) / total if total else None


def unit_score(record: AttemptRecord) -> float | None:
    """What the tests say of an attempt, whoever decides its reward."""
    judge = judge_of(record)
    if judge.get("decides"):
        return number(judge.get("unit_score"))
    tested = weighted(rubrics_of(record), "unit_score")
    return record.reward if tested is None else tested


def judge_score(record: AttemptRecord) -> float | None:
    """What the judge says of an attempt; None where none did."""
    return weighted(rubrics_of(record), "judge_score")
