"""What an attempt uses over time: a look about once a second, kept as one small file of columns.

An attempt that ends within two seconds is never looked at. However long one runs, it keeps at most 600
points: when there are more, each two become one, and from then on looks are twice as far apart. Where more
than 50 attempts run at once in a process, looks are as much further apart.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from weakref import WeakSet

from proctor.model.record import Artifact
from proctor.sandbox.base import Limits, Sandbox
from proctor.sandbox.sample import Sample, sample
from proctor.trial.collect import Collector

FILE = "resources.json"
FIRST_S = 2.0
EVERY_S = 1.0
MOST_PER_S = 50
"""Looks of one process, at all its attempts together."""
MOST_POINTS = 600
MOST_EVENTS = 100
_FULL = 0.98
"""Of a limit: memory is then said to have reached it."""
_THROTTLED = 0.1
"""Of an interval in which the sandbox had to wait for its share of the processors."""
_COLUMNS = tuple(each.name for each in fields(Sample) if each.name != "oom_kills")
"""Deaths for lack of memory are events."""
_LOOKING: WeakSet[ResourceLog] = WeakSet()
"""Who looks from time to time in this process."""


class ResourceLog:
    """Looks at the sandbox of one attempt while that runs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._points: list[tuple[float, Sample]] = []
        self._events: list[dict[str, Any]] = []
        self._every_s = EVERY_S
        self._timer: asyncio.TimerHandle | None = None
        self._limits = Limits()
        self._last = (0.0, Sample())
        self._now_true: set[str] = set()

    def begin(self, sandbox: Sandbox, limits: Limits) -> None:
        """Look from time to time, from two seconds on."""
        self.end()
        self._limits = limits
        _LOOKING.add(self)
        self._again(sandbox, FIRST_S)

    def end(self) -> None:
        """Look no more."""
        _LOOKING.discard(self)
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def take(self, found: Sample) -> None:
        """Remember a look."""
        at = self._clock() - self._began
        self._tell(at, found)
        self._last = (at, found)
        self._points.append(self._last)
        if len(self._points) > MOST_POINTS:
            pairs = zip(self._points[::2], self._points[1::2], strict=False)
            self._points = [_joined(*pair) for pair in pairs]
            self._every_s *= 2

    def to_json(self) -> bytes:
        """Columns of equal length, and what happened; columns without a value are left out."""
        columns: dict[str, list[Any]] = {"at_s": [round(at, 2) for at, _ in self._points]}
        columns |= {name: [getattr(each, name) for _, each in self._points] for name in _COLUMNS}
        kept = {name: values for name, values in columns.items() if any(each is not None for each in values)}
        limits = {
            "memory_bytes": self._limits.memory_bytes,
            "cpus": self._limits.cpus,
            "storage_bytes": self._limits.storage_bytes,
        }
        given = {name: value for name, value in limits.items() if value is not None}
        document = {**kept, "limits": given, "events": self._events}
        return json.dumps(document, separators=(",", ":")).encode()

    def keep(self, collector: Collector, folder: Path) -> tuple[Artifact, ...]:
        """The file, where there is anything to keep."""
        return (collector.keep(folder, FILE, self.to_json()),) if self._points else ()

    def _again(self, sandbox: Sandbox, after_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(after_s, self._look, sandbox)

    def _look(self, sandbox: Sandbox) -> None:
        self._timer = None
        if (found := sample(sandbox)) is not None:
            self.take(found)
            self._again(sandbox, max(self._every_s, len(_LOOKING) / MOST_PER_S))
        else:
            _LOOKING.discard(self)

    def _tell(self, at: float, found: Sample) -> None:
        """Say what has become true since the last look."""
        before_at, before = self._last
        if kills := found.oom_kills - before.oom_kills:
            self._event(at, "oom", f"{kills} process{'es' * (kills > 1)} killed for memory")
        memory = self._limits.memory_bytes
        full = memory is not None and (found.memory_bytes or 0) >= _FULL * memory
        self._became(at, "memory_limit", "memory reached its limit", true=full)
        waited_s = (found.throttled_s or 0.0) - (before.throttled_s or 0.0)
        slow = waited_s > _THROTTLED * max(at - before_at, 0.001)
        self._became(at, "throttled", "the processors reached their limit", true=slow)

    def _became(self, at: float, kind: str, text: str, *, true: bool) -> None:
        if true and kind not in self._now_true:
            self._event(at, kind, text)
        (self._now_true.add if true else self._now_true.discard)(kind)

    def _event(self, at: float, kind: str, text: str) -> None:
        if len(self._events) < MOST_EVENTS:
            self._events.append({"at_s": round(at, 2), "kind": kind, "text": text})


def _joined(one: tuple[float, Sample], other: tuple[float, Sample]) -> tuple[float, Sample]:
    """Two points as one: the later, with the larger memory, so that a peak stays."""
    at, later = other
    peak = max(one[1].memory_bytes or 0, later.memory_bytes or 0)
    return at, replace(later, memory_bytes=peak if later.memory_bytes is not None else None)
