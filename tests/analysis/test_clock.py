"""One rule says which clock leads: elapsed time, or CPU time where other programs held the code up."""

from __future__ import annotations

import pytest

from proctor.analysis.clock import (
    CPU,
    WALL,
    HeadlineClock,
    Waiting,
    clock_sentence,
    headline_clock,
    waited_for_cpu,
    waiting_in,
)

CALM, HELD_UP, SLEEPS, OLD = Waiting(0.0, 0.0), Waiting(0.4, 0.01), Waiting(0.05, 0.8), Waiting(0.4, None)


@pytest.mark.parametrize(
    ("points", "leads"),
    [
        ([], WALL),
        ([CALM, CALM], WALL),
        ([CALM, HELD_UP], CPU),
        ([HELD_UP, SLEEPS], WALL),
        ([SLEEPS], WALL),
        ([OLD], WALL),
        ([HELD_UP, Waiting()], CPU),
    ],
)
def test_cpu_time_leads_where_code_that_only_computes_was_held_up(points, leads):
    found = headline_clock((point, True) for point in points)
    assert found.metric == leads
    assert bool(found.why) == any(point.for_cpu >= 0.1 for point in points)


def test_a_clock_that_not_every_point_has_does_not_lead():
    found = headline_clock([(HELD_UP, True), (CALM, False)])
    assert found.metric == WALL
    assert clock_sentence(found) == (
        "Judged by elapsed time (duration_s): other programs had the CPU for up to 40% of the time, which is "
        "in it; it leads because not every point has a CPU time to rely on."
    )


def test_nothing_is_said_where_nothing_speaks_against_elapsed_time():
    assert clock_sentence(headline_clock([(CALM, True)])) == ""
    assert headline_clock([]) == HeadlineClock()


def test_code_that_ran_a_quarter_of_the_time_it_was_ready_waited_three_quarters_of_it():
    assert waited_for_cpu([25, 75], 0.25) == pytest.approx(0.75)
    noise = {"cpu_over_wall": 0.25, "waited_for_cpu": 0.75}
    assert waiting_in(noise) == Waiting(0.75, 0.0)
    assert waiting_in(noise).computes


def test_sleep_is_told_from_waiting_for_a_cpu_on_the_same_loaded_machine():
    waited = waited_for_cpu([10, 10], 0.1)
    found = waiting_in({"cpu_over_wall": 0.1, "waited_for_cpu": waited, "cpu_pressure": 1.0})
    assert found.for_cpu == pytest.approx(0.1)
    assert found.own == pytest.approx(0.8)
    assert not found.computes


def test_time_that_the_host_took_is_not_the_codes_own_waiting():
    found = waiting_in({"cpu_over_wall": 0.7, "waited_for_cpu": 0.1, "steal_fraction": 0.2})
    assert found.own == pytest.approx(0.0)


@pytest.mark.parametrize("scheduled", [None, [], [0, 5], ["x", 1], [1]])
def test_what_the_kernel_did_not_count_is_not_known(scheduled):
    assert waited_for_cpu(scheduled, 0.5) is None


@pytest.mark.parametrize("noise", [None, [], {}, {"cpu_over_wall": "x"}, {"cpu_over_wall": 0.5}])
def test_a_record_that_does_not_tell_waits_for_nothing(noise):
    assert waiting_in(noise) == Waiting()


def test_records_of_earlier_versions_are_estimated_and_their_own_waiting_is_unknown():
    assert waiting_in({"cpu_over_wall": 0.4, "cpu_pressure": 0.9}) == Waiting(pytest.approx(0.54), None)
