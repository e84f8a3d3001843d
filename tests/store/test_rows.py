"""Rows become records again, whoever wrote them."""

from __future__ import annotations

import json
import math
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import StoreError
from proctor.model.outcome import Outcome
from proctor.model.record import Artifact, AttemptRecord, Failure
from proctor.store.rows import attempt_record, pack, record_body, result_rows, unpack

DOC = '{"params":{"n":1},"overrides":{"agent_options":{"x":1}},"seed":0,"path":null}'


def row(body: bytes) -> tuple[object, ...]:
    return (1, "passed", 1, 1.0, 2.0, None, "w", body)


def result(body: bytes | None, kind: str = "experiment") -> tuple[object, ...]:
    ended = (1, "passed", 1.0, 2.0, 0.5, 0.25) if body else (None,) * 6
    return (0, "k", kind, "s", None, None, DOC, *ended, "digest", body)


def make(**fields: object) -> AttemptRecord:
    head = {"key": "k", "number": 1, "outcome": Outcome.PASSED, "started_at": 1.0, "ended_at": 2.0}
    return AttemptRecord(**{**head, "worker": "w", **fields})


@pytest.mark.parametrize(
    "record",
    [
        make(),
        make(
            failure=Failure(phase="setup", type="E", message="m"),
            artifacts=(Artifact(name="a", digest="d", size_bytes=1),),
            notes=("noisy", "nul \0 surrogate \udcff é"),
            iterations=({"duration_s": 0.25}, {"x": [1, {"y": None}]}),
            metrics={"duration_s": {"p50": 0.25, "count": 2}},
            suspect=True,
        ),
        make(notes=("x" * 5000,)),
    ],
)
def test_a_record_comes_back_from_its_columns_and_its_body(record):
    assert attempt_record(row(record_body(record)), "k") == record


@pytest.mark.parametrize("compressed", [False, True])
def test_what_earlier_versions_wrote_is_read(compressed):
    body = {"metrics": {"a": {"p50": math.inf}}, "iterations": [{"a": math.nan}], "notes": ["\udcff"]}
    data = json.dumps(body).encode()
    found = attempt_record(row(zlib.compress(data) if compressed else data), "k")
    assert found.metrics == {"a": {"p50": math.inf}}
    assert math.isnan(found.iterations[0]["a"])
    assert found.notes == ("\udcff",)
    (seen,) = result_rows([result(zlib.compress(data) if compressed else data)])
    assert seen.measured.metrics == {"a": {"p50": None}}


def test_what_is_not_finite_is_stored_as_null():
    assert unpack(pack({"a": [math.nan, {"b": -math.inf}], "c": 1.5})) == {"a": [None, {"b": None}], "c": 1.5}


def test_what_is_not_json_is_refused_with_its_type():
    with pytest.raises(StoreError, match="object is not JSON"):
        pack({"a": object()})


def test_parts_of_a_later_version_are_passed_over():
    assert attempt_record(row(b'{"later":{"x":1},"suspect":true}'), "k") == make(suspect=True)


def test_a_result_has_what_was_measured_and_nothing_where_there_is_none():
    body = record_body(make(metrics={"a": 1.5}, usage={"cost_usd": 2}, notes=("n",)))
    found, none = result_rows([result(body), result(None, "task")])
    assert (found.params, found.number, found.work_s) == ({"n": 1}, 1, 0.25)
    assert (found.subject_digest, none.subject_digest) == ("digest", "digest")
    assert (found.measured.metrics, found.measured.usage) == ({"a": 1.5}, {"cost_usd": 2})
    assert bytes(found.measured.written_metrics) == b'{"a":1.5}'
    assert (none.params, none.options, none.outcome) == ({}, {"x": 1}, None)
    assert (none.measured.metrics, none.measured.failure) == ({}, None)


NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(), VALUES, max_size=3)


@given(
    metrics=st.dictionaries(st.text(), VALUES, max_size=3), rows=st.lists(st.dictionaries(st.text(), VALUES))
)
def test_whatever_json_holds_is_read_as_it_was_written(metrics, rows):
    record = make(metrics=metrics, iterations=tuple(rows))
    assert repr(attempt_record(row(record_body(record)), "k")) == repr(record)
