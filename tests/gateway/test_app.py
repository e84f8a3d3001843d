"""Who may use the gateway, and what passes through it unharmed."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import socket

import aiohttp
import pytest
from aiohttp import web
from tests.gateway.conftest import KEY, PRICES, RUN, running, says, until

from proctor.errors import UsageError
from proctor.gateway.apis import Api, sdk_environment
from proctor.gateway.app import Gateway
from proctor.gateway.provider.script import Fault
from proctor.gateway.providers import Provider, Providers
from proctor.store.spending import Budget, Scope

pytestmark = pytest.mark.anyio
CHAT = "/v1/chat/completions"


def ask(model: str = "priced", **more: object) -> dict:
    return {"model": model, "messages": [{"role": "user", "content": "hello"}], **more}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("how", ["bearer", "x-api-key", "x-goog-api-key", "query"])
async def test_every_usual_way_to_send_a_token_is_accepted(how):
    async with running(says("hi")) as setup, aiohttp.ClientSession() as http:
        token = setup.access().token
        headers = bearer(token) if how == "bearer" else {} if how == "query" else {how: token}
        url = f"{setup.gateway.base_url}{CHAT}" + (f"?key={token}&a=b" if how == "query" else "")
        async with http.post(url, json=ask(), headers=headers) as answer:
            assert answer.status == 200


async def test_tokens_that_are_not_an_attempts_are_refused():
    async with running(says("hi")) as setup, aiohttp.ClientSession() as http:
        access = setup.access()
        ended = setup.access(attempt=2)
        await setup.gateway.end(ended)
        url = setup.gateway.base_url + CHAT
        for headers in ({}, bearer("x"), bearer(ended.token), bearer(KEY), bearer(access.token[:-1])):
            async with http.post(url, json=ask(), headers=headers) as answer:
                assert answer.status == 401
                assert (await answer.json())["error"]["code"] == "invalid_api_key"
        async with http.post(f"{url}?key={KEY}", json=ask()) as answer:
            assert answer.status == 401
            assert "does not belong into an address" in (await answer.json())["error"]["message"]
        assert setup.provider.sales == []


async def test_a_socket_serves_its_own_attempt_and_no_other():
    async with running(says("hi")) as setup, aiohttp.ClientSession() as http:
        inside, outside = setup.access(), setup.access(attempt=2)
        listener = socket.create_server(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}{CHAT}"
        await setup.gateway.add_socket(listener, inside)

        async def status(where: str, token: str) -> int:
            async with http.post(where, json=ask(), headers=bearer(token)) as answer:
                return answer.status

        assert await status(url, inside.token) == 200
        assert await status(url, outside.token) == 401
        assert await status(setup.gateway.base_url + CHAT, inside.token) == 401
        assert await status(setup.gateway.base_url + CHAT, outside.token) == 200
        await setup.gateway.end(inside)
        with pytest.raises(aiohttp.ClientConnectionError):
            await status(url, inside.token)


@pytest.mark.parametrize("turns", range(5))
async def test_a_connection_that_comes_while_the_gateway_closes_is_not_lost(turns):
    said: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: said.append(context["message"]))
    try:
        async with running() as setup:
            with socket.create_connection(("127.0.0.1", int(setup.gateway.base_url.rpartition(":")[2]))):
                for _ in range(turns):
                    await asyncio.sleep(0)
                await setup.gateway._listeners.close(None)
    finally:
        loop.set_exception_handler(None)
    gc.collect()  # warns of one that nobody closed
    assert said == []


async def test_ending_an_attempt_stops_what_still_runs():
    slow = Fault(first_byte_s=60)
    async with running(says("hi"), faults=[slow]) as setup, aiohttp.ClientSession() as http:
        access = setup.access()
        url = setup.gateway.base_url + CHAT
        call = asyncio.create_task(http.post(url, json=ask(), headers=bearer(access.token)))
        await until(lambda: setup.provider.requests)
        await setup.gateway.end(access)
        answer = await call
        assert answer.status == 401
        assert [(each.failure, each.usage) for each in access.calls] == [("given_up", None)]
        assert access.sums().unknown_usage == 1


async def test_bodies_queries_and_headers_pass_as_they_are():
    seen: list[tuple[str, dict, bytes]] = []

    async def provider(request: web.BaseRequest) -> web.StreamResponse:
        seen.append((request.raw_path, dict(request.headers), await request.read()))
        return web.Response(
            body=b'{"odd" :1.0e2,"usage":{"input_tokens":3,"output_tokens":1}}',
            headers={"X-Odd": "1", "Set-Cookie": "a=b", "Content-Type": "application/json"},
        )

    server = web.Server(provider)
    listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    known = Provider(
        name="fake", base_url=address, key=KEY, apis=frozenset(Api), auth="x-api-key", headers={"X-Team": "t"}
    )
    async with Gateway(Providers([known]), PRICES) as gateway, aiohttp.ClientSession() as http:
        access = gateway.issue(run_id=RUN, trial=0, attempt=1, models=("fake/priced",))
        body = b'{"usage":{"a":[1.50,null]},  "model":"priced","metadata":{"user":"\\u00e9"}}'
        headers = {
            "x-api-key": access.token,
            "anthropic-beta": "a,b",
            "Cookie": "c=d",
            "Accept-Encoding": "gzip",
            "api-key": "another-account",
            "X_Api_Key": "another-account",
            "X-Original-URL": "/v1/files",
        }
        url = f"{gateway.base_url}/v1/messages?beta=true&x=%20y"
        async with http.post(url, data=body, headers=headers) as answer:
            assert await answer.read() == b'{"odd" :1.0e2,"usage":{"input_tokens":3,"output_tokens":1}}'
            assert answer.headers["X-Odd"] == "1"
            assert "Set-Cookie" not in answer.headers
        await gateway.ask(access, "/v1/messages", body)
        await gateway.ask(access, "/v1/chat/completions", body)
    listening.close()
    await server.shutdown()
    (path, got, sent), *own = seen
    assert ["anthropic-version" in headers for _, headers, _ in own] == [True, False]
    assert path == "/v1/messages?beta=true&x=%20y"
    assert sent == body
    assert (got["anthropic-beta"], got["x-api-key"], got["X-Team"]) == ("a,b", KEY, "t")
    assert got["Accept-Encoding"] == "identity"
    assert not {"Cookie", "api-key", "X_Api_Key", "X-Original-URL"} & set(got)
    assert access.token not in str(got)
    assert access.calls[0].usage.prompt_tokens == 3


async def test_two_hundred_streams_at_once_lose_no_byte():
    text = "".join(f"{number} wörds " for number in range(100))
    async with running(says(text)) as setup, aiohttp.ClientSession() as http:
        access = setup.access()

        async def one(client: int) -> str:
            wanted = ask(stream=True, user=f"client {client}")
            async with http.post(
                setup.gateway.base_url + CHAT, json=wanted, headers=bearer(access.token)
            ) as answer:
                data = (await answer.read()).decode()
            chunks = [json.loads(line[6:]) for line in data.split("\n\n") if line.startswith("data: {")]
            return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)

        assert set(await asyncio.gather(*map(one, range(200)))) == {text}
        await setup.gateway.end(access)
        assert access.sums().completion_tokens == setup.provider.total().completion_tokens
        assert access.sums().requests == 200


async def test_small_questions_are_answered_by_the_gateway_itself():
    async with running() as setup, aiohttp.ClientSession() as http:
        url, token = setup.gateway.base_url, setup.access().token
        async with http.head(url) as answer:
            assert answer.status == 200
        upgrade = {**bearer(token), "Connection": "Upgrade", "Upgrade": "websocket"}
        async with http.get(f"{url}/v1/responses", headers=upgrade) as answer:
            assert answer.status == 426
        async with http.post(f"{url}/v1/embeddings", json={}, headers=bearer(token)) as answer:
            assert answer.status == 404
        async with http.post(url + CHAT, data=b"[]", headers=bearer(token)) as answer:
            assert answer.status == 400
        assert setup.provider.sales == []


async def test_other_models_are_refused_unless_the_attempt_pins_its_own():
    async with running(says("hi")) as setup, aiohttp.ClientSession() as http:
        for pins, status in ((False, 404), (True, 200)):
            access = setup.access(pins=pins)
            url = setup.gateway.base_url + CHAT
            async with http.post(url, json=ask("tiny-titles"), headers=bearer(access.token)) as answer:
                assert answer.status == status
        assert [request["model"] for request in setup.provider.requests] == ["priced"]


def test_names_of_models_come_with_and_without_what_is_before_the_slash():
    from proctor.gateway.tokens import Access

    access = Access(run_id=RUN, trial=0, attempt=1, models=("openrouter/openai/gpt-5", "openai/gpt-4"))
    for name in ("openrouter/openai/gpt-5", "openai/gpt-5", "gpt-5", "openai/openrouter/openai/gpt-5"):
        assert access.resolve(name) == "openrouter/openai/gpt-5"
    assert access.resolve("gpt") is None
    assert access.token not in repr(access)


async def test_an_api_that_the_provider_does_not_speak_is_refused():
    known = Provider(name="fake", base_url="http://127.0.0.1:9/v1", apis=frozenset({Api.CHAT}))
    async with Gateway(Providers([known]), PRICES) as gateway, aiohttp.ClientSession() as http:
        access = gateway.issue(run_id=RUN, trial=0, attempt=1, models=("fake/priced",))
        async with http.post(
            f"{gateway.base_url}/v1/messages", json=ask(), headers=bearer(access.token)
        ) as answer:
            assert answer.status == 400
            assert "does not translate" in (await answer.json())["error"]["message"]


async def test_what_cannot_be_kept_is_not_issued():
    async with running() as setup:
        with pytest.raises(UsageError, match="need a store"):
            setup.access(budgets=(Budget(scope=Scope("run", RUN), requests=1),))
        with pytest.raises(UsageError, match="names no provider"):
            setup.access(models=("gpt-5",))


async def test_no_log_and_no_error_has_a_key_or_a_token(caplog):
    caplog.set_level(logging.DEBUG)
    errors = [401, 500, 500, 500, 500, 500, 500, 500]
    async with running(says("hi"), errors=errors) as setup, aiohttp.ClientSession() as http:
        access = setup.access()
        said = []
        for headers in (bearer(access.token), bearer(access.token), bearer(KEY)):
            url = f"{setup.gateway.base_url}{CHAT}?key={access.token}"
            async with http.post(url, json=ask(), headers=headers) as answer:
                said.append(await answer.text())
        await setup.gateway.end(access)
        text = caplog.text + "".join(said) + str(access.calls) + repr(access) + str(access.failure)
        assert access.token not in text
        assert KEY not in text


def test_clients_find_the_gateway_under_the_names_they_read():
    found = sdk_environment("http://127.0.0.1:1", "t")
    assert found["OPENAI_BASE_URL"] == "http://127.0.0.1:1/v1"
    assert found["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:1"
    assert {found[name] for name in found if name.endswith("KEY")} == {"t"}


async def test_an_agent_of_this_process_needs_no_connection(store):
    body = json.dumps(ask()).encode()
    async with running(says("hi"), gateway={"spending": store.spending}) as made:
        access = made.access()
        status, answer = await made.gateway.ask(access, CHAT, body)
        assert (status, json.loads(answer)["choices"][0]["message"]["content"]) == (200, "hi")
        streamed = body.replace(b"{", b'{"stream": true, ', 1)
        status, answer = await made.gateway.ask(access, CHAT, streamed)
        assert (status, answer.endswith(b"data: [DONE]\n\n")) == (200, True)
        other = body.replace(b"priced", b"another")
        assert (await made.gateway.ask(access, CHAT, other))[0] == 404
        assert (await made.gateway.ask(access, CHAT, b"{"))[0] == 400
        await made.gateway.end(access)
        assert (await made.gateway.ask(access, CHAT, body))[0] == 401
        assert made.gateway.recorder(access).entries == 2
        assert access.sums().prompt_tokens == made.provider.total().prompt_tokens
    assert store.spending.total(Scope("run", RUN)).requests == 2


async def test_a_call_whose_agent_of_this_process_leaves_is_metered_to_its_end():
    body = json.dumps(ask()).encode()
    async with running(says("hi"), latency_s=0.2) as made:
        access = made.access()
        asking = asyncio.create_task(made.gateway.ask(access, CHAT, body))
        await until(lambda: made.provider.requests)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await until(lambda: access.calls)
        assert access.calls[0].usage.completion_tokens == made.provider.total().completion_tokens
