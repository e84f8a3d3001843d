"""How long each part of an attempt took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Phases:
    """A stopwatch per phase; a phase that is entered twice adds up."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: dict[str, float] = {}
        self.current = ""
        self._clock = clock

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what happens inside; `current` stays at the phase that raised."""
        self.current = name
        began = self._clock()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + self._clock() - began
