"""Parameter points: which vary, in which order, how many, and drawn how."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import ParamError, SpecError
from proctor.model.canonical import canonical_json
from proctor.model.spec import ExperimentBody
from proctor.model.subject import ExperimentInfo, ParamInfo
from proctor.spec.sweep import MAX_POINTS, draw, expand_points, points

INFO = ExperimentInfo(
    slug="demo",
    digest="d",
    open_params=True,
    params={
        "n": ParamInfo(name="n", type="int", default=1),
        "rate": ParamInfo(name="rate", type="float", default=0.5),
        "sizes": ParamInfo(name="sizes", type="list", default=[1]),
        "mode": ParamInfo(name="mode", type="str", default="a"),
    },
)


def body(**values: Any) -> ExperimentBody:
    return ExperimentBody(experiment="demo", **values)


def notes(made: ExperimentBody) -> tuple[str, ...]:
    return expand_points(made, INFO, 0)[1]


def test_without_anything_to_vary_there_is_one_point_with_all_defaults() -> None:
    assert points(body(), INFO, 0) == [{"n": 1, "rate": 0.5, "sizes": [1], "mode": "a"}]


def test_a_list_sweeps_a_parameter_that_is_not_a_list_and_is_the_value_of_one_that_is() -> None:
    found = points(body(params={"n": [1, 2], "sizes": [3, 4]}), INFO, 0)
    assert [(each["n"], each["sizes"]) for each in found] == [(1, [3, 4]), (2, [3, 4])]


def test_an_explicit_sweep_of_a_list_is_a_list_of_lists() -> None:
    found = points(body(sweep={"sizes": ([1, 2], [3])}), INFO, 0)
    assert [each["sizes"] for each in found] == [[1, 2], [3]]
    with pytest.raises(ParamError, match="'sizes' of 'demo': expected a list, found the number 1"):
        points(body(sweep={"sizes": (1, 2)}), INFO, 0)


def test_an_undeclared_parameter_is_swept_by_a_list_too() -> None:
    assert [each["extra"] for each in points(body(params={"extra": ["x", "y"]}), INFO, 0)] == ["x", "y"]


def test_the_last_axis_turns_fastest() -> None:
    found = points(body(params={"n": [1, 2]}, sweep={"mode": ("a", "b")}), INFO, 0)
    assert [(each["n"], each["mode"]) for each in found] == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]


def test_a_sweep_wins_over_a_fixed_value_and_says_so() -> None:
    made = body(params={"n": 9}, sweep={"n": (1, 2)})
    assert [each["n"] for each in points(made, INFO, 0)] == [1, 2]
    assert notes(made) == ("demo: 'sweep' varies 'n', so its value under 'params' is not used",)


def test_two_sweeps_of_one_parameter_are_an_error() -> None:
    with pytest.raises(SpecError, match="'n' is swept twice"):
        points(body(params={"n": [1]}, sweep={"n": (1, 2)}), INFO, 0)


def test_an_empty_list_is_an_error() -> None:
    with pytest.raises(SpecError, match="values to sweep for 'n' is empty"):
        points(body(params={"n": []}), INFO, 0)


def test_a_value_listed_twice_is_measured_once_with_a_note() -> None:
    made = body(sweep={"rate": (1, 1.0, 2)})
    assert [each["rate"] for each in points(made, INFO, 0)] == [1.0, 2.0]
    assert notes(made) == ("demo: 'rate' lists a value more than once; each is measured once",)


def test_a_huge_grid_is_refused_with_its_shape() -> None:
    made = body(sweep={"n": tuple(range(1000)), "x": tuple(range(1000))})
    with pytest.raises(
        SpecError, match=r"'demo' has 1,000,000 points, n \(1000\) × x \(1000\).*strategy: random"
    ):
        points(made, INFO, 0)
    huge = body(sweep={f"p{at}": tuple(range(10)) for at in range(300)})
    with pytest.raises(SpecError, match=r"about 10\^300 points"):
        points(huge, INFO, 0)


def test_random_points_of_an_astronomic_grid_are_drawn_without_listing_it() -> None:
    made = body(sweep={f"p{at}": tuple(range(10)) for at in range(300)}, strategy="random", samples=50)
    found = points(made, INFO, 7)
    assert len({canonical_json(each) for each in found}) == 50
    assert found == points(made, INFO, 7)
    assert found != points(made, INFO, 8)


def test_more_samples_than_points_run_the_whole_grid_with_a_note() -> None:
    made = body(sweep={"n": (1, 2, 3)}, strategy="random", samples=10)
    assert [each["n"] for each in points(made, INFO, 0)] == [1, 2, 3]
    assert notes(made) == ("demo: 10 samples requested, but the grid has only 3 points: all are run",)
    assert notes(body(sweep={"n": (1, 2, 3)}, strategy="random", samples=3)) == ()


def test_too_many_samples_are_refused() -> None:
    axes = {"n": tuple(range(2000)), "x": tuple(range(2000))}
    with pytest.raises(SpecError, match=r"has 100,001 samples; the maximum is 100,000"):
        points(body(sweep=axes, strategy="random", samples=MAX_POINTS + 1), INFO, 0)


def test_the_draw_never_changes() -> None:
    """A frozen example: another Python or machine must draw the same points, or keys would move."""
    assert draw(100, 5, 42) == [22, 45, 51, 56, 79]
    assert draw(10**30, 2, 42) == [94406427255848472219110927716, 777300774464341985177692257839]


AXES = st.dictionaries(
    st.sampled_from(["n", "x", "y"]),
    st.lists(st.integers(0, 50), min_size=1, max_size=6, unique=True),
    max_size=3,
)


@given(AXES)
def test_a_full_sweep_is_the_product_of_its_axes_in_order(axes: dict[str, list[int]]) -> None:
    found = points(body(sweep={name: tuple(values) for name, values in axes.items()}), INFO, 0)
    assert [tuple(each[name] for name in axes) for each in found] == list(itertools.product(*axes.values()))


@given(AXES, st.integers(1, 30), st.integers(0, 2**63 - 1))
def test_random_points_are_distinct_members_of_the_grid_in_its_order(
    axes: dict[str, list[int]], samples: int, seed: int
) -> None:
    sweep = {name: tuple(values) for name, values in axes.items()}
    whole = [canonical_json(each) for each in points(body(sweep=sweep), INFO, 0)]
    found = [
        canonical_json(each)
        for each in points(body(sweep=sweep, strategy="random", samples=samples), INFO, seed)
    ]
    assert len(found) == min(samples, len(whole))
    assert [each for each in whole if each in set(found)] == found


@given(st.integers(1, 10**25), st.integers(1, 20), st.integers(0, 2**63 - 1))
def test_a_larger_draw_keeps_the_smaller_one(size: int, samples: int, seed: int) -> None:
    size = max(size, samples + 5)
    if size <= 2 * MAX_POINTS:
        size = size % 500 + samples + 5
    assert set(draw(size, samples, seed)) < set(draw(size, samples + 5, seed))


def test_every_point_of_a_grid_is_drawn_about_equally_often() -> None:
    counts = [0] * 10
    for seed in range(2000):
        for index in draw(10, 3, seed):
            counts[index] += 1
    assert all(500 < count < 700 for count in counts)
