"""The verdict of a race, from its results alone: the same from the store, from a folder and after a crash.

"Worse" comes from the sequential test and from nothing else. "No worse" is a promise about the size of a
loss, which that test does not make: it needs the interval of the difference to stay within the margin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from proctor.analysis.sequential import Look
from proctor.analysis.verdict import Verdict
from proctor.errors import Exit
from proctor.model.canonical import finite
from proctor.model.outcome import Outcome
from proctor.quantity import number
from proctor.runfolder.read import RunData
from proctor.verdicts.gate.verdict import EXIT_CODES, GateVerdict
from proctor.verdicts.race.design import RaceDesign, design_of, pairs_of
from proctor.verdicts.race.prefix import Prefix, prefix_for
from proctor.verdicts.race.promise import Judged, claim_of, compared

if TYPE_CHECKING:
    from proctor.analysis.compare import MissingBounds

SCHEMA_VERSION = 1
_PROMISES = {Verdict.BETTER, Verdict.SAME, Verdict.SMALL, Verdict.NO_WORSE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What was run of the fixed design, and what was not."""

    planned: int
    """Rollouts of the fixed design; those of a stored baseline are not among them."""
    ended: int
    cancelled: int
    """Begun and stopped when the verdict was reached."""
    unused: int
    """Ended, but behind the pair at which the race stopped: kept, and no evidence."""
    saved: int
    """Never begun."""
    saved_usd: float | None = None
    """About: at the mean cost of those that ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceResult:
    """A race, judged."""

    run_id: str
    design: RaceDesign
    verdict: GateVerdict
    reason: str
    """Why the verdict is not clearer: unfinished, lost or too_wide; empty when it is clear."""
    latest: Look
    looks: tuple[Look, ...]
    judged: tuple[Judged, ...]
    planned: int
    """Pairs of the fixed design."""
    void: int
    spending: Spending
    interval: tuple[float, float] | None = None
    """Of the difference of scores; only where the race did not stop at a regression."""
    level: float = 0.95
    """Of that interval: higher where the race could stop early for "no worse"."""
    claim: str = ""

    @property
    def exit_code(self) -> Exit:
        """As of a gate."""
        return EXIT_CODES[self.verdict]

    @property
    def stopped_early(self) -> bool:
        """Whether the verdict came before the last pair."""
        decided = self.verdict in {GateVerdict.REGRESSION, GateVerdict.PASS}
        return decided and len(self.judged) < self.planned

    @property
    def rewards(self) -> tuple[list[float], list[float]]:
        """Of the pairs that count, side by side."""
        counted = [each for each in self.judged if each.counts]
        return [each.baseline or 0.0 for each in counted], [each.candidate or 0.0 for each in counted]

    @property
    def difference(self) -> float | None:
        """Mean reward of the candidate minus that of the baseline, over the pairs that count."""
        before, after = self.rewards
        return (sum(after) - sum(before)) / len(before) if before else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data: what `proctor race --json` prints. Additions only, once published."""
        from proctor.verdicts.race.words import effect, sentence

        tally, (before, after) = self.latest.tally, self.rewards
        design = {name: value for name, value in self.design.to_mapping().items() if name != "stored"}
        found: dict[str, Any] = finite(
            {
                "schema_version": SCHEMA_VERSION,
                "run_id": self.run_id,
                **design,
                "verdict": self.verdict.value,
                "sentence": sentence(self),
                "reason": self.reason,
                "exit_code": int(self.exit_code),
                "pairs": {"planned": self.planned, "judged": len(self.judged), "void": self.void}
                | {"lost": tally.losses, "won": tally.wins, "agreed": tally.agreed},
                "e_value": self.latest.e_value,
                "p_value": self.latest.p_value,
                "boundary": 1 / self.design.error,
                "stopped_early": self.stopped_early,
                "passed": {"baseline": _passes(before), "candidate": _passes(after)},
                "difference": self.difference,
                "effect": effect(self),
                "interval": self.interval and list(self.interval),
                "level": self.level,
                "claim": self.claim,
                "rollouts": asdict(self.spending),
                "e_values": [each.e_value for each in self.looks],
            }
        )
        return found


def judge_race(data: RunData) -> RaceResult:
    """Judge a race that has ended, or what there is of one."""
    design = design_of(data.info)
    prefix = prefix_of(data, design)
    verdict, reason, bounds = _verdict(prefix, design)
    shown = bounds.excluded if bounds else None
    claim = claim_of(bounds) if bounds else None
    ends = shown.interval(claim) if shown and claim else None
    return RaceResult(
        run_id=data.info.id,
        design=design,
        verdict=verdict,
        reason=reason,
        latest=prefix.latest,
        looks=tuple(prefix.looks),
        judged=tuple(prefix.judged),
        planned=len(prefix.pairs),
        void=prefix.void,
        spending=_spending(data, prefix),
        interval=(ends.low, ends.high) if ends else None,
        level=ends.level if ends else 0.95,
        claim=claim.value if claim and ends else "",
    )


def prefix_of(data: RunData, design: RaceDesign) -> Prefix:
    """The test over everything that has ended."""
    prefix = prefix_for(pairs_of([trial.planned for trial in data.trials], design), design)
    for trial in data.trials:
        if trial.counted:
            prefix.tell(trial.counted)
    return prefix


def _verdict(prefix: Prefix, design: RaceDesign) -> tuple[GateVerdict, str, MissingBounds | None]:
    if prefix.is_worse:
        return GateVerdict.REGRESSION, "", None
    if not prefix.is_complete and not prefix.promised:
        return GateVerdict.INCONCLUSIVE, "unfinished", None
    bounds = compared(prefix.judged, prefix.promise.level(prefix.judged) if prefix.promise else 0.95)
    if bounds is None or bounds.excluded is None:
        return GateVerdict.INFRASTRUCTURE, "lost", None
    if prefix.promised if prefix.promise else bounds.judge(design.margin) in _PROMISES:
        return GateVerdict.PASS, "", bounds
    if prefix.void and bounds.excluded.judge(design.margin) in _PROMISES:
        return GateVerdict.INFRASTRUCTURE, "lost", bounds
    return GateVerdict.INCONCLUSIVE, "too_wide", bounds


def _spending(data: RunData, prefix: Prefix) -> Spending:
    used = {key for each in prefix.judged for key in (each.pair.candidate, each.pair.baseline)}
    ended = [trial for trial in data.trials if trial.outcome not in {None, Outcome.CANCELLED}]
    cancelled = sum(trial.outcome is Outcome.CANCELLED for trial in data.trials)
    costs = [number(each.usage.get("cost_usd")) for trial in ended for each in trial.attempts]
    known = [cost for cost in costs if cost is not None]
    saved = len(data.trials) - len(ended) - cancelled if prefix.is_decided else 0
    return Spending(
        planned=len(data.trials),
        ended=len(ended),
        cancelled=cancelled,
        unused=sum(trial.planned.key not in used for trial in ended),
        saved=saved,
        saved_usd=saved * sum(known) / len(ended) if any(known) else None,
    )


def _passes(rewards: Sequence[float]) -> int:
    return sum(reward >= 1 for reward in rewards)
