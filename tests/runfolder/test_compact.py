"""A record that is held compactly says what it said."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from proctor.model.canonical import encode
from proctor.model.outcome import Outcome
from proctor.model.record import Artifact, AttemptRecord
from proctor.runfolder import compact
from proctor.runfolder.compact import Compactor, Numbers


def make(**fields: object) -> AttemptRecord:
    head = {"key": "k", "number": 1, "outcome": Outcome.PASSED, "started_at": 1.0, "ended_at": 2.0}
    return AttemptRecord(**{**head, **fields})


NUMBERS = st.integers(-(2**60), 2**60) | st.floats(allow_nan=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=10,
)


@given(st.lists(st.dictionaries(st.text(max_size=3), VALUES, max_size=4), max_size=4))
def test_every_mapping_is_spelt_as_before(mappings):
    compactor = Compactor()
    for each in mappings:
        found = compactor.record(make(metrics=each, ledger=each), "k")
        assert found.metrics == each
        assert encode(found.metrics) == encode(each)
        assert repr(found.ledger) == repr(each)


def test_only_the_numbers_are_a_records_own():
    compactor = Compactor()
    one, other = (
        compactor.record(
            make(
                metrics={"duration_s": {"p50": value, "count": 3}},
                ledger={"enforced": {"cpu": "cgroup"}, "cpu_s": value},
                artifacts=(Artifact(name="a" + "b" * 9, digest=f"{value}", size_bytes=1),),
            ),
            "k",
        )
        for value in (0.5, 0.25)
    )
    assert isinstance(one.metrics, Numbers)
    assert one.metrics["duration_s"]._shape is other.metrics["duration_s"]._shape
    assert one.ledger["enforced"]["cpu"] is other.ledger["enforced"]["cpu"]
    assert one.artifacts[0].name is other.artifacts[0].name
    assert (one.metrics["duration_s"]["p50"], other.metrics["duration_s"]["p50"]) == (0.5, 0.25)
    assert type(one.metrics["duration_s"]["count"]) is int


def test_a_mapping_behaves_as_one():
    found = Compactor().record(make(metrics={"a": {"b": 1}, "c": math.inf}), "k").metrics
    assert isinstance(found, Mapping)
    assert (len(found), list(found), "a" in found, found.get("x"), found.get("c")) == (
        2, ["a", "c"], True, None, math.inf,
    )  # fmt: skip
    assert {**found["a"]} == {"b": 1}


def test_records_that_have_nothing_in_common_stay_as_they_are(monkeypatch):
    monkeypatch.setattr(compact, "MOST_SHAPES", 1)
    compactor = Compactor()
    first, second = (compactor.record(make(metrics={name: 1.0}), "k").metrics for name in ("a", "b"))
    assert isinstance(first, Numbers)
    assert type(second) is dict
    assert second == {"b": 1.0}
