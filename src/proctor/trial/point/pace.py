"""Whether the machine runs at the pace it is known to have: the same small loop, timed again and again.

A virtual CPU shares its core with strangers. Nothing that a guest can read says so, but all code becomes
slower at once, by half and more, for milliseconds or minutes. The loop is the same every time, so a slower
loop means a slower machine: what was measured beside it is about the neighbours, not about the code.
"""

from __future__ import annotations

import time
from time import perf_counter_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

TURNS = 2_000
"""How often the loop turns: a tenth of a millisecond."""
CALM_UP_TO = 1.25
"""How much slower than at its best the machine may be and still count as calm."""
LONGEST_SLOT_S = 0.05
"""A longer slot may be disturbed in its middle, which its ends do not show: then nothing is set aside."""
WATCH_S = 1.0
"""How long a machine whose pace is not known is watched."""
_ASIDE_S = 0.002
_LONGEST_ASIDE_S = 0.01
_FEW = 10
_FASTER = 0.92


def gauge_ns(clock: Callable[[], int] = perf_counter_ns) -> int:
    """How long the loop takes now."""
    began = clock()
    value = 0
    for turn in range(TURNS):
        value += turn * turn & 255
    return clock() - began


class Pace:
    """Waits for calm before a slot, and says after it whether it lasted."""

    __slots__ = ("_before_ns", "_gauge", "_patience_s", "_quickest", "_sleep", "best_ns", "waited_s")

    def __init__(
        self,
        known: Mapping[str, Any],
        *,
        gauge: Callable[[], int] = gauge_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._gauge = gauge
        self._sleep = sleep
        self._patience_s: float = known["patience_s"]
        self._quickest: list[int] = []
        self.waited_s = 0.0
        self.best_ns: int = known["best_ns"] or self._watch()
        self._before_ns = self._look()

    def _watch(self) -> int:
        """The pace of a machine about which nothing is known yet."""
        best_ns = self._gauge()
        while self.waited_s < WATCH_S:
            self._wait(_ASIDE_S)
            best_ns = min(best_ns, self._gauge())
        self.waited_s = 0.0
        return best_ns

    def _wait(self, seconds: float) -> None:
        self._sleep(seconds)
        self.waited_s += seconds

    def _look(self) -> int:
        found = self._gauge()
        if len(self._quickest) < _FEW or found < self._quickest[-1]:
            self._quickest = sorted([*self._quickest, found])[:_FEW]
        return found

    def calm(self) -> bool:
        """Whether the machine was calm when last looked at."""
        return self._before_ns <= CALM_UP_TO * self.best_ns

    @property
    def patient(self) -> bool:
        """Whether calm may still be waited for."""
        return self.waited_s < self._patience_s

    def await_calm(self) -> None:
        """Return when the machine is calm, or when patience is over."""
        pause_s = _ASIDE_S
        while not self.calm() and self.patient:
            self._wait(pause_s)
            pause_s = min(1.5 * pause_s, _LONGEST_ASIDE_S)
            self._before_ns = self._look()

    def kept(self) -> bool:
        """After a slot: whether the machine was calm before it and is so now."""
        before, self._before_ns = self.calm(), self._look()
        return before and self.calm()

    def is_faster(self) -> bool:
        """Whether the machine turns out to be faster than was known; then what seemed calm was not."""
        if len(self._quickest) < _FEW or self._quickest[-1] >= _FASTER * self.best_ns:
            return False
        self.best_ns = self._quickest[-1]
        return True

    def to_mapping(self) -> dict[str, Any]:
        """What is known now."""
        quickest_ns = self._quickest[-1] if len(self._quickest) == _FEW else None
        return {"best_ns": self.best_ns, "quickest_ns": quickest_ns, "waited_s": round(self.waited_s, 3)}
