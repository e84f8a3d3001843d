from __future__ import annotations

import math

import pytest

from proctor.quantity import (
    Unit,
    duration,
    metric_title,
    number,
    plural,
    show,
    significant,
    some,
    span,
    unit_for,
)


@pytest.mark.parametrize(
    ("metric", "value", "shown"),
    [
        ("duration_s", 0.00123, "1.23 ms"),
        ("duration_s", 4.2e-8, "42.0 ns"),
        ("duration_s", 0.000999, "999 µs"),
        ("duration_s", 90.0, "90.0 s"),
        ("duration_s", 600.0, "10.0 min"),
        ("duration_s", 10_000.0, "2.78 h"),
        ("duration_s", 0.0, "0 s"),
        ("latency_ms", 0.5, "500 µs"),
        ("rss_bytes", 3 * 2**20, "3.00 MiB"),
        ("rss_bytes", 12.0, "12.0 B"),
        ("ops_per_s", 1_250_000.0, "1.25 M/s"),
        ("ops_per_s", 12.0, "12.0 /s"),
        ("observes_per_sec", 12_000.0, "12.0 k/s"),
        ("ops_per_s_p50", 12.0, "12.0 /s"),
        ("read_bytes_per_s", 3 * 2**20, "3.00 MiB/s"),
        ("rss_bytes_per_step", 3 * 2**20, "3.00 MiB/step"),
        ("cpu_s_per_task", 0.5, "500 ms/task"),
        ("cost_usd_per_task", 0.25, "$0.250"),
        ("cost_usd", 0.25, "$0.250"),
        ("cpu_pct", 99.5, "99.5 %"),
        ("hits", 960.0, "960"),
        ("hits", 960_000.0, "960 k"),
        ("hits", None, "–"),
        ("hits", math.nan, "–"),
    ],
)
def test_a_value_is_shown_in_the_unit_that_fits(metric, value, shown):
    assert show(metric, value) == shown


def test_rounding_up_keeps_three_digits():
    assert significant(9.999) == "10.0"
    assert significant(999.9) == "1\u202f000"
    assert significant(-0.012345) == "-0.0123"
    assert significant(1e-9) == "1.00e-09"


def test_a_span_has_as_many_digits_as_tell_its_ends_apart():
    unit = Unit("ms", 1e3)
    assert unit.span(0.0012851, 0.0012899) == "1.285 – 1.290 ms"
    assert unit.span(0.001, 0.001) == "1.00 – 1.00 ms"
    assert unit.span(0.001, 0.002) == "1.00 – 2.00 ms"
    assert Unit("$").span(1, 2) == "$1.00 – $2.00"
    assert Unit("").span(1, 2) == "1.00 – 2.00"


def test_a_span_over_units_names_both():
    assert span("duration_s", 0.00022, 0.00847) == "220 µs – 8.47 ms"
    assert span("duration_s", 0.00022, 0.00047) == "220 – 470 µs"
    assert span("duration_s", 0.0, 0.5) == "0 – 500 ms"


def test_one_unit_serves_a_whole_axis():
    unit = unit_for("duration_s", [1e-6, 0.5])
    assert unit.show(1e-6) == "0.00100 ms"


@pytest.mark.parametrize("value", [True, None, "1", 10**400, math.inf, math.nan, [1]])
def test_what_is_no_finite_number_is_nothing(value):
    assert number(value) is None


def test_numbers_pass():
    assert number(3) == 3.0
    assert number(0.5) == 0.5


def test_durations_read_as_people_say_them():
    assert duration(None) == "–"
    assert duration(0) == "0 s"
    assert duration(0.5) == "500 ms"
    assert duration(150) == "2 min 30 s"
    assert duration(3 * 3600 + 120) == "3 h 02 min"


def test_a_metric_name_becomes_a_heading():
    assert metric_title("duration_s") == "duration"
    assert metric_title("rss_bytes") == "rss"
    assert metric_title("ops_per_s") == "ops per s"
    assert metric_title("observes_per_sec") == "observes per sec"
    assert metric_title("rss_bytes_per_step") == "rss bytes per step"
    assert metric_title("hits") == "hits"


def test_counts_have_their_noun_and_long_lists_an_end():
    assert (plural(1, "task"), plural(0, "task")) == ("1 task", "0 tasks")
    assert some(["a", "b"], 2) == "a, b"
    assert some(["a", "b", "c", "d"], 2) == "a, b and 2 more"
