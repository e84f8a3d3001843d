from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.gateway.apis import Api, recognise
from proctor.gateway.body import Body, BodyError, upstream_changes, wanted

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
    data = b'{ "b" : 1.50e3,\n "model":"x", "c":"\\u00e9\xc3\xa9" , "model": "y"}'
    assert Body.read(data).changed({"model": "z"}) == (
        b'{ "b" : 1.50e3,\n "model":"z", "c":"\\u00e9\xc3\xa9" , "model": "z"}'
    )
    assert Body.read(b"{}").changed({"a": 1}) == b'{"a": 1}'


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{", b'{"a"}', b'{"a":}', b'{"a":1,}', b'{"a":1} x', b"\xff", b'{"a":' + b"[" * 99999],
)
def test_a_body_that_is_no_object_is_refused(data):
    with pytest.raises(BodyError):
        Body.read(data)


def changes(path: str, document: dict, *, hosted: bool = True) -> dict:
    route, body = recognise(path), Body.read(json.dumps(document).encode())
    assert route
    return upstream_changes(route, body, wanted(route, body), "m", hosted=hosted)


def test_the_usage_of_a_chat_stream_is_asked_for_where_the_agent_did_not():
    added = {"stream_options": {"include_usage": True}}
    assert changes("/v1/chat/completions", {"model": "m", "stream": True}) == added
    other = {"model": "m", "stream": True, "stream_options": {"x": 1, "include_usage": False}}
    assert changes("/v1/chat/completions", other) == {"stream_options": {"x": 1, "include_usage": True}}
    assert changes("/v1/chat/completions", {"model": "m", "stream": True, **added}) == {}
    assert changes("/v1/chat/completions", {"model": "m"}) == {}
    assert changes("/v1/messages", {"model": "x/m", "stream": True}) == {"model": "m"}


@pytest.mark.parametrize(
    ("path", "tool"),
    [
        ("/v1/responses", {"type": "web_search"}),
        ("/v1/messages", {"type": "web_fetch_20250910", "name": "web_fetch"}),
        ("/v1beta/models/m:generateContent", {"googleSearch": {}}),
    ],
)
def test_hosted_tools_are_taken_away_where_the_task_has_no_network(path, tool):
    own = {"type": "function", "name": "shell", "functionDeclarations": [{"name": "shell"}]}
    document = {"model": "m", "tools": [tool, own], "plugins": [{"id": "web"}]}
    assert changes(path, document) == {}
    assert changes(path, document, hosted=False) == {"tools": [own], "plugins": []}


@pytest.mark.parametrize(
    ("path", "document", "most"),
    [
        ("/chat/completions", {"max_tokens": 5, "max_completion_tokens": 7, "n": 2}, 14),
        ("/v1/responses", {"max_output_tokens": 9}, 9),
        ("/v1/messages", {"max_tokens": 9}, 9),
        ("/v1beta/models/a/b:generateContent", {"generationConfig": {"maxOutputTokens": 3}}, 3),
        ("/chat/completions", {"max_tokens": "many"}, None),
    ],
)
def test_the_most_that_a_request_allows_is_known(path, document, most):
    route = recognise(path)
    assert route
    assert wanted(route, Body.read(json.dumps(document).encode())).max_tokens == most


def test_requests_are_known_by_the_end_of_their_path():
    found = recognise("/gateway/v1beta/models/gemini/flash:streamGenerateContent")
    assert found
    assert (found.api, found.model, found.streams) == (Api.GEMINI, "gemini/flash", True)
    assert found.path("flash 2") == "/models/flash%202:streamGenerateContent"
    for path in ("/v1/embeddings", "/v1/chat/completions/x", "/xresponses", "/v1beta/models/m:embedContent"):
        assert recognise(path) is None
