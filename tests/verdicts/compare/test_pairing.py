from __future__ import annotations

from proctor.verdicts.compare.pairing import pair
from proctor.verdicts.compare.results import ResultPoint


def point(subject="sort", **params):
    inside = ", ".join(f"{name}={value}" for name, value in params.items())
    return ResultPoint(name=f"{subject}({inside})", subject=subject, params=params)


def test_points_of_the_same_name_belong_together_and_the_rest_is_listed():
    found = pair([point(n=1), point(n=2)], [point(n=2), point(n=3)])
    assert [(one.name, two.name) for one, two in found.pairs] == [("sort(n=2)", "sort(n=2)")]
    assert found.only_a == ("sort(n=1)",)
    assert found.only_b == ("sort(n=3)",)
    assert found.warning == ""


def test_a_changed_fixed_parameter_pairs_by_what_varies_and_warns():
    found = pair(
        [point(n=1, mode="old"), point(n=2, mode="old")],
        [point(n=2, mode="new"), point(n=1, mode="new"), point(n=9, mode="new")],
    )
    assert [one.name for one, _ in found.pairs] == ["sort(n=1)", "sort(n=2)"]
    assert [two.params["n"] for _, two in found.pairs] == [1, 2]
    assert found.warning == "params differ: mode old → new"
    assert found.only_b == ("sort(n=9, mode=new)",)


def test_two_single_points_are_a_pair_whatever_they_are_called():
    found = pair([point("quick", n=1)], [point("merge", n=1, depth=3)])
    assert len(found.pairs) == 1
    assert found.warning == "params differ: quick → merge; depth absent → 3"


def test_points_that_cannot_be_told_apart_are_not_paired():
    found = pair([point("a"), point("b")], [point("c"), point("d")])
    assert found.pairs == ()
    assert found.only_a == ("a()", "b()")


def test_an_empty_side_pairs_nothing():
    assert pair([], [point()]).only_b == ("sort()",)
