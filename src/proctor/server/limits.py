"""How often one token may ask: a bucket for each, filled at a steady rate. A restart fills them all."""

from __future__ import annotations

import math

from proctor.server.problem import Problem

_BURST_S = 5.0
_MOST = 10_000


class Limits:
    """The buckets of all tokens."""

    def __init__(self, rate: float = 100.0) -> None:
        self.rate = rate
        self._buckets: dict[str, tuple[float, float]] = {}
        """Token → when it was last filled, and how many requests were left then."""

    def take(self, token: str, now: float) -> None:
        """Count one request; a Problem when the bucket is empty."""
        most = self.rate * _BURST_S
        at, left = self._buckets.get(token, (now, most))
        left = min(most, left + max(0.0, now - at) * self.rate)
        if left < 1.0:
            wait_s = math.ceil((1.0 - left) / self.rate)
            raise Problem(
                "rate_limited",
                f"More than {self.rate:g} requests a second; go on in {wait_s} s",
                headers={"Retry-After": str(wait_s)},
            )
        if len(self._buckets) >= _MOST and token not in self._buckets:
            self._buckets.clear()
        self._buckets[token] = now, left - 1.0
