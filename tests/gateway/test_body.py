from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.gateway.body import REMOVED, Body, BodyError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON), st.sampled_from([None, 1, "\t"]), st.booleans())
def test_a_body_is_read_as_json_reads_it(document, indent, ascii_only):
    data = json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode(errors="surrogatepass")
    try:
        data.decode()
    except UnicodeDecodeError:
        return
    body = Body.read(data)
    assert body.values == document
    assert body.changed({}) == data


@given(st.dictionaries(st.text(), JSON), JSON)
def test_one_value_is_changed_and_all_else_stays(document, value):
    data = json.dumps({**document, "model": "a"}).encode()
    changed = json.loads(Body.read(data).changed({"model": value, "new": 1}))
    assert changed == {**document, "model": value, "new": 1}


def test_what_is_not_changed_keeps_its_bytes():
    data = b'{ "b" : 1.50e3,\n "model":"x", "c":"\\u00e9\xc3\xa9" }'
    assert Body.read(data).changed({"model": "z"}) == (
        b'{ "b" : 1.50e3,\n "model":"z", "c":"\\u00e9\xc3\xa9" }'
    )
    assert Body.read(b"{}").changed({"a": 1}) == b'{"a": 1}'


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{", b'{"a"}', b'{"a":}', b'{"a":1,}', b'{"a":1} x', b"\xff", b'{"a":' + b"[" * 99999],
)
def test_a_body_that_is_no_object_is_refused(data):
    with pytest.raises(BodyError):
        Body.read(data)


@given(st.dictionaries(st.text(), JSON, min_size=1), st.data(), st.sampled_from([None, 1]))
def test_a_key_can_be_taken_out_wherever_it_is(document, data, indent):
    gone = data.draw(st.sets(st.sampled_from(sorted(document))))
    body = Body.read(json.dumps(document, indent=indent).encode())
    changed = json.loads(body.changed({**dict.fromkeys(gone, REMOVED), "new key": 1, "no key": REMOVED}))
    assert changed == {key: value for key, value in document.items() if key not in gone} | {"new key": 1}


@pytest.mark.parametrize(
    "data",
    [
        b'{"model": "a", "model": "b"}',
        b'{"tools": [], "t\\u006fols": []}',
        b'{"messages": [{"role": "user", "content": [{"type": "text", "type": "image_url"}]}]}',
    ],
)
def test_a_key_that_comes_twice_is_refused_at_any_depth(data):
    with pytest.raises(BodyError, match="comes twice"):
        Body.read(data)


def test_a_large_body_of_nothing_but_brackets_is_not_read():
    with pytest.raises(BodyError, match="lists and objects"):
        Body.read(b'{"input": [' + b"[]," * 600_000 + b"[]]}")
