"""The timer itself. It is part of every timed pass, so there is nothing to start."""

from __future__ import annotations

from proctor.instruments.base import Instrument


class Timing(Instrument):
    """Wall and CPU time of each iteration; the trial's own clock, named here so that specs can name it."""

    name = "timing"
    rides_along = True
