"""What may be returned, and what is refused before it costs anything."""

from __future__ import annotations

import json
import math
from enum import StrEnum
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.trial.point.values import Checker, RefusedError, flat_numbers


class Colour(StrEnum):
    RED = "red"


def test_plain_values_pass_unchanged():
    value = {"a": 1, "b": 2.5, "c": None, "d": True, "e": "text", "f": [1, {"g": []}]}
    assert Checker().plain(value) == value
    assert Checker().plain(None) == {}


def test_numbers_of_numpy_tuples_enums_and_other_mappings_become_plain():
    value = MappingProxyType(
        {
            "f32": np.float32(0.5),
            "i": np.int64(3),
            "flag": np.bool_(True),
            "zero_d": np.array(4.0),
            "pair": (1, 2),
            "colour": Colour.RED,
            7: "seven",
        }
    )
    plain = Checker().plain(value)
    assert plain == {
        "f32": 0.5,
        "i": 3,
        "flag": True,
        "zero_d": 4.0,
        "pair": [1, 2],
        "colour": "red",
        "7": "seven",
    }
    assert type(plain["colour"]) is str
    assert json.loads(json.dumps(plain)) == plain


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (3.5, "must return a dict"),
        ([1], "must return a dict"),
        ({"a": {1, 2}}, "'a' is of type set"),
        ({"a": np.zeros(3)}, r"use \.tolist\(\)"),
        ({"a": {"b": b"x"}}, "'a.b' is of type bytes"),
        ({None: 1}, "keys must be text"),
        ({"a": {True: 1}}, "a key of a is of type bool"),
        ({"a": 1 << 5000}, "integer of 5001 bits"),
        ({"a": "x" * 2_000_000}, "larger than 1048576 bytes"),
        ({"a": ["é" * 600_000]}, "larger than"),
        ({"a": list(range(200_000))}, "larger than"),
        ({"x" * 2_000_000: 1}, "larger than"),
        ({"x" * 500: object()}, r"xxx\.\.\.' is of type object"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name(value, words):
    with pytest.raises(RefusedError, match=words):
        Checker().plain(value)


def test_what_holds_itself_is_refused():
    ring: list = []
    ring.append(ring)
    with pytest.raises(RefusedError, match="nested deeper than 32"):
        Checker().plain({"a": ring})


def test_all_iterations_together_have_a_budget_too():
    checker = Checker(total_bytes=3000)
    checker.plain({"a": "x" * 1000})
    checker.plain({"a": "x" * 1000})
    with pytest.raises(RefusedError, match="all iterations together"):
        checker.plain({"a": "x" * 1000})


def test_nan_and_infinity_are_null_and_counted():
    checker = Checker()
    assert checker.plain({"a": math.nan, "b": {"c": [math.inf, 1.0]}}) == {"a": None, "b": {"c": [None, 1.0]}}
    checker.plain({"a": -math.inf})
    assert checker.not_finite == {"a": 2, "b.c": 1}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=20,
    )
)
def test_whatever_is_accepted_is_strict_json(value):
    try:
        plain = Checker().plain({"value": value})
    except RefusedError:
        return
    text = json.dumps(plain, allow_nan=False, ensure_ascii=False)
    assert json.loads(text.encode()) == plain


def test_numbers_inside_mappings_have_dotted_names_and_lists_are_left_alone():
    row = {"a": 1, "b": {"c": 2.5, "d": {"e": True}}, "f": [1, 2], "g": "text", "h": None}
    assert flat_numbers(row) == {"a": 1, "b.c": 2.5, "b.d.e": True}
