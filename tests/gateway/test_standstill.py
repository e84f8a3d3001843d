"""Time stands still for an agent when all its calls wait for a budget, and only then."""

from __future__ import annotations

from proctor.gateway.standstill import Standstill


def test_time_stands_still_while_a_call_waits_and_none_is_answered():
    now, told = 0.0, []
    standstill = Standstill(told.append, now=lambda: now)
    with standstill.wait():
        now += 5
        assert (standstill.seconds, told) == (5, [True])
        standstill.begin_call()
        now += 100
        assert (standstill.seconds, told) == (5, [True, False]), "another call is answered"
        standstill.end_call()
        now += 2
    now += 100
    assert (standstill.seconds, told) == (7, [True, False, True, False])


def test_two_calls_that_wait_at_the_same_time_count_once():
    now, told = 0.0, []
    standstill = Standstill(told.append, now=lambda: now)
    with standstill.wait():
        now += 1
        with standstill.wait():
            now += 1
        now += 1
    assert (standstill.seconds, told) == (3, [True, False])
