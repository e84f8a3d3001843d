from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import StoreError
from proctor.quantity import number
from proctor.store.body import Body, ordered
from proctor.store.rows import dump, pack

PARTS = {
    "phases_s": {"work": 1.5},
    "metrics": {"duration_s": {"p50": 0.25}},
    "iterations": [{"duration_s": 0.25}],
    "ledger": {"cpu_s": 0.5},
    "usage": {},
    "notes": ["noisy"],
    "failure": None,
    "artifacts": [],
}


def test_iterations_come_first_and_aggregates_last_and_what_is_empty_is_left_out():
    assert list(ordered(PARTS)) == ["iterations", "ledger", "notes", "phases_s", "metrics"]


def test_without_iterations_the_aggregates_come_first():
    parts = {**PARTS, "iterations": (), "usage": {"cost_usd": 0.5}}
    assert list(ordered(parts)) == ["metrics", "usage", "ledger", "notes", "phases_s"]


@pytest.mark.parametrize("order", [list(PARTS), list(ordered(PARTS))])
def test_a_part_is_found_in_whatever_order_the_body_was_written(order):
    body = Body(json.dumps({name: PARTS[name] for name in order}, separators=(",", ":")).encode())
    assert body.get("ledger") == {"cpu_s": 0.5}
    assert body.get("iterations") == [{"duration_s": 0.25}]
    assert body.get("metrics") == {"duration_s": {"p50": 0.25}}
    assert body.get("usage") == PARTS["usage"] or body.get("usage") is None


def test_only_what_leads_to_a_part_is_decoded():
    body = Body(pack(ordered(PARTS)))
    assert body.get("iterations")
    assert set(body._known) == {"iterations"}
    assert body.get("usage") is None
    assert {name for name, value in body._known.items() if value} == {"iterations"}


@pytest.mark.parametrize("with_iterations", [True, False])
def test_the_text_of_the_aggregates_is_what_was_stored(with_iterations):
    parts = PARTS if with_iterations else {**PARTS, "iterations": ()}
    body = Body(pack(ordered(parts)))
    assert json.loads(body.text("metrics")) == PARTS["metrics"]
    assert body.get("ledger") == {"cpu_s": 0.5}
    assert Body(b"{}").text("metrics") == b""


@pytest.mark.parametrize(
    "parts",
    [
        {"ledger": {"metrics": {"a": 1}}},
        {"ledger": {"metrics": {"a": 1}}, "metrics": {"b": {"metrics": {"c": 1}}, "d": [{"metrics": {}}]}},
        {"ledger": {"metrics": {"a": 1}, "x": 1}, "metrics": {"b": 1}},
        {"ledger": {"x": "{"}, "metrics": {"b": "}"}},
    ],
)
@pytest.mark.parametrize("rows", [[{"a": 1}], [{"a": [1]}]])
def test_the_text_of_the_aggregates_is_not_that_of_something_called_so(parts, rows):
    text = Body(pack(ordered({"iterations": rows, **parts}))).text("metrics")
    assert (json.loads(text) if text else None) == parts.get("metrics")


@pytest.mark.parametrize(
    "parts",
    [
        {"ledger": {"noise": {"a": [1]}, "x": 1.5}, "metrics": {"m": 1}},
        {"ledger": {"noise": {"a": 1}}, "metrics": {"noise": {"a": 2}}},
        {"ledger": {"x": 1}, "metrics": {"noise": {"a": 2}}},
        {"ledger": {"noise": 3}},
        {"ledger": {"x": 1}, "metrics": {"m": 1}},
        {"metrics": {"noise": 1}},
    ],
)
@pytest.mark.parametrize("rows", [[{"noise": 1}], [{"noise": [1]}], []])
def test_one_thing_inside_a_part_is_that_of_the_part(parts, rows):
    body = Body(pack(ordered({"iterations": rows, **parts})))
    expected = parts.get("ledger", {}).get("noise")
    assert body.inside("ledger", "noise") == expected
    assert (body.get("ledger"), body.get("metrics")) == (parts.get("ledger"), parts.get("metrics"))
    assert body.inside("ledger", "noise") == expected


def test_a_name_inside_another_part_is_not_taken_for_the_part():
    parts = {"metrics": {"usage": 1, "iterations": [2], "x": '"ledger":{"a":1}'}}
    body = Body(pack(ordered(parts)))
    assert (body.get("usage"), body.get("iterations"), body.get("ledger")) == (None, None, None)
    assert body.get("metrics") == parts["metrics"]


def test_a_long_body_is_read_although_it_is_compressed():
    data = pack(ordered({**PARTS, "notes": ["x" * 5000]}))
    assert data[:1] != b"{"
    body = Body(data)
    assert body.mentions(b'"duration_s"')
    assert not body.mentions(b'"cost_usd"')
    assert body.get("notes") == ["x" * 5000]


def test_a_damaged_body_is_an_error_of_the_store():
    with pytest.raises(StoreError, match="damaged"):
        Body(b'{"metrics":{"a":}}').get("metrics")


VALUES = st.one_of(
    st.integers(-(10**400), 10**400) | st.floats() | st.booleans() | st.none(),
    st.text(max_size=8) | st.sampled_from(['"x":5', "},{", "}],", '}],"', "]", '{"x":1}', "\\"]),
    st.lists(st.integers(0, 3), max_size=2),
    st.dictionaries(st.sampled_from(["x", "y"]), st.integers(0, 3), max_size=2),
)
ROWS = st.lists(st.dictionaries(st.sampled_from(["x", "y", "é", 'q"', "duration_s"]), VALUES), max_size=4)


@given(rows=ROWS, name=st.sampled_from(["x", "é", 'q"', "absent"]), more=st.booleans(), first=st.booleans())
def test_a_column_is_what_decoding_every_row_gives(rows, name, more, first):
    parts = {"iterations": rows, "ledger": {"cpu_s": 0.5} if more else {}}
    stored = ordered(parts) if first else {"ledger": {"x": 9}, **parts}
    wanted = tuple(value for row in rows if (value := number(row.get(name))) is not None)
    body = Body(pack(stored))
    assert body.column(name) == wanted
    assert body.get("ledger") == (stored.get("ledger") if "ledger" in stored else None)
    if rows:
        assert dump(body.get("iterations")) == dump(rows)
    assert body.column(name) == wanted
