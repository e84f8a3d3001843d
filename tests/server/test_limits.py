from __future__ import annotations

import pytest

from proctor.server.limits import Limits
from proctor.server.problem import Problem


def test_a_token_may_burst_and_then_asks_at_a_steady_rate():
    limits = Limits(rate=2.0)
    for _ in range(10):
        limits.take("a", 100.0)
    with pytest.raises(Problem) as refused:
        limits.take("a", 100.0)
    assert refused.value.code == "rate_limited"
    assert refused.value.headers["Retry-After"] == "1"
    limits.take("b", 100.0)
    limits.take("a", 101.0)
