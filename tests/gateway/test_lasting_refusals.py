"""A provider that refuses for good is asked no more in that run, and no agent can bring that about alone."""

from __future__ import annotations

import aiohttp
import pytest
from tests.gateway.conftest import KEY, running, says
from tests.gateway.test_exchange import post, request

from proctor.gateway.apis import Api
from proctor.gateway.provider.script import Fault

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("status", [401, 402, 403])
async def test_after_the_first_refusal_of_a_run_nobody_is_asked(status):
    refuses = [Fault(status=status, message="no", times=100)]
    async with running(says("hi"), faults=refuses) as setup, aiohttp.ClientSession() as http:
        first, other = setup.access(), setup.access(trial=1)
        ended = []
        other.on_exhausted = ended.append
        for access in (first, first, other):
            got, text = await post(setup, http, access)
            assert (got, KEY in text) == (status, False)
        for access in (first, other):
            await setup.gateway.end(access)
        assert setup.provider.statuses == [status]
        assert [each.failure for each in (*first.calls, *other.calls)] == [
            "provider_failed",
            "barred",
            "barred",
        ]
        assert other.failure.kind == first.failure.kind == "barred"
        assert f"{status}" in ended[0]
        assert other.sums().requests == 0, "it never reached the provider"
        assert setup.gateway.lasting_refusal(first.run_id, "fake/priced") == ended[0]


async def test_another_run_is_not_concerned():
    async with running(says("hi"), faults=[Fault(status=401)]) as setup, aiohttp.ClientSession() as http:
        assert (await post(setup, http, setup.access()))[0] == 401
        assert (await post(setup, http, setup.access(run_id="another")))[0] == 200
        assert setup.gateway.lasting_refusal("another", "fake/priced") == ""


@pytest.mark.parametrize("status", [402, 403])
async def test_one_agent_alone_cannot_end_the_calls_of_others(status):
    answers = [200, status, status, 200, status, status]
    faults = [Fault(status=0 if each == 200 else each, message="flagged") for each in answers]
    async with running(says("hi"), faults=faults) as setup, aiohttp.ClientSession() as http:
        hostile, other, third = (setup.access(trial=number) for number in range(3))
        assert (await post(setup, http, other))[0] == 200
        for _ in range(2):
            assert (await post(setup, http, hostile))[0] == status
        assert (await post(setup, http, other))[0] == 200, "an answer clears it of the suspicion"
        assert (await post(setup, http, hostile))[0] == status
        assert (await post(setup, http, third))[0] == status
        assert (await post(setup, http, other))[0] == status, "two attempts in a row are refused"
        assert setup.provider.statuses == answers
        assert hostile.failure.kind == "provider_failed"


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("This model's maximum context length is 8192 tokens", "context_length"),
        ("The input token count (9) exceeds the maximum number of tokens allowed (8)", "context_length"),
        ("input length and `max_tokens` exceed context limit: 9 > 8", "context_length"),
        ("'tools' is not supported", "rejected"),
    ],
)
async def test_a_refusal_of_the_request_itself_is_named_and_quoted(message, kind):
    async with running(says("hi"), faults=[Fault(status=400, message=message)]) as setup:
        async with aiohttp.ClientSession() as http:
            access = setup.access()
            assert (await post(setup, http, access))[0] == 400
        (call,) = access.calls
        assert (call.failure, call.message, call.answered) == (kind, f"fake answered 400: {message}", False)
        assert access.failure is None


async def test_what_an_agent_named_itself_and_is_missing_is_not_the_providers_failure():
    faults = [Fault(), Fault(status=404, message="no such container")]
    async with running(says("hi"), faults=faults) as setup, aiohttp.ClientSession() as http:
        access = setup.access()
        assert [(await post(setup, http, access))[0] for _ in faults] == [200, 404]
        assert ([each.failure for each in access.calls], access.failure) == (["", "rejected"], None)


async def test_a_request_that_nobody_can_answer_is_remembered():
    async with running(says("hi")) as setup, aiohttp.ClientSession() as http:
        access = setup.access()
        path, body = request(Api.CHAT)
        headers = {"x-api-key": access.token}
        for data, reason in (
            (b"{", "JSON"),
            (b'{"model": "other", "messages": []}', "may not use the model 'other'"),
        ):
            async with http.post(setup.gateway.base_url + path, data=data, headers=headers) as answer:
                assert answer.status in {400, 404}
            assert reason in access.refusal
        async with http.post(f"{setup.gateway.base_url}/v1/embeddings", json=body, headers=headers) as answer:
            assert answer.status == 404
        assert "the gateway has no POST /v1/embeddings" in access.refusal
        assert (access.calls, setup.provider.statuses) == ([], [])
