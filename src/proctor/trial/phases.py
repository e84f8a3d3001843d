"""How long each part of an attempt took."""

from __future__ import annotations

import time
from collections.abc import Callable


class Phases:
    """A stopwatch per phase; a phase that is entered twice adds up."""

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        entered: Callable[[str], None] | None = None,
    ) -> None:
        self.seconds: dict[str, float] = {}
        self.current = ""
        self.clock = clock
        self.entered = entered
        """Hears the name of a phase that begins."""

    def phase(self, name: str) -> Phase:
        """Time what happens inside; `current` stays at the phase that raised."""
        return Phase(self, name)


class Phase:
    """One part that is being timed. No generator: an attempt has nine of them."""

    __slots__ = ("_began", "_name", "_phases")

    def __init__(self, phases: Phases, name: str) -> None:
        self._phases = phases
        self._name = name

    def __enter__(self) -> None:
        self._phases.current = self._name
        if self._phases.entered:
            self._phases.entered(self._name)
        self._began = self._phases.clock()

    def __exit__(self, *raised: object) -> None:
        seconds = self._phases.seconds
        seconds[self._name] = seconds.get(self._name, 0.0) + self._phases.clock() - self._began
