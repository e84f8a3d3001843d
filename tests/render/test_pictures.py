"""Pictures of comparisons and histories: what is drawn, what is cut, what is said."""

from __future__ import annotations

import math
import re
from itertools import pairwise

import pytest

from proctor.render.charts.forest import Branch, forest
from proctor.render.charts.pairs import Pair, pairs
from proctor.render.charts.scatter import Place, scatter
from proctor.render.charts.timeline import Spot, Step, timeline


def branch(value, reach=0.1, **more):
    return Branch(label=f"task {value}", value=value, low=value - reach, high=value + reach, text="x", **more)


def numbers(chart):
    return [float(each) for each in re.findall(r' (?:x|y|x1|x2|y1|y2)="([^"]+)"', chart)]


def test_a_forest_has_a_row_each_the_margin_and_the_whole():
    chart = forest(
        [branch(-0.2, tone="bad"), branch(0.1)],
        title="t", ratio=False, band=(-0.05, 0.05), whole=branch(0.0, 0.02), axis="pp",
    )  # fmt: skip
    assert chart.count('class="ci"') == 3
    assert chart.count('class="row whole"') == 1
    assert chart.count('class="margin"') == 3
    assert "t-bad" in chart
    assert ">0<" in chart


@pytest.mark.parametrize("ratio", [True, False])
def test_ends_beyond_the_axis_are_arrows_and_nothing_is_not_a_number(ratio):
    rows = [
        Branch(label="unknown", value=math.nan, low=0.0, high=math.inf, text="no ratio"),
        Branch(label="open", value=1.0, low=-math.inf if not ratio else 0.0, high=math.inf, text="?"),
        *(Branch(label=str(at), value=1.0, low=0.9, high=1.1, text="1") for at in range(30)),
    ]
    chart = forest(rows, title="t", ratio=ratio, band=(0.95, 1.05) if ratio else (-0.1, 0.1), axis="x")
    places = [float(each) for each in re.findall(r"(?:left|width):([^;%]+)%", chart)]
    assert all(0 <= place <= 100 for place in places)
    assert chart.count('class="beyond ') >= 2


def test_of_many_rows_the_two_ends_are_drawn():
    chart = forest([branch(at / 100) for at in range(100)], title="t", ratio=False, band=(0, 0), axis="x")
    assert "… 60 more between these" in chart
    assert "task 0.99" in chart
    assert "task 0.5<" not in chart


def test_names_of_close_marks_do_not_cover_each_other():
    places = [Place(label=f"agent {at}", cost=1.0, score=0.5, series=at) for at in range(4)]
    chart = scatter(places, metric="cost_usd", title="t")
    heights = [float(y) for y in re.findall(r'<text x="[^"]+" y="([^"]+)" class="f halo"', chart)]
    assert len(heights) == 4
    assert all(b - a >= 14 for a, b in pairwise(heights))


def test_many_marks_have_no_names_and_costs_far_apart_a_log_scale():
    places = [Place(label=str(at), cost=10.0**at, score=0.5, cost_ends=(0.0, 10.0**at)) for at in range(13)]
    chart = scatter(places, metric="cost_usd", title="t")
    assert "log scale" in chart
    assert "f halo" not in chart
    assert all(map(math.isfinite, numbers(chart)))


def test_a_timeline_marks_levels_moves_and_runs_that_are_left_out():
    spots = [
        Spot(value=1.0 + (at > 4), low=0.9, high=2.2, level=1.0 + (at > 4), tooltip="t") for at in range(10)
    ]
    spots[2] = Spot(value=None, tooltip="broken", left_out=True)
    spots[7] = Spot(value=None, tooltip="failed")
    chart = timeline(spots, [Step(last=4, at=5, label="+100 %")], name="n", metric="duration_s")
    assert chart.count('class="level"') == 2
    assert chart.count('class="move"') == 1
    assert (chart.count('class="gone"'), chart.count('class="none"')) == (1, 1)
    assert "+100 %" in chart


def test_noise_does_not_look_like_mountains_and_shares_are_of_a_hundred():
    flat = timeline([Spot(value=1.0 + at / 1e6) for at in range(9)], [], name="n", metric="duration_s")
    marks = [float(y) for y in re.findall(r"M[\d.]+ ([\d.]+)a", flat)]
    assert max(marks) - min(marks) < 5
    assert "100 %" in timeline([Spot(value=0.5)], [], name="n", metric="pass_rate", share=True)


def test_a_pair_of_sides_shares_an_axis_and_far_values_stay_on_it():
    chart = pairs([Pair(label="p" * 300, a=[1.0, 1.1, 1.0, 1.2, 90.0], b=[2.0] * 900)], "duration_s")
    assert "900 iterations" in chart
    assert "…" in chart
    assert chart.count('class="k middle"') == 2
