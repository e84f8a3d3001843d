"""Parameters against what an experiment declares."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import ParamError
from proctor.model.subject import ExperimentInfo, ParamInfo
from proctor.spec.sweep import check_defaults, validate_params

INFO = ExperimentInfo(
    slug="demo",
    digest="d",
    params={
        each.name: each
        for each in (
            ParamInfo(name="count", type="int", minimum=1, maximum=100),
            ParamInfo(name="rate", type="float", default=0.5, minimum=0),
            ParamInfo(name="mode", type="str", default="fast", choices=("fast", "slow", "safe")),
            ParamInfo(name="level", type="int", default=1, choices=(1, 2, 3)),
            ParamInfo(name="flag", type="bool", default=False),
            ParamInfo(name="sizes", type="list", default=[1]),
            ParamInfo(name="options", type="dict", default={}),
            ParamInfo(name="label", type="str", default=None),
            ParamInfo(name="limit", type="int", default=5, nullable=True),
            ParamInfo(name="thing", default=None),
        )
    },
)
OPEN = ExperimentInfo(
    slug="open", digest="d", open_params=True, params={"n": ParamInfo(name="n", type="int", default=1)}
)


def test_defaults_are_filled_in_declared_order() -> None:
    found = validate_params(INFO, {"limit": None, "count": 3})
    assert list(found) == list(INFO.params)
    assert found == {
        "count": 3,
        "rate": 0.5,
        "mode": "fast",
        "level": 1,
        "flag": False,
        "sizes": [1],
        "options": {},
        "label": None,
        "limit": None,
        "thing": None,
    }


@pytest.mark.parametrize(
    ("name", "given_value", "value"),
    [
        ("rate", 2, 2.0),
        ("count", 1e2, 100),
        ("flag", "yes", True),
        ("flag", "Off", False),
        ("sizes", (1, 2), [1, 2]),
        ("label", None, None),
        ("thing", [1, {"a": None}], [1, {"a": None}]),
        ("options", {"a": 1}, {"a": 1}),
    ],
)
def test_values_take_the_declared_type(name: str, given_value: Any, value: Any) -> None:
    found = validate_params(INFO, {"count": 1, name: given_value})[name]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"count": 1, "rat": 1}, "'rat' is not a parameter of 'demo'; did you mean 'rate'?"),
        ({"count": 1, "zzzz": 1}, "'zzzz' is not a parameter of 'demo'; known: count, flag"),
        ({}, "'demo' needs 'count'; give it under 'params' or 'sweep'"),
        ({"count": "3"}, "parameter 'count' of 'demo': expected a whole number, found the text '3'"),
        ({"count": 1.5}, "expected a whole number, found the number 1.5"),
        ({"count": True}, "expected a whole number, found true"),
        ({"count": None}, "expected a whole number, found nothing"),
        ({"count": 0}, "expected at least 1, found 0"),
        ({"count": 101}, "expected at most 100, found 101"),
        ({"count": 1, "rate": "x"}, "expected a number, found the text 'x'"),
        ({"count": 1, "rate": -1}, "expected at least 0, found -1"),
        ({"count": 1, "mode": "fats"}, "the text 'fats' is not a choice; did you mean 'fast'?"),
        ({"count": 1, "mode": "zzz"}, "the text 'zzz' is not a choice; choose from fast, slow, safe"),
        ({"count": 1, "level": 9}, "the number 9 is not a choice; choose from 1, 2, 3"),
        ({"count": 1, "label": 1.5}, "expected text, found the number 1.5; put it in quotes"),
        ({"count": 1, "flag": "maybe"}, "expected true or false, found the text 'maybe'"),
        ({"count": 1, "sizes": 3}, "expected a list, found the number 3"),
        ({"count": 1, "options": [3]}, "expected a mapping, found a list"),
        ({"count": 1, "thing": {1, 2}}, "the value cannot be written as JSON"),
        ({"count": 1, "thing": float("nan")}, "the value cannot be written as JSON"),
        ({"count": 1, "thing": "\ud800"}, "the value cannot be written as JSON"),
    ],
)
def test_what_does_not_fit_is_named_with_the_reason(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ParamError) as caught:
        validate_params(INFO, params)
    assert message in str(caught.value)


def test_an_experiment_without_parameters_says_so() -> None:
    with pytest.raises(ParamError, match="'n' is not a parameter of 'bare'; it has no parameters"):
        validate_params(ExperimentInfo(slug="bare", digest="d"), {"n": 1})


def test_an_open_experiment_takes_what_it_did_not_declare() -> None:
    assert validate_params(OPEN, {"extra": [1], "n": 2}) == {"n": 2, "extra": [1]}
    with pytest.raises(ParamError, match="parameter 'n' of 'open'"):
        validate_params(OPEN, {"n": "x"})


def test_an_error_begins_with_the_place_where_it_is_known() -> None:
    with pytest.raises(ParamError, match=r"^a.yaml:7:3: 'rat' is not a parameter"):
        validate_params(
            INFO, {"count": 1, "rat": 1}, place=lambda name: "a.yaml:7:3" if name == "rat" else ""
        )


def test_a_default_that_cannot_be_in_a_key_must_be_given() -> None:
    info = ExperimentInfo(slug="demo", digest="d", params={"f": ParamInfo(name="f", default=print)})
    check_defaults(info, ["f"])
    with pytest.raises(ParamError, match="the default of 'f' of 'demo' cannot be written as JSON"):
        check_defaults(info, [])


@given(st.integers(10**400, 10**401))
def test_a_number_too_large_for_a_float_stays_whole(value: int) -> None:
    assert validate_params(INFO, {"count": 1, "rate": value})["rate"] == value


@given(st.integers(1, 100), st.floats(0, 1e9), st.sampled_from(["fast", "slow", "safe"]))
def test_validating_twice_changes_nothing(count: int, rate: float, mode: str) -> None:
    once = validate_params(INFO, {"count": count, "rate": rate, "mode": mode})
    assert validate_params(INFO, once) == once
