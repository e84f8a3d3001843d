from __future__ import annotations

import pytest

from proctor.render.labels import apart, heading


def test_what_all_points_share_is_told_once():
    names = ["sort(n=1, order=random)", "sort(n=2, order=random)"]
    assert apart(names) == ("sort: order=random", ["n=1", "n=2"])


def test_several_experiments_keep_their_names():
    assert apart(["a(n=1)", "b(n=1)"]) == ("n=1", ["a", "b"])
    assert apart(["a(n=1)", "b(n=2)"]) == ("", ["a(n=1)", "b(n=2)"])


def test_a_comma_inside_of_a_value_is_no_new_parameter():
    names = ["f(x=[1, 2], y=(3, 4))", "f(x=[1, 5], y=(3, 4))"]
    assert apart(names) == ("f: y=(3, 4)", ["x=[1, 2]", "x=[1, 5]"])


@pytest.mark.parametrize(
    "names",
    [[], ["sort(n=1)"], ["sort(n=1)", "sort(m=1)"], ["sort(n=1", "sort(n=2)"], ["a (old)", "a (new)"]],
)
def test_names_of_any_other_form_stay_as_they_are(names):
    assert apart(names) == ("", names)


def test_equal_names_are_not_emptied():
    assert apart(["sort(n=1)", "sort(n=1)"]) == ("", ["sort(n=1)", "sort(n=1)"])


def test_labels_of_the_same_parameters_become_a_heading_and_values():
    assert heading(["a=1, b=[1, 2]", "a=2, b=[3]"]) == ("a, b", ["1, [1, 2]", "2, [3]"])


@pytest.mark.parametrize(
    "labels", [[], ["a=1", "b=1"], ["a=1", "sort"], ["f(a=1)", "g(a=1)"], ["org/task", "org/other"]]
)
def test_labels_of_any_other_form_are_below_point(labels):
    assert heading(labels) == ("point", labels)
