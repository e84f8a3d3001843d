"""What a race is: who runs against whom, with which error, and which two rollouts make a pair. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from proctor.errors import UsageError
from proctor.model.plan import PlannedTrial
from proctor.model.run import RunInfo
from proctor.quantity import number

ERROR = 0.05
MARGIN = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceDesign:
    """Fixed before the first rollout and stored with the run, so that whoever resumes it decides alike."""

    baseline: str
    candidate: str
    error: float = ERROR
    """Chance of calling a candidate worse that is not, over all looks together."""
    margin: float = MARGIN
    """The loss of score that "no worse" tolerates."""
    stop_when_no_worse: bool = False
    """Whether "no worse" ends the race early too."""
    stored_run: str = ""
    """The run whose rollouts are the baseline; empty when the baseline runs too."""
    stored: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Task digest → rewards of that run's scored rollouts, in its planned order."""

    def to_mapping(self) -> dict[str, Any]:
        """Plain data, for the run and for JSON."""
        return {**asdict(self), "stored": {name: list(rewards) for name, rewards in self.stored.items()}}


@dataclass(frozen=True, slots=True, kw_only=True)
class RacePair:
    """One rollout of each side on the same task. A stored baseline is known before the race begins."""

    task: str
    rollout: int
    candidate: str
    """The key of its trial."""
    baseline: str = ""
    known: float | None = None
    """The reward of a stored baseline."""


def design_of(info: RunInfo) -> RaceDesign:
    """The design of a stored race."""
    found = info.race
    stored = found.get("stored")
    if not found or not isinstance(stored, Mapping):
        raise UsageError(f"run {info.id} ({info.name}) is not a race; 'proctor race' makes one")
    return RaceDesign(
        baseline=str(found.get("baseline", "")),
        candidate=str(found.get("candidate", "")),
        error=number(found.get("error")) or ERROR,
        margin=number(found.get("margin")) or 0.0,
        stop_when_no_worse=found.get("stop_when_no_worse") is True,
        stored_run=str(found.get("stored_run", "")),
        stored={str(task): tuple(map(float, rewards)) for task, rewards in stored.items()},
    )


def pairs_of(trials: Iterable[PlannedTrial], design: RaceDesign) -> tuple[RacePair, ...]:
    """The pairs in planned order: the order in which they are looked at, however their rollouts end."""
    if design.stored_run:
        return tuple(_against_stored(trials, design))
    first: dict[tuple[int, str, int], PlannedTrial] = {}
    pairs = []
    for trial in trials:
        place = (trial.body // 2, trial.subject_digest, trial.rollout)
        other = first.setdefault(place, trial)
        if other is trial:
            continue
        before, after = sorted((other, trial), key=lambda each: each.body)
        pairs.append(
            RacePair(task=trial.subject, rollout=trial.rollout, candidate=after.key, baseline=before.key)
        )
    return tuple(pairs)


def _against_stored(trials: Iterable[PlannedTrial], design: RaceDesign) -> Iterable[RacePair]:
    used: Counter[str] = Counter()
    for trial in trials:
        known = design.stored.get(trial.subject_digest, ())
        at = used[trial.subject_digest]
        used[trial.subject_digest] += 1
        if at < len(known):
            yield RacePair(task=trial.subject, rollout=trial.rollout, candidate=trial.key, known=known[at])
