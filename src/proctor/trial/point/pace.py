"""Whether the machine runs at the pace it is known to have: the same small loop, timed again and again.

A virtual CPU shares its core with strangers. Nothing that a guest can read says so, but all code becomes
slower at once, by half and more, for milliseconds or minutes. The loop is the same every time, so a slower
loop means a slower machine: what was measured beside it is about the neighbours, not about the code.
`Pace` works in the measured process; `KnownPace`, in the controller's, remembers from run to run.
"""

from __future__ import annotations

import time
from contextlib import suppress
from time import perf_counter_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
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


FILE = "pace.json"
PATIENCE_S = 5.0
"""How long a point waits in total for a calm machine; half of it after a wait without success."""
FORGOTTEN_AFTER_S = 3600.0
"""After this time a known pace is forgotten."""
_RELAXED = 1.02


class KnownPace:
    """The pace of this interpreter on this machine, from one run to the next: a small file in Proctor's home.

    Where it cannot be written it lasts for one run.
    """

    def __init__(self, home: Path | None, *, clock: Callable[[], float] = time.time) -> None:
        self._file = home and home / FILE
        self._clock = clock
        import platform

        from proctor.trial.environment import processor

        self._subject = f"{platform.python_implementation()} {platform.python_version()} {processor()}"
        self._best_ns, self._seen_at = self._read()
        self._patience_s = PATIENCE_S

    @property
    def best_ns(self) -> int:
        """How long the loop takes at the best; 0 when that is not known."""
        return self._best_ns

    def to_mapping(self) -> dict[str, Any]:
        """What a point must know."""
        return {"best_ns": self._best_ns, "patience_s": self._patience_s}

    def learn(self, found: Mapping[str, Any]) -> None:
        """A point has looked: the best pace it saw, and whether it found the machine calm."""
        now, quickest_ns = self._clock(), found["quickest_ns"] or found["best_ns"]
        if found["short"]:
            self._patience_s = PATIENCE_S if found["calm"] else self._patience_s / 2
        if found["calm"] or not self._best_ns:
            known_ns = self._best_ns * _RELAXED if self._best_ns else quickest_ns
            self._best_ns, self._seen_at = round(min(quickest_ns, known_ns)), now
        elif now - self._seen_at > FORGOTTEN_AFTER_S:
            self._best_ns, self._seen_at = quickest_ns, now
        else:
            return
        self._write()

    def _read(self) -> tuple[int, float]:
        with suppress(OSError, ValueError, KeyError, TypeError):
            if self._file is not None:
                import json

                found = json.loads(self._file.read_bytes())
                if found["subject"] == self._subject:
                    return int(found["best_ns"]), float(found["seen_at"])
        return 0, 0.0

    def _write(self) -> None:
        if self._file is not None:
            import json
            import os

            document = {"subject": self._subject, "best_ns": self._best_ns, "seen_at": self._seen_at}
            with suppress(OSError):
                self._file.parent.mkdir(parents=True, exist_ok=True)
                writing = self._file.with_name(f"{self._file.name}.{os.getpid()}")
                writing.write_text(json.dumps(document))
                writing.replace(self._file)
