"""What is kept of an attempt: one row of `series.jsonl`, one row of the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict

from proctor.model.canonical import Count, Number
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial

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
