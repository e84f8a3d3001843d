"""A leaderboard in sentences: who leads, who is not told apart from whom."""

from __future__ import annotations

from collections.abc import Sequence

from proctor.verdicts.leaderboard.rank import Leaderboard, Standing
from proctor.verdicts.rollouts.words import score_text

MOST_NAMES = 4


def headline(board: Leaderboard) -> str:
    """Who is ahead, if anybody is."""
    standings = board.standings
    if len(standings) == 1:
        only = standings[0].entrant
        return f"{only.label} is alone: {score_text(only.passes.excluded, board.claim)}."
    if all(each.entrant.passes.excluded is None for each in standings):
        return f"None of {len(standings)} competitors has a scored rollout."
    leaders = [each for each in standings if each.first == 1]
    best = standings[0].entrant
    said = score_text(best.passes.excluded, board.claim)
    others = len(standings) - 1
    if len(leaders) == 1:
        whom = "the other" if others == 1 else f"all {others} others"
        return f"{leaders[0].entrant.label} is ahead of {whom}: it passes {said}."
    if len(leaders) == len(standings):
        names = _listed([each.entrant.label for each in leaders])
        return f"Nobody is certainly ahead of all others: {names} may each be first."
    return (
        f"{_listed([each.entrant.label for each in leaders])} may each be first; "
        f"{best.label} has the highest pass rate, {said}."
    )


def ties(standing: Standing) -> str:
    """Whom a competitor is ahead of, behind, and not told apart from."""
    parts = []
    if standing.ahead_of:
        parts.append(f"ahead of {_listed(standing.ahead_of)}")
    if standing.behind:
        parts.append(f"behind {_listed(standing.behind)}")
    if standing.tied:
        parts.append(f"not told apart from {_listed(standing.tied)}")
    return "; ".join(parts)


def method(board: Leaderboard) -> str:
    """How the places came about."""
    pairs = len(board.duels)
    if not pairs:
        return ""
    known, open_ = board.certain, pairs - board.certain
    if pairs == 1:
        how = f"The places come from a paired test over tasks, for {board.claim}"
        return f"{how}: the order is {'certain' if known else 'not known'}."
    return (
        f"Places come from paired tests over tasks, for {board.claim}; all {pairs} pairs corrected together "
        f"(Holm): {known} {'is' if known == 1 else 'are'} certain, {open_} {'is' if open_ == 1 else 'are'} "
        "not. A tie means that the order is not known, not that two are the same. Overlapping intervals are "
        "no test."
    )


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:MOST_NAMES])
    if len(names) > MOST_NAMES:
        return f"{', '.join(shown)} and {len(names) - MOST_NAMES} more"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
