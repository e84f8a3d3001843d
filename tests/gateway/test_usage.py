from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.gateway import usage
from proctor.gateway.apis import Api, recognise
from proctor.gateway.body import Body
from proctor.gateway.call_options import wanted
from proctor.gateway.provider.replies import asking, events
from proctor.gateway.provider.script import Tool, Turn
from proctor.gateway.usage import StreamMeter, Usage, usage_of

PATHS = {
    Api.CHAT: "/chat/completions",
    Api.RESPONSES: "/responses",
    Api.MESSAGES: "/messages",
    Api.GEMINI: "/models/m:streamGenerateContent",
}
USED = Usage(prompt_tokens=70, completion_tokens=20, cached_tokens=30)


def stream(api: Api, turn: Turn) -> bytes:
    route = recognise(PATHS[api])
    document = {"model": "m", "stream": True, "stream_options": {"include_usage": True}}
    body = Body.read(json.dumps(document).encode())
    return b"".join(events(asking(route, wanted(route, body), body.values), turn, 1))


@pytest.mark.parametrize("api", list(Api))
@given(cuts=st.lists(st.integers(0, 4000)), text=st.text(max_size=40), drops=st.booleans())
def test_usage_is_found_wherever_the_stream_is_cut_into_chunks(api, cuts, text, drops):
    turn = Turn(text=text, tools=(Tool(name="shell", arguments={"command": "ls"}),), usage=USED)
    data = stream(api, turn)
    meter = StreamMeter(api, drops_usage=drops and api is Api.CHAT)
    places = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    chunks = [data[start:end] for start, end in itertools.pairwise(places)]
    passed = b"".join(map(meter.feed, chunks)) + meter.end()
    assert (meter.usage, meter.finished, meter.error) == (USED, True, "")
    if drops and api is Api.CHAT:
        assert b'"usage"' not in passed
        assert passed.endswith(b"data: [DONE]\n\n")
        assert len(data) - len(passed) == len(data.split(b"\n\n")[-3]) + 2
    else:
        assert passed == data


@pytest.mark.parametrize("newline", [b"\r\n", b"\r"])
def test_streams_may_have_other_line_ends(newline):
    data = stream(Api.MESSAGES, Turn(text="a b", usage=USED)).replace(b"\n", newline)
    meter = StreamMeter(Api.MESSAGES)
    assert meter.feed(data) == data
    assert (meter.usage, meter.finished) == (USED, True)


@pytest.mark.parametrize(
    ("api", "event"),
    [
        (Api.CHAT, b'data: {"error": {"message": "no more"}}\n\n'),
        (Api.MESSAGES, b'event: error\ndata: {"type": "error", "error": {"message": "no more"}}\n\n'),
        (Api.GEMINI, b'data: {"error": {"code": 503, "message": "no more"}}\n\n'),
        (
            Api.RESPONSES,
            b'data: {"type": "response.failed", "response": {"error": {"message": "no more"}}}\n\n',
        ),
    ],
)
def test_an_error_inside_a_stream_is_seen(api, event):
    meter = StreamMeter(api)
    assert meter.feed(event) == event
    assert meter.error == "no more"


def test_strange_events_pass():
    meter = StreamMeter(Api.CHAT)
    odd = b': comment\n\ndata: {"usage": {\n\ndata: {"choices": 5, "usage": {"prompt_tokens": 1}}\n\n'
    odd += b'data: ["usage": {}]\n\ndata: {"choices":["x"],"finish_reason": "stop"}\n\n'
    assert meter.feed(odd) == odd


@pytest.mark.parametrize(
    ("api", "raw", "used"),
    [
        (
            Api.CHAT,
            {"prompt_tokens": 9, "completion_tokens": 4, "cost": 0.25, "prompt_tokens_details": None},
            Usage(prompt_tokens=9, completion_tokens=4, stated_usd=0.25),
        ),
        (
            Api.MESSAGES,
            {
                "input_tokens": 1,
                "cache_creation_input_tokens": 2,
                "cache_read_input_tokens": 4,
                "output_tokens": 8,
            },
            Usage(prompt_tokens=7, completion_tokens=8, cached_tokens=4, cache_write_tokens=2),
        ),
        (
            Api.GEMINI,
            {
                "promptTokenCount": 5,
                "toolUsePromptTokenCount": 1,
                "candidatesTokenCount": 2,
                "thoughtsTokenCount": 3,
            },
            Usage(prompt_tokens=6, completion_tokens=5, reasoning_tokens=3),
        ),
    ],
)
def test_tokens_are_counted_as_each_provider_means_them(api, raw, used):
    assert usage_of(api, {"usageMetadata" if api is Api.GEMINI else "usage": raw}) == used


def test_an_answer_without_usage_has_none():
    for document in ({}, {"usage": None}, [], "x", None):
        assert usage_of(Api.CHAT, document) is None


def test_an_event_that_comes_in_many_pieces_is_looked_through_once(monkeypatch):
    ends, looked = usage._EVENT_END, []

    class Counting:
        def finditer(self, data, at=0):
            looked.append(len(data) - at)
            return ends.finditer(data, at)

    monkeypatch.setattr(usage, "_EVENT_END", Counting())
    meter, pieces = StreamMeter(Api.CHAT), 200
    for _ in range(pieces):
        meter.feed(b"data: " + b"x" * 1000)
    assert sum(looked) < pieces * 1010
    meter.feed(b"\r\n\r")
    meter.feed(b"\ndata: [DONE]\n\n")
    assert meter.finished


@pytest.mark.parametrize("cost", [-1, float("nan"), float("inf")])
def test_a_cost_that_is_none_fills_up_no_budget(cost):
    raw = {"prompt_tokens": 1, "input_tokens": 1, "cost": cost}
    for api in (Api.CHAT, Api.RESPONSES, Api.MESSAGES):
        assert usage_of(api, {"usage": raw}).stated_usd is None
