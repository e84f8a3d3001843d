"""What rollouts leave to look into: errors in their own words, suspect passes, and the images they ran on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from proctor.model.outcome import ENVIRONMENT_BROKEN, Blame, Outcome
from proctor.model.record import AttemptRecord, Failure
from proctor.quantity import number
from proctor.runfolder.read import RunData, TrialResult
from proctor.verdicts.run.survey import once

IDLE, ORACLE = "nop", "oracle"
"""Agents of which a failure is expected, and of which it means that the task is wrong."""
MOST_REASONS = 5
MOST_SUSPECTS = 300
MOST_FILES = 20
HOST = "this machine's own system (host root)"


@dataclass(frozen=True, slots=True)
class Suspect:
    """A pass that rested on changed system files, or could not be confirmed."""

    label: str
    first: float | None
    second: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class UsedImage:
    """One image, or the host's own system, and who ran on it."""

    name: str
    digest: str
    """What a registry or a build calls it; empty when only the root is known."""
    host: bool
    root: str
    tasks: tuple[str, ...]
    trials: int

    @property
    def title(self) -> str:
        """For people."""
        return (
            HOST if self.host and not self.name else self.name or f"built here, root {self.root[:12] or '?'}"
        )

    def to_mapping(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "tasks": list(self.tasks)}


@dataclass(slots=True)
class Evidence:
    """What one pass over the rollouts finds."""

    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Task and cause: what could not be scored, what agents broke, what the oracle could not do."""
    suspects: list[Suspect] = field(default_factory=list)
    """The first of them, in plan order."""
    images: tuple[UsedImage, ...] = ()
    """In the order of their first trial; none for runs whose records do not tell."""
    worth_reading: tuple[int, str] | None = None
    """Index and name of the trial whose logs tell most: one that the oracle failed, else another agent, else
    an error."""


@once
def evidence(data: RunData) -> Evidence:
    """Look at every rollout, once."""
    found = Evidence()
    images: dict[tuple[str, str, bool, str], Counter[str]] = {}
    best: int | None = None
    for trial in data.trials:
        record, planned = trial.counted, trial.planned
        if record is None:
            continue
        if record.failure and _explains(trial, record.failure):
            found.reasons[planned.subject, record.failure.in_words] += 1
        if record.suspect and len(found.suspects) < MOST_SUSPECTS:
            found.suspects.append(Suspect(planned.label, *_rewards(record), _reason(record)))
        if record.image:
            images.setdefault(identity(record.image), Counter())[planned.subject] += 1
        rank = _rank(record.outcome, planned.agent)
        if rank is not None and (best is None or rank < best):
            best, found.worth_reading = rank, (planned.index, planned.label)
    found.images = tuple(
        UsedImage(*key, tasks=tuple(tasks), trials=tasks.total()) for key, tasks in images.items()
    )
    return found


def reasons(evidence: Evidence) -> list[str]:
    """A line per task and cause: the first few."""
    found = evidence.reasons
    shown = [
        f"{subject}{f' ({count} rollouts)' if count > 1 else ''}: {why}"
        for (subject, why), count in list(found.items())[:MOST_REASONS]
    ]
    more = len(found) - MOST_REASONS
    return [*shown, f"… and {more} more"] if more > 0 else shown


def _explains(trial: TrialResult, failure: Failure) -> bool:
    """Whether a failure says more than that an agent did not solve its task."""
    unscored = trial.outcome is not None and not trial.outcome.scored
    return unscored or trial.planned.agent == ORACLE or failure.type == ENVIRONMENT_BROKEN


def _rank(outcome: Outcome, agent: str | None) -> int | None:
    if outcome in {Outcome.PASSED, Outcome.CANCELLED, Outcome.SKIPPED}:
        return None
    if not outcome.scored:
        # Of others the message is all there is: nothing has run that could have left a log.
        return 2 if outcome.blame is Blame.TASK or outcome is Outcome.PROVIDER_ERROR else None
    if agent == IDLE:
        return None
    if agent == ORACLE:
        return None if outcome is Outcome.AGENT_ERROR else 0  # its reason is told
    return 1


def identity(image: Mapping[str, Any]) -> tuple[str, str, bool, str]:
    """Name, digest, whether it is the host's system, and the digest of the root, as far as recorded."""
    name, digest, root = (str(image.get(part) or "") for part in ("name", "digest", "root"))
    return name, digest, bool(image.get("host")), root


def changes_text(record: AttemptRecord) -> Iterable[str]:
    """What an attempt changed in its system, in lines for people."""
    changes = record.system_changes
    count, first = changes.get("count"), _texts(changes.get("first"))
    if not changes:
        return
    if count is None:
        yield "system files changed: more than can be listed"
    elif first:
        more = " …" if count > min(len(first), MOST_FILES) else ""
        yield f"system files changed: {count} ({', '.join(first[:MOST_FILES])}{more})"
    again = _again(record)
    if again:
        files = _texts(again.get("files"))
        result = "differs" if record.suspect else "is the same"
        more = " …" if (number(again.get("count")) or 0) > min(len(files), MOST_FILES) else ""
        yield f"judged again without these, and the reward {result}: {'; '.join(files[:MOST_FILES])}{more}"


def _rewards(record: AttemptRecord) -> tuple[float | None, float | None]:
    found = _again(record).get("rewards")
    first, second, *_ = [*found, None, None] if isinstance(found, list | tuple) else (None, None)
    return number(first), number(second)


def _reason(record: AttemptRecord) -> str:
    return str(_again(record).get("reason") or "")


def _again(record: AttemptRecord) -> Mapping[str, Any]:
    found = record.system_changes.get("judged_again")
    return found if isinstance(found, Mapping) else {}


def _texts(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list | tuple) else []
