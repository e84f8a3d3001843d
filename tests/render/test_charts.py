from __future__ import annotations

import math
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proctor.quantity import Unit
from proctor.render.charts import distribution, iterations, sweep
from proctor.render.charts.distribution import Sample, window
from proctor.render.charts.scale import Scale, fitting, is_geometric, linear, logarithmic, thin, ticks
from proctor.render.charts.svg import tick_text
from proctor.render.charts.sweep import Cell, Line, Mark

values = st.lists(st.floats(min_value=1e-9, max_value=1e6), min_size=2, max_size=40)


def parsed(svg: str) -> ET.Element:
    assert "nan" not in svg
    assert "inf" not in svg.replace("info", "")
    return ET.fromstring(svg)


def coordinates(svg: str) -> list[float]:
    root = parsed(svg)
    return [float(each.get(name)) for each in root.iter() for name in ("x", "x1", "x2") if each.get(name)]


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_inside_the_axis_and_a_handful(low, span):
    scale = Scale(low, low + span, 0, 100)
    if scale.high > scale.low:
        found = ticks(scale)
        assert 2 <= len(found) <= 12
        near = span * 1e-6 + abs(low) * 1e-12
        assert all(scale.low - near <= tick <= scale.high + near for tick in found)
        assert found == sorted(found)


def test_ticks_are_round_numbers():
    assert ticks(Scale(0, 1, 0, 1)) == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert ticks(Scale(0.9, 1100, 0, 1, log=True)) == [1, 10, 100, 1000]
    assert ticks(Scale(2, 9, 0, 1, log=True), 4) == [2, 5]
    assert len(ticks(Scale(1e-9, 1e6, 0, 1, log=True))) <= 8
    assert tick_text(0.0015, Unit("ms", 1e3)) == "1.5 ms"
    assert tick_text(2.5, Unit("$")) == "$2.5"
    assert tick_text(1000, Unit("")) == "1\u202f000"


def test_axes_are_logarithmic_when_values_span_decades():
    assert fitting([1, 1000], 0, 1).log
    assert not fitting([1, 5], 0, 1).log
    assert not fitting([0, 1000], 0, 1).log
    assert is_geometric([1, 2, 4, 8, 16])
    assert is_geometric([100, 300, 1000, 3000])
    assert not is_geometric([10, 20, 30, 40])
    assert not is_geometric([0, 1, 10])
    assert not is_geometric([1, 100])


def test_an_axis_of_one_value_still_has_room():
    for scale in (linear([5, 5], 0, 100), linear([0, 0], 0, 100), logarithmic([5, 5], 0, 100)):
        assert 0 < scale(scale.low + (scale.high - scale.low) / 2) < 100


def test_thinning_keeps_the_extremes():
    found = thin(range(10_000), 100)
    assert (len(found), found[0], found[-1]) == (100, 0, 9999)


def test_a_few_far_values_leave_the_axis_and_are_told():
    usual = [1 + 0.01 * (at % 7) for at in range(100)]
    assert window(sorted([*usual, 50.0]))[-1] < 2
    assert window(sorted([*usual, *[50.0] * 30]))[-1] == 50
    assert window([1.0] * 10) == [1.0] * 10
    svg = distribution.histogram(Sample("a", [*usual, 50.0]), "duration_s")
    assert "1 more, up to 50.0 s" in svg
    svg = distribution.histogram(Sample("a", [*[value + 100 for value in usual], 1.0]), "duration_s")
    assert "1 more, down to 1.00 s" in svg


@settings(max_examples=60, deadline=None)
@given(values)
@example([1.0000000000000003e-09, 1e-09])
def test_every_chart_of_any_positive_sample_is_sound(sample):
    one = Sample("<b>&\"'", sample, (min(sample), max(sample)))
    for svg in (
        distribution.histogram(one, "duration_s"),
        distribution.rows([one, Sample("y", sample)], "duration_s"),
        distribution.rows([one, Sample("y", sample)], "duration_s", relative=True),
        iterations.series(one, "duration_s"),
        iterations.panels([one, Sample("y", sample)], "duration_s"),
    ):
        assert all(-20 <= x <= distribution.WIDTH + 20 for x in coordinates(svg))
        assert parsed(svg).get("aria-label")


@settings(max_examples=40, deadline=None)
@example([4.0, 2.2250738585072014e-308])
@example([5e-324, 0.0])
@example([1e-310, 5e-324])
@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=20))
def test_metrics_may_be_negative_or_zero(sample):
    parsed(distribution.histogram(Sample("a", sample), "balance"))
    parsed(distribution.rows([Sample("a", sample)], "balance"))
    parsed(iterations.series(Sample("a", sample), "balance"))
    marks = [Mark(float(at), value) for at, value in enumerate(sample)]
    parsed(sweep.lines([Line("", marks)], parameter="p", metric="balance"))
    cells = [Cell(at, 0, value) for at, value in enumerate(sample)]
    names = [str(at) for at in range(len(sample))]
    parsed(sweep.heat_map(cells, columns=names, rows=["r"], names=("a", "b"), metric="balance"))


def test_a_huge_sample_gives_a_small_picture():
    sample = Sample("a", [1 + math.sin(at) / 10 for at in range(50_000)])
    for svg in (
        distribution.histogram(sample, "x"),
        iterations.series(sample, "x"),
        distribution.rows([sample], "x"),
    ):
        assert len(svg) < 60_000


def test_lines_end_with_their_names_apart():
    drawn = [Line(f"v{n}", [Mark(1, 1 + n / 1000, (1, 1.01), 5), Mark(10, 2 + n / 1000)]) for n in range(6)]
    root = parsed(sweep.lines(drawn, parameter="size", metric="duration_s", second="kind"))
    ends = sorted(
        float(each.get("y"))
        for each in root.iter()
        if each.tag == "text" and (each.text or "").startswith("v")
    )
    assert len(ends) == 6
    assert all(b - a >= 14 for a, b in pairwise(ends))
    assert "95 % interval 1.00 – 1.01 s, n=5" in "".join(root.itertext())


def test_parameters_with_units_say_them_on_the_axis():
    svg = sweep.lines([Line("", [Mark(0.01, 1), Mark(0.02, 2)])], parameter="interval_s", metric="hits")
    assert "10 ms" in svg


def test_a_failed_field_is_hatched_and_says_why():
    cells = [Cell(0, 0, 1.0, "a=1"), Cell(1, 0, None, "a=2: agent_timeout")]
    svg = sweep.heat_map(cells, columns=["1", "2"], rows=["x"], names=("a", "b"), metric="duration_s")
    assert "cellbad" in svg
    assert "a=2: agent_timeout" in svg


@pytest.mark.parametrize("count", [1, 25])
def test_maps_of_any_shape_fit_the_page(count):
    names = [f"a rather long name {at}" for at in range(count)]
    cells = [Cell(column, row, 1.0 + column * 10**row) for column in range(count) for row in range(3)]
    root = parsed(sweep.heat_map(cells, columns=names, rows=["a", "b", "c"], names=("x", "y"), metric="hits"))
    assert float(root.get("viewBox").split()[2]) <= distribution.WIDTH
