"""What happens to a call when providers and agents misbehave, and that every token is in the books."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from tests.gateway.conftest import KEY, PRICES, QUICK, RUN, Setup, running, says, until

from proctor.gateway import exchange
from proctor.gateway.apis import Api
from proctor.gateway.app import Gateway
from proctor.gateway.bounds import Bounds
from proctor.gateway.limiter import Retry
from proctor.gateway.provider.script import Asking, Fault, Turn
from proctor.gateway.providers import Provider, Providers
from proctor.gateway.usage import Usage
from proctor.store.spending import Scope

pytestmark = pytest.mark.anyio
PATHS = {
    Api.CHAT: "/v1/chat/completions",
    Api.RESPONSES: "/v1/responses",
    Api.MESSAGES: "/v1/messages",
    Api.GEMINI: "/v1beta/models/priced:generateContent",
}


def request(api: Api, *, streamed: bool = False, text: str = "hello") -> tuple[str, dict]:
    if api is Api.GEMINI:
        path = PATHS[api].replace(":g", ":streamG") + "?alt=sse" if streamed else PATHS[api]
        return path, {"contents": [{"parts": [{"text": text}]}]}
    message = [{"role": "user", "content": text}]
    limit = "max_output_tokens" if api is Api.RESPONSES else "max_tokens"
    content = {"input": message} if api is Api.RESPONSES else {"messages": message}
    return PATHS[api], {"model": "priced", "stream": streamed, limit: 50, **content}


async def post(setup: Setup, http, access, api=Api.CHAT, *, streamed=False, text="hello") -> tuple[int, str]:
    path, body = request(api, streamed=streamed, text=text)
    headers = {"x-api-key": access.token}
    async with http.post(setup.gateway.base_url + path, json=body, headers=headers) as answer:
        return answer.status, await answer.text()


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("status", [429, 500, 503, 529])
async def test_a_provider_that_recovers_is_asked_again_and_the_agent_sees_nothing(status, streamed):
    async with running(says("hi"), errors=[status] * 2) as setup, aiohttp.ClientSession() as http:
        access = setup.access()
        assert (await post(setup, http, access, streamed=streamed))[0] == 200
        await setup.gateway.end(access)
        assert setup.provider.statuses == [status, status, 200]
        assert (access.calls[0].retries, access.failure) == (2, None)


async def test_the_books_say_how_long_a_call_waited_and_worked(store):
    books = {"spending": store.spending}
    async with running(says("hi"), errors=[500], gateway=books) as setup, aiohttp.ClientSession() as http:
        access = setup.access()
        assert (await post(setup, http, access))[0] == 200
        await setup.gateway.end(access)
    (kept,) = store.views.fleet.calls(RUN, 0)
    assert (kept["retries"], kept["status"]) == (1, 200)
    assert kept["waited_s"] > 0
    assert kept["waited_s"] + kept["worked_s"] >= kept["first_token_s"] > 0


async def test_a_provider_that_does_not_recover_is_to_blame():
    async with running(says("hi"), errors=[500] * 99) as setup, aiohttp.ClientSession() as http:
        access = setup.access()
        status, text = await post(setup, http, access)
        await setup.gateway.end(access)
        assert (status, "on purpose" in text) == (500, True)
        assert len(setup.provider.statuses) == QUICK.most + 1
        assert access.failure.kind == "provider_failed"
        assert "fake answered 500: a fault on purpose" in access.failure.message
        assert access.sums().cost_usd == 0


async def test_the_last_call_decides_whether_the_provider_failed():
    async with running(says("hi"), errors=[500] * (QUICK.most + 1)) as setup, aiohttp.ClientSession() as http:
        access = setup.access()
        await post(setup, http, access)
        assert access.failure
        await post(setup, http, access)
        await setup.gateway.end(access)
        assert access.failure is None


@pytest.mark.parametrize("api", list(Api))
async def test_a_model_that_does_not_exist_is_told_apart(api):
    async with running(says("hi"), models=["another"]) as setup, aiohttp.ClientSession() as http:
        access = setup.access()
        assert (await post(setup, http, access, api))[0] == 404
        await setup.gateway.end(access)
        assert access.failure.kind == "model_missing"
        assert "fake has no model 'priced'" in access.failure.message
        assert setup.provider.statuses == [404]


async def test_an_account_without_money_and_a_refused_key_are_not_asked_again():
    faults = [Fault(status=429, message="insufficient_quota"), Fault(status=401, message=f"wrong key {KEY}")]
    async with running(says("hi"), faults=faults) as setup, aiohttp.ClientSession() as http:
        assert (await post(setup, http, setup.access(run_id="another")))[0] == 429
        access = setup.access()
        status, text = await post(setup, http, access)
        await setup.gateway.end(access)
        assert (status, KEY in text) == (401, False)
        assert "refuses the key that Proctor has" in access.failure.message
        assert setup.provider.statuses == [429, 401]


async def test_a_provider_that_cannot_be_reached_is_to_blame():
    known = Provider(name="fake", base_url="http://127.0.0.1:9/v1", apis=frozenset(Api), key=KEY)
    retry = Retry(most=1, first_s=0.01)
    async with Gateway(Providers([known]), PRICES, retry=retry) as gateway, aiohttp.ClientSession() as http:
        access = gateway.issue(run_id=RUN, trial=0, attempt=1, models=("fake/priced",))
        path, body = request(Api.MESSAGES)
        headers = {"x-api-key": access.token}
        async with http.post(gateway.base_url + path, json=body, headers=headers) as answer:
            assert answer.status == 502
            assert (await answer.json())["error"]["message"].startswith("the connection to fake failed")
        await gateway.end(access)
        assert access.failure.kind == "provider_failed"


@pytest.mark.parametrize("api", list(Api))
async def test_a_stream_that_is_cut_ends_with_an_error_in_it(api):
    faults = [Fault(cut_after=3)]
    async with running(says("a b c d e f"), faults=faults) as setup, aiohttp.ClientSession() as http:
        access = setup.access()
        status, text = await post(setup, http, access, api, streamed=True)
        await setup.gateway.end(access)
        assert status == 200
        assert "the connection to fake failed" in text.split("\n\n")[-2]
        assert (access.failure.kind, access.calls[0].usage) == ("provider_failed", None)


async def test_an_answer_that_is_cut_before_anything_was_passed_on_is_asked_for_again():
    async with running(says("hi"), faults=[Fault(cut_after=0)]) as setup, aiohttp.ClientSession() as http:
        access = setup.access()
        for streamed in (False, True):
            setup.provider._faults = [Fault(cut_after=0)]
            assert (await post(setup, http, access, streamed=streamed))[0] == 200
        await setup.gateway.end(access)
        assert [(call.retries, call.lost) for call in access.calls] == [(1, 1), (1, 1)]


async def test_an_answer_that_is_not_json_passes_and_its_usage_is_unknown():
    async with running(says("hi"), faults=[Fault(malformed=True)]) as setup, aiohttp.ClientSession() as http:
        access = setup.access()
        assert (await post(setup, http, access))[0] == 200
        await setup.gateway.end(access)
        assert (access.failure.message, access.sums().unknown_usage) == ("the answer is not JSON", 1)


async def test_a_stream_is_kept_alive_while_it_waits_and_then_says_what_went_wrong():
    faults = [Fault(status=429, retry_after_s=0.3), Fault(status=400, message="no")]
    options = {"grace_s": 0.01, "beat_s": 0.02}
    async with running(says("hi"), faults=faults, gateway=options) as setup, aiohttp.ClientSession() as http:
        access = setup.access()
        status, text = await post(setup, http, access, Api.MESSAGES, streamed=True)
        assert (status, text.startswith(": waiting for the model\n\n")) == (200, True)
        assert text.rstrip().split("\n\n")[-1].startswith("event: error\ndata: ")
        setup.provider._faults = [Fault(status=429, retry_after_s=0.3)]
        status, text = await post(setup, http, access, Api.MESSAGES, streamed=True)
        assert text.count(": waiting") >= 1
        assert "event: message_stop" in text
        await setup.gateway.end(access)
        assert access.calls[1].waited_s >= 0.3 > access.calls[1].worked_s


async def test_an_unstreamed_call_does_not_wait_longer_than_clients_do():
    faults = [Fault(status=429, retry_after_s=60)]
    async with running(says("hi"), faults=faults) as setup, aiohttp.ClientSession() as http:
        access = setup.access()
        assert (await post(setup, http, access))[0] == 429
        await setup.gateway.end(access)
        assert setup.provider.statuses == [429]
        assert access.failure.kind == "provider_failed"


async def test_an_agent_that_goes_away_while_it_waits_costs_nothing(store):
    faults = [Fault(status=429, retry_after_s=2)]
    options = {"spending": store.spending, "drain_s": 10}
    async with running(says("hi"), faults=faults, gateway=options) as setup, aiohttp.ClientSession() as http:
        access = setup.access()
        waiting = asyncio.create_task(post(setup, http, access))
        await until(lambda: setup.provider.statuses)
        waiting.cancel()
        await until(lambda: access.calls)
        await setup.gateway.end(access)
        assert [(call.failure, call.usage) for call in access.calls] == [("given_up", Usage())]
        assert setup.provider.statuses == [429]


@asynccontextmanager
async def raw(pieces: list[bytes], content_type: str) -> AsyncIterator[tuple[Setup, list[int]]]:
    """A gateway before a server that sends these pieces; an empty one: then nothing more, for ever."""
    asked: list[int] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(1)
        response = web.StreamResponse(headers={"Content-Type": content_type})
        await response.prepare(request)
        for piece in pieces:
            if not piece:
                await asyncio.Event().wait()
            await response.write(piece)
        return response

    server = web.Server(answer, handler_cancellation=True)
    listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    known = Provider(name="fake", base_url=address, apis=frozenset(Api))
    async with Gateway(Providers([known]), PRICES, retry=QUICK) as gateway:
        yield Setup(gateway, None), asked
    listening.close()
    await server.shutdown(0.1)


async def test_a_stream_that_is_one_array_passes_and_is_metered():
    pieces = [
        b'[{"candidates":[]}',
        b',{"usageMetadata":{"promptTokenCount":7,',
        b'"candidatesTokenCount":2}}]',
    ]
    async with raw(pieces, "application/json") as (setup, _), aiohttp.ClientSession() as http:
        access = setup.access()
        path, body = request(Api.GEMINI, streamed=True)
        url = setup.gateway.base_url + path.removesuffix("?alt=sse")
        async with http.post(url, json=body, headers={"x-goog-api-key": access.token}) as answer:
            assert await answer.read() == b"".join(pieces)
        await setup.gateway.end(access)
        assert access.calls[0].usage == Usage(prompt_tokens=7, completion_tokens=2)
        assert access.failure is None


async def test_a_provider_that_falls_silent_is_given_up(monkeypatch):
    monkeypatch.setattr(exchange, "_SILENCE_S", 0.2)
    began = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
    async with raw([began, b""], "text/event-stream") as (setup, asked), aiohttp.ClientSession() as http:
        access = setup.access()
        status, text = await post(setup, http, access, streamed=True)
        await setup.gateway.end(access)
        assert (status, len(asked)) == (200, 1)
        assert text.startswith(began.decode())
        assert "no answer from fake in time" in text
        assert access.failure.kind == "provider_failed"
    async with raw([b""], "text/event-stream") as (setup, asked), aiohttp.ClientSession() as http:
        access = setup.access()
        assert (await post(setup, http, access, streamed=True))[0] == 502
        await setup.gateway.end(access)
        assert len(asked) == QUICK.most + 1, "nothing was passed on, so it was asked again"
        assert access.calls[0].lost == QUICK.most + 1


async def test_a_call_that_cannot_be_settled_is_answered_all_the_same(store, caplog):
    faults = [Fault(first_byte_s=0.3)]
    options = {"spending": store.spending}
    async with running(says("hi"), faults=faults, gateway=options) as setup, aiohttp.ClientSession() as http:
        access = setup.access()
        call = asyncio.create_task(post(setup, http, access))
        await until(lambda: setup.provider.requests)
        store.close()
        assert (await call)[0] == 200
        await setup.gateway.end(access)
        assert access.calls[0].usage
        assert "could not be settled" in caplog.text


def mixed(asked: Asking) -> Turn:
    """Its usage follows from the request alone, so that a retry costs the same."""
    number = int(asked.last.split()[-1])
    usage = Usage(
        prompt_tokens=100 + number,
        completion_tokens=7 + number % 13,
        cached_tokens=number % 50,
        cache_write_tokens=number % 7 if asked.api is not Api.GEMINI else 0,
        reasoning_tokens=number % 5,
    )
    return Turn(text="word " * (number % 40 + 1), usage=usage)


def faults_for(calls: int, chance: random.Random) -> list[Fault]:
    kinds = [
        Fault(status=429, retry_after_s=0.01), Fault(status=500), Fault(status=529), Fault(status=400),
        Fault(cut_after=1), Fault(cut_after=0), Fault(first_byte_s=0.05),
        Fault(chunk_s=0.002), Fault(malformed=True),
    ]  # fmt: skip
    return [chance.choice(kinds) if chance.random() < 0.3 else Fault() for _ in range(calls)]


async def many(calls: int, store) -> None:
    chance = random.Random(14)
    options = {"spending": store.spending, "retry": Retry(most=20, first_s=0.001, longest_s=0.01)}
    async with (
        running(mixed, faults=faults_for(calls, chance), gateway=options, keep_requests=False) as setup,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
    ):
        accesses = [setup.access(trial=trial) for trial in range(3)]
        places = asyncio.Semaphore(40)

        async def one(number: int) -> None:
            api, streamed = chance.choice(list(Api)), chance.random() < 0.5
            patience_s = chance.choice([0.002, 0.01, 0.03]) if chance.random() < 0.1 else 60
            async with places:
                try:
                    async with asyncio.timeout(patience_s):
                        await post(
                            setup, http, accesses[number % 3], api, streamed=streamed, text=f"n {number}"
                        )
                except TimeoutError:
                    pass

        await asyncio.gather(*map(one, range(calls)))
        await until(lambda: not any(task for each in accesses for task in each.working))
        for access in accesses:
            await setup.gateway.end(access)
        sums = [access.sums() for access in accesses]
        total = setup.provider.total()
        for name in ("prompt", "completion", "cached", "cache_write", "reasoning"):
            ours = sum(getattr(each, f"{name}_tokens") for each in sums)
            assert ours == getattr(total, f"{name}_tokens"), name
        untold = sum(not each.told for each in setup.provider.sales)
        assert untold == sum(each.unknown_usage + each.lost for each in sums)
        assert sum(each.retries for each in sums) > 0
        assert any(call.failure == "given_up" or call.status == 0 for each in accesses for call in each.calls)
        known = [sale.usage for sale in setup.provider.sales if sale.usage and sale.told]
        booked = store.spending.total(Scope("run", RUN))
        assert booked.nano_usd == sum(PRICES.nano_usd("fake/priced", usage) for usage in known)
        assert booked.tokens == total.total_tokens
        rows = store.spending.by(RUN, "idx", "model")
        assert sum(row["prompt_tokens"] for row in rows) == total.prompt_tokens
        assert sum(row["unsettled"] for row in rows) == 0


async def test_totals_equal_the_providers_ledger_to_the_last_token(store):
    await many(400, store)


@pytest.mark.fault
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not os.environ.get("PROCTOR_SOAK"), reason="a soak: set PROCTOR_SOAK=1")
async def test_totals_equal_the_ledger_over_ten_thousand_calls(store):
    await many(10_000, store)


async def test_an_agent_that_takes_nothing_of_its_answer_keeps_no_place_from_others():
    async def provider(request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        return web.Response(body=b'{"text": "%s"}' % (b"x" * (40 << 20)), content_type="application/json")

    server = web.Server(provider)
    listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    known = Provider(name="fake", base_url=address, apis=frozenset(Api), concurrency=1)
    async with Gateway(Providers([known]), PRICES, bounds=Bounds(read_s=0.05)) as gateway:
        deaf = gateway.issue(run_id=RUN, trial=0, attempt=1, models=("fake/priced",))
        other = gateway.issue(run_id=RUN, trial=1, attempt=1, models=("fake/priced",))
        data = b'{"model": "priced", "messages": []}'
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", int(gateway.base_url.rpartition(":")[2]), limit=1
        )
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nx-api-key: {deaf.token}\r\n"
        writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        await until(lambda: deaf.working)
        async with asyncio.timeout(30):
            status, _ = await gateway.ask(other, "/v1/chat/completions", data)
        assert status == 200
        assert [call.failure for call in deaf.calls] == [""]
        writer.close()
        del reader
    listening.close()
    await server.shutdown()
