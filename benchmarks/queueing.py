"""Discrete events: hosts with cores, stations with servers, and activities that go from one to the next.

Pure: an activity is a generator that yields what it needs next, time is a number, and the same seed gives the
same course. `tests/test_cluster_model.py` holds it to what queueing theory says.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field
from itertools import count
from random import Random

Activity = Generator["Need", None, None]
"""Yields needs; goes on when each is met."""


@dataclass(slots=True, eq=False)
class Host:
    """A machine: as many activities compute at a time as it has cores."""

    name: str
    cores: int
    busy_s: float = 0.0
    computing: int = 0
    waiting: deque[tuple[Activity, Need]] = field(default_factory=deque)


@dataclass(slots=True, eq=False)
class Station:
    """What serves a few at a time, on the cores of a host; without a host it computes on its own."""

    name: str
    servers: int
    host: Host | None = None
    busy_s: float = 0.0
    serving: int = 0
    longest: int = 0
    waiting: deque[tuple[Activity, Need]] = field(default_factory=deque)


@dataclass(frozen=True, slots=True)
class Need:
    """So many seconds of a station, of a host's cores, or (`at` None) of nothing but time.

    `keep`: the station's server stays taken until `Simulation.give_back`, as a connection does. `parts`: how
    many services this is the sum of, so that it varies less.
    """

    at: Station | Host | None
    seconds: float
    keep: bool = False
    parts: int = 1


class Simulation:
    """Plays activities against each other. Services vary as exponential times do, around their mean."""

    def __init__(self, seed: int = 1, *, vary: bool = True) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Activity, Need | None]] = []
        self._order = count()
        self._random = Random(seed)
        self._vary = vary

    def begin(self, activity: Activity, after_s: float = 0.0) -> None:
        """Let an activity begin, now or later."""
        self._at(self.now + after_s, activity, None)

    def varied(self, mean_s: float, parts: int = 1) -> float:
        """A duration around this mean, the sum of so many."""
        if not self._vary or mean_s <= 0:
            return mean_s
        if parts == 1:
            return self._random.expovariate(1.0 / mean_s)
        return self._random.gammavariate(parts, mean_s / parts)

    def run(self, until_s: float = float("inf")) -> float:
        """Go on until nothing is left to do, or until this moment; the time that it is then."""
        while self._events and self._events[0][0] <= until_s:
            self.now, _, activity, need = heapq.heappop(self._events)
            if need is not None:
                self._release(need)
            self._go_on(activity)
        return self.now

    def give_back(self, station: Station) -> None:
        """Let go of a server that was kept."""
        station.serving -= 1
        if station.waiting:
            self._serve(*station.waiting.popleft())

    def _at(self, moment: float, activity: Activity, need: Need | None) -> None:
        heapq.heappush(self._events, (moment, next(self._order), activity, need))

    def _go_on(self, activity: Activity) -> None:
        need = next(activity, None)
        if need is None:
            return
        place = need.at
        if isinstance(place, Station) and place.serving >= place.servers:
            place.waiting.append((activity, need))
            place.longest = max(place.longest, len(place.waiting))
        else:
            self._serve(activity, need)

    def _serve(self, activity: Activity, need: Need) -> None:
        """A server is free: take it, and then a core."""
        place = need.at
        if isinstance(place, Station):
            place.serving += 1
            host = place.host
        else:
            host = place
        if host is not None and need.seconds > 0:
            if host.computing >= host.cores:
                host.waiting.append((activity, need))
                return
            host.computing += 1
        self._compute(activity, need)

    def _compute(self, activity: Activity, need: Need) -> None:
        took_s = need.seconds if need.at is None else self.varied(need.seconds, need.parts)
        if isinstance(need.at, Station):
            need.at.busy_s += took_s
        if host := _host_of(need):
            host.busy_s += took_s
        self._at(self.now + took_s, activity, need)

    def _release(self, need: Need) -> None:
        host = _host_of(need)
        if host is not None and need.seconds > 0:
            host.computing -= 1
            if host.waiting:
                host.computing += 1
                self._compute(*host.waiting.popleft())
        if isinstance(need.at, Station) and not need.keep:
            self.give_back(need.at)


def _host_of(need: Need) -> Host | None:
    return need.at.host if isinstance(need.at, Station) else need.at
