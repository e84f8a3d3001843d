"""Lists that are decoded when somebody looks are what decoding everything gives."""

from __future__ import annotations

import copy
import json
import pickle
import zlib

import pytest

from proctor.model.outcome import Outcome
from proctor.model.record import Artifact, AttemptRecord
from proctor.store import rows
from proctor.store.body import ordered
from proctor.store.late import Artifacts, Iterations, set_aside

ROWS = [{"index": 0, "duration_s": 0.25}, {"index": 1, "duration_s": 1e-3, "note": 'a "{" and ],"'}]
FILES = [
    {"name": "diff.patch", "digest": "d" * 64, "size_bytes": 3, "media_type": "text/plain"},
    {"name": 'odd "}]}" name', "digest": "e" * 64, "size_bytes": 0, "media_type": "text/plain"},
]


def body(**parts: object) -> bytes:
    return rows.dump(ordered(parts)).encode()


def whole(data: bytes) -> object:
    """The body put together again."""
    rest, aside = set_aside(data)
    found = json.loads(rest)
    if aside is not None:
        found[aside.part] = [vars_of(each) for each in aside]
    return found


def vars_of(each: object) -> object:
    if isinstance(each, Artifact):
        return {name: getattr(each, name) for name in Artifact.__dataclass_fields__}
    return each


@pytest.mark.parametrize(
    ("data", "late"),
    [
        (body(iterations=ROWS, ledger={"a": {"b": [1]}}, metrics={"m": 1}), Iterations),
        (body(iterations=ROWS), None),
        (body(iterations=[{"a": [1]}], metrics={"m": 1}), None),
        (body(iterations=[{}, {"a": 1}], metrics={"m": 1}), None),
        (body(metrics={"m": {"x": [{"y": 1}]}}, usage={"u": 1}, artifacts=FILES), Artifacts),
        (body(metrics={"artifacts": [{"a": 1}]}, phases_s={"p": 1.0}), None),
        (body(metrics={"m": 1}, phases_s={"artifacts": [{"a": 1}]}), None),
        (body(usage={"artifacts": [{"a": 1}], "z": [{"b": 2}]}), None),
        (body(usage={"artifacts": [{"a": 1}]}, artifacts=FILES), Artifacts),
        (body(notes=["}]"], metrics={"m": 1}), None),
        (body(metrics={"m": 1}, artifacts=[{**FILES[0], "name": "a:[b"}]), None),
        (body(artifacts=FILES), None),
        (b"{}", None),
    ],
)
def test_a_body_taken_apart_says_what_it_said(data: bytes, late: type | None) -> None:
    assert whole(data) == json.loads(data)
    assert (type(set_aside(data)[1]) if late else set_aside(data)[1]) is late


def test_a_late_list_is_the_tuple_that_it_stands_for() -> None:
    _, late = set_aside(body(iterations=ROWS, metrics={"m": 1}))
    assert len(late) == 2  # counted, not decoded
    assert late.column("duration_s") == (0.25, 1e-3)
    assert late.column("note") == ()
    assert late == tuple(ROWS)
    assert tuple(ROWS) == late
    assert late != tuple(ROWS[:1])
    assert (late[1], late[:1], len(late), list(late)) == (ROWS[1], (ROWS[0],), 2, ROWS)
    assert late.column("duration_s") is None
    assert repr(late) == repr(tuple(ROWS))


def test_copies_are_plain_tuples() -> None:
    _, late = set_aside(body(metrics={"m": 1}, artifacts=FILES))
    plain = tuple(Artifact(**each) for each in FILES)
    for made in (copy.deepcopy(late), pickle.loads(pickle.dumps(late))):
        assert type(made) is tuple
        assert made == plain
    _, again = set_aside(body(metrics={"m": 1}, artifacts=FILES))
    assert again == late
    assert hash(again) == hash(plain)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_record_with_late_lists_equals_the_one_without(compressed: bool) -> None:
    record = AttemptRecord(
        key="k",
        number=1,
        outcome=Outcome.PASSED,
        started_at=1.0,
        ended_at=2.0,
        metrics={"m": {"p50": 1.0}},
        artifacts=tuple(Artifact(**each) for each in FILES),
        worker="w",
    )
    data = rows.record_body(record)
    data = zlib.compress(data) if compressed else data
    row = (1, "passed", 1, 1.0, 2.0, None, "w", data)
    late, plain = (rows.record_of(row, "k", rows.unpack_all([data], late=each)[0]) for each in (True, False))
    assert isinstance(late.artifacts, Artifacts)
    assert late == plain == record
