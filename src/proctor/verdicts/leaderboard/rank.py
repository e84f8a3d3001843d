"""Rank competitors by paired tests over their common tasks, all pairs corrected together.

A place is a range: one better than everybody who is certainly ahead, and no worse than everybody who is not
certainly behind. A tie means that the order is not known, not that two are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from proctor.analysis.claim import Claim, chosen_claim
from proctor.analysis.compare import PairedScores, paired_scores
from proctor.analysis.estimate import Denominators
from proctor.analysis.p_values import holm

ALPHA = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrant:
    """One competitor: an agent with its model, of one run."""

    label: str
    run_id: str
    run_name: str
    agent: str
    model: str | None
    rewards: Mapping[str, Sequence[float]]
    """Task → whether each scored rollout passed, as 0 or 1."""
    passes: Denominators
    score: Denominators
    scored: int
    passed: int
    errors: int
    median_s: float | None = None
    cost_usd: float | None = None
    """What its rollouts cost; None: unknown, or nothing was called."""
    unknown_cost: int = 0

    @property
    def per_pass_usd(self) -> float | None:
        """What a passed rollout cost."""
        return self.cost_usd / self.passed if self.cost_usd is not None and self.passed else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Duel:
    """Two competitors on their common tasks: B minus A."""

    a: int
    b: int
    scores: PairedScores | None
    """None: they have no scored task in common."""
    claim: Claim
    p_value: float
    adjusted: float
    """Corrected for all pairs."""

    @property
    def certain(self) -> bool:
        """Whether the order of the two is known: after the correction, and by the interval that is shown."""
        if self.scores is None or self.adjusted > ALPHA:
            return False
        shown = self.scores.interval(self.claim)
        return shown.low > 0 or shown.high < 0

    @property
    def ahead(self) -> int | None:
        """Who is certainly ahead; None: not known."""
        if not self.certain or self.scores is None:
            return None
        return self.b if self.scores.difference > 0 else self.a


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A competitor and its place."""

    entrant: Entrant
    first: int
    last: int
    """The best and the worst place that it may have."""
    ahead_of: tuple[str, ...]
    behind: tuple[str, ...]
    tied: tuple[str, ...]
    """Those it is not told apart from."""

    @property
    def place(self) -> str:
        """As people write it: `1`, `2–4`."""
        return f"{self.first}" if self.first == self.last else f"{self.first}–{self.last}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaderboard:
    """Competitors in order, and every comparison behind it."""

    standings: tuple[Standing, ...]
    duels: tuple[Duel, ...]
    claim: Claim
    """The widest that all pairs can judge."""
    warnings: tuple[str, ...] = ()

    @property
    def certain(self) -> int:
        """How many pairs are told apart."""
        return sum(duel.certain for duel in self.duels)


def rank(
    entrants: Sequence[Entrant],
    *,
    these_tasks: bool | None = None,
    warnings: Sequence[str] = (),
    seed: int = 0,
) -> Leaderboard:
    """Compare every two competitors and place them."""
    ordered = sorted(entrants, key=lambda each: (-_value(each), each.label))
    duels = _corrected(
        [_duel(ordered, pair, these_tasks, seed) for pair in combinations(range(len(ordered)), 2)]
    )
    claims = {duel.claim for duel in duels if duel.scores}
    if not duels:
        claims = {chosen_claim(these_tasks, len(each.rewards)) for each in ordered}
    return Leaderboard(
        standings=tuple(_standing(ordered, at, duels) for at in range(len(ordered))),
        duels=tuple(duels),
        claim=Claim.TASKS_LIKE_THESE if claims == {Claim.TASKS_LIKE_THESE} else Claim.THESE_TASKS,
        warnings=(*warnings, *_apart(ordered, duels)),
    )


def _value(entrant: Entrant) -> float:
    score = entrant.passes.excluded
    return score.value if score else -1.0


def _duel(
    entrants: Sequence[Entrant], pair: tuple[int, int], these_tasks: bool | None, seed: int
) -> dict[str, Any]:
    a, b = pair
    scores = paired_scores(entrants[a].rewards, entrants[b].rewards, seed=seed)
    claim = chosen_claim(these_tasks, scores.tasks if scores else 0)
    p_value = 1.0
    if scores:
        p_value = scores.p_these_tasks if claim is Claim.THESE_TASKS else scores.p_value
    return {"a": a, "b": b, "scores": scores, "claim": claim, "p_value": p_value}


def _corrected(duels: Sequence[dict[str, Any]]) -> list[Duel]:
    adjusted = holm([duel["p_value"] for duel in duels])
    return [Duel(**duel, adjusted=each) for duel, each in zip(duels, adjusted, strict=True)]


def _standing(entrants: Sequence[Entrant], at: int, duels: Sequence[Duel]) -> Standing:
    ahead_of: list[int] = []
    behind: list[int] = []
    tied: list[int] = []
    for duel in duels:
        if at in (duel.a, duel.b):
            other = duel.b if at == duel.a else duel.a
            (tied if duel.ahead is None else ahead_of if duel.ahead == at else behind).append(other)
    names = [tuple(entrants[each].label for each in sorted(group)) for group in (ahead_of, behind, tied)]
    return Standing(
        entrant=entrants[at],
        first=1 + len(behind),
        last=len(entrants) - len(ahead_of),
        ahead_of=names[0],
        behind=names[1],
        tied=names[2],
    )


def _apart(entrants: Sequence[Entrant], duels: Sequence[Duel]) -> list[str]:
    """What makes the order doubtful besides chance."""
    found = []
    strangers = [duel for duel in duels if duel.scores is None]
    if strangers:
        some = ", ".join(f"{entrants[d.a].label} and {entrants[d.b].label}" for d in strangers[:3])
        found.append(f"no common task with a scored rollout: {some}{' …' if len(strangers) > 3 else ''}")
    tasks = {len(each.rewards) for each in entrants}
    if len(tasks) > 1:
        found.append(
            "not everybody did the same tasks: each two are compared on the tasks that both did, "
            "but the pass rates are over different tasks"
        )
    lost = [f"{each.label} {each.errors}" for each in entrants if each.errors]
    if lost:
        found.append(f"rollouts with an error that the agent did not cause are left out: {', '.join(lost)}")
    return found
