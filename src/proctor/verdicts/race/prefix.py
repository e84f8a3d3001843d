"""The pairs of a race that are complete in planned order, and what the test says after each of them.

A pair behind one that has not ended is not looked at: results in the order in which they end would favour
the side that fails quickly. So the verdict is a function of the results alone, whenever they came.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from proctor.analysis.sequential import Decision, Look, Tally, log_e_value, look
from proctor.model.outcome import Outcome, reward_of
from proctor.model.record import AttemptRecord
from proctor.verdicts.race.design import RaceDesign, RacePair
from proctor.verdicts.race.promise import Judged, Promise

_UNFINISHED = {Outcome.CANCELLED, Outcome.SKIPPED}


class Prefix:
    """Grows as results come in, and stops at the first decision."""

    def __init__(self, pairs: Iterable[RacePair], error: float, *, pass_within: float | None = None) -> None:
        """`pass_within`: the margin of a race that ends early for "no worse" too."""
        self.pairs = tuple(pairs)
        self.promise = None if pass_within is None else Promise(self.pairs, pass_within)
        self.promised = False
        """Whether a loss of more than the margin is excluded."""
        self.error = error
        self.judged: list[Judged] = []
        """The complete pairs, in planned order."""
        self.looks: list[Look] = []
        """One after each pair that counts."""
        self.void = 0
        """Complete pairs without evidence."""
        self._ended: dict[str, float | None] = {}
        self._largest = -math.inf
        self._tally = Tally()
        self._latest = self._look()

    @property
    def latest(self) -> Look:
        """What the test says now."""
        return self._latest

    @property
    def is_decided(self) -> bool:
        """Whether the candidate is proven worse or, where the design asks for it, no worse.

        Where the first has become impossible, the pairs that remain still tell how large a loss could be.
        """
        return self.is_worse or self.promised

    @property
    def is_worse(self) -> bool:
        """Whether the candidate is proven worse."""
        return self._latest.decision is Decision.WORSE

    @property
    def is_complete(self) -> bool:
        """Whether every pair has ended."""
        return len(self.judged) == len(self.pairs)

    def tell(self, record: AttemptRecord) -> bool:
        """Hear the result of a trial, in any order; whether the race is decided."""
        if record.outcome not in _UNFINISHED:
            self._ended[record.key] = reward_of(record.outcome, record.reward)
        while not self.is_decided and not self.is_complete and (found := self._next()):
            self._add(found)
            self.promised = bool(self.promise and not self.is_worse and self.promise.holds(self.judged))
        return self.is_decided

    def _next(self) -> Judged | None:
        pair = self.pairs[len(self.judged)]
        if pair.candidate not in self._ended or (pair.baseline and pair.baseline not in self._ended):
            return None
        before = self._ended[pair.baseline] if pair.baseline else pair.known
        return Judged(pair, before, self._ended[pair.candidate])

    def _add(self, found: Judged) -> None:
        self.judged.append(found)
        if found.baseline is None or found.candidate is None:
            self.void += 1
            self._latest = self._look()
            return
        lost, won = found.candidate < found.baseline, found.candidate > found.baseline
        self._tally = self._tally.add(baseline=lost, candidate=won)
        self._largest = max(self._largest, log_e_value(self._tally.losses, self._tally.wins))
        self._latest = self._look()
        self.looks.append(self._latest)

    def _look(self) -> Look:
        planned = len(self.pairs) - self.void
        return look(self._tally, planned=planned, alpha=self.error, largest_log_e=self._largest)


def prefix_for(pairs: Iterable[RacePair], design: RaceDesign) -> Prefix:
    """The test that a design asks for."""
    return Prefix(pairs, design.error, pass_within=design.margin if design.stop_when_no_worse else None)
