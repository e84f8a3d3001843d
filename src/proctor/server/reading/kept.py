"""What was worked out once and cannot have changed: bounded, and safe between threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Kept(Generic[T]):
    """Values by key, each under the stamp that it was made for; the longest unused go first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._weight = 0
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, tuple[object, int, T]] = OrderedDict()

    def get(self, key: Hashable, stamp: object = None) -> T | None:
        """The value, if it was made for this stamp."""
        with self._lock:
            found = self._values.get(key)
            if found is None or found[0] != stamp:
                return None
            self._values.move_to_end(key)
            return found[2]

    def put(self, key: Hashable, value: T, *, stamp: object = None, weight: int = 1) -> T:
        """Keep a value; one that weighs more than all may is not kept."""
        if weight > self._most:
            return value
        with self._lock:
            old = self._values.pop(key, None)
            self._weight += weight - (old[1] if old else 0)
            self._values[key] = (stamp, weight, value)
            while self._weight > self._most:
                self._weight -= self._values.popitem(last=False)[1][1]
        return value

    def of(self, key: Hashable, make: Callable[[], T], *, stamp: object = None, weight: int = 1) -> T:
        """The value of this stamp, made now if it is not there."""
        found = self.get(key, stamp)
        return found if found is not None else self.put(key, make(), stamp=stamp, weight=weight)
