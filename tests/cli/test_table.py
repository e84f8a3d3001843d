"""What is printed as JSON is what the standard library would print."""

from __future__ import annotations

import io
import json
import sys
from enum import IntEnum, StrEnum
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.cli.table import LONG, broken, print_json, seconds


class Word(StrEnum):
    """Text that is not exactly text."""

    A = "a"


class Number(IntEnum):
    """A number that is not exactly a number."""

    ONE = 1


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from([*Word, *Number]),
    lambda inside: (
        st.lists(inside, max_size=4)
        | st.tuples(inside, inside)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.booleans() | st.none(), inside, max_size=4)
    ),
    max_leaves=20,
)


def printed(value: object) -> str:
    stream, sys.stdout = sys.stdout, io.StringIO()
    try:
        print_json(value)
        return sys.stdout.getvalue()
    finally:
        sys.stdout = stream


@given(plain)
def test_it_is_what_the_standard_library_prints(value):
    assert printed(value) == json.dumps(value, indent=2, default=str) + "\n"


@pytest.mark.parametrize("value", [{"at": Path("a")}, [Path("b")], Path("c"), {1.5: [{}], None: [[]]}])
def test_what_is_no_json_is_printed_as_text(value):
    assert printed(value) == json.dumps(value, indent=2, default=str) + "\n"


def test_of_a_long_list_each_item_has_a_line():
    value = {"points": [{"n": n, "at": Path("a"), "in": [n]} for n in range(LONG + 1)], "last": 1}
    text = printed(value)
    assert json.loads(text) == json.loads(json.dumps(value, default=str))
    assert text.splitlines()[2] == '    {"n": 0, "at": "a", "in": [0]},'
    assert len(text.splitlines()) == LONG + 6


def test_a_mark_stays_beside_a_word_that_is_too_long_for_the_line():
    path = "/a/very/long/path/of/a/task/in/a/folder/task.toml:"
    assert broken(f"! {path} 'x' is not a key", 30, "  ") == [f"! {path}", "  'x' is not a key"]


def test_no_time_at_all_has_a_unit_that_people_use():
    assert [seconds(0), seconds(5e-10), seconds(0.25), seconds(None)] == ["0 s", "0.5 ns", "250 ms", "–"]
