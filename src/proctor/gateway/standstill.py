"""When all calls that an attempt has under way wait for a budget: that is not its agent's time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Standstill:
    """Of one attempt. A call that waits while another is answered stops nothing: the agent has its model."""

    def __init__(
        self,
        on_change: Callable[[bool], None] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_change = on_change
        """Told when it begins and when it ends."""
        self._now = now
        self._waiting = 0
        self._at_work = 0
        self._since: float | None = None
        self._past_s = 0.0

    @property
    def seconds(self) -> float:
        """How long it stood still so far."""
        return self._past_s + (0.0 if self._since is None else self._now() - self._since)

    @contextmanager
    def wait(self) -> Iterator[None]:
        """While one of its calls waits."""
        self._waiting += 1
        self._look()
        try:
            yield
        finally:
            self._waiting -= 1
            self._look()

    def begin_call(self) -> None:
        """A budget has what one of its calls needs."""
        self._at_work += 1
        self._look()

    def end_call(self) -> None:
        """That call is over."""
        self._at_work -= 1
        self._look()

    def _look(self) -> None:
        stands = self._waiting > 0 and not self._at_work
        if stands == (self._since is not None):
            return
        if self._since is not None:
            self._past_s, self._since = self.seconds, None
        else:
            self._since = self._now()
        if self._on_change:
            self._on_change(stands)
