"""What a loop does while the store fails: says so once, tries ever more rarely, says once that it is over.

A loop that goes on at its own pace would write the same sentence thousands of times, and fill the disk whose
failure it tells.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0


class Outage:
    """Whether the store fails, as one process sees it."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._failed_at: float | None = None
        self._pause_s = 0.0

    @property
    def goes_on(self) -> bool:
        """Whether the last try has failed."""
        return self._failed_at is not None

    @property
    def resting(self) -> bool:
        """Whether it is too early for another try."""
        return self._failed_at is not None and self._clock() < self._failed_at + self._pause_s

    def failed(self, error: Exception) -> None:
        """A try has failed. Those that others make meanwhile put off nothing."""
        if self.resting:
            return
        if self._failed_at is None:
            self._log.error("the store fails, and is tried again ever more rarely: %s", error)
            self._pause_s = FIRST_PAUSE_S
        else:
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._failed_at = self._clock()

    def worked(self) -> None:
        """A try has worked, one that wrote: reading may work alone."""
        if self._failed_at is not None:
            self._log.warning("the store works again")
            self._failed_at = None
