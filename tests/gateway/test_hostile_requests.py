"""What a hostile agent may try at the gateway, and what its neighbours notice of it: nothing."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import socket
import threading
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp
import pytest
from aiohttp import web
from tests.gateway.conftest import KEY, PRICES, QUICK, RUN, running, says, until

from proctor.gateway import answer, app
from proctor.gateway.apis import Api
from proctor.gateway.app import Gateway
from proctor.gateway.client import Clients
from proctor.gateway.provider.script import Fault
from proctor.gateway.providers import Provider, Providers
from proctor.gateway.usage import Usage
from proctor.store.spending import Budget, Reserve, Scope

pytestmark = pytest.mark.anyio
CHAT = "/v1/chat/completions"
PATHS = {
    Api.CHAT: CHAT,
    Api.RESPONSES: "/v1/responses",
    Api.MESSAGES: "/v1/messages",
    Api.GEMINI: "/v1beta/models/priced:generateContent",
}


def ask(**more: object) -> dict:
    return {"model": "priced", "messages": [{"role": "user", "content": "hello"}], **more}


async def post(setup, http, access, path, document) -> tuple[int, str]:
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    headers = {"x-api-key": access.token}
    async with http.post(setup.gateway.base_url + path, data=io.BytesIO(data), headers=headers) as answer:
        return answer.status, await answer.text()


# What it may spend, and where


async def test_the_largest_of_two_limits_is_reserved(store):
    async with (
        running(says("hi"), gateway={"spending": store.spending}) as setup,
        aiohttp.ClientSession() as http,
    ):
        for document in (
            ask(max_completion_tokens=1, max_tokens=100_000),
            ask(max_tokens=1, max_completion_tokens=100_000),
            ask(max_tokens=200, n=20),
            ask(max_tokens=200, best_of=20),
            ask(max_tokens=1, reasoning={"max_tokens": 100_000}),
        ):
            access = setup.access(budgets=(Budget(scope=Scope("run", RUN), tokens=2000),))
            assert (await post(setup, http, access, CHAT, document))[0] == 400, document
            assert "budget" in access.exhausted
        config = {"generation_config": {"max_output_tokens": 100_000}}
        gemini = {"contents": [{"parts": [{"text": "x"}]}], **config}
        assert (await post(setup, http, access, PATHS[Api.GEMINI], gemini))[0] == 400
        assert setup.provider.sales == []


@pytest.mark.parametrize("value", [-1, 1.5, "2", 10**30, True])
async def test_a_limit_that_is_none_is_refused_before_anything_is_reserved(store, value):
    async with (
        running(says("hi"), gateway={"spending": store.spending}) as setup,
        aiohttp.ClientSession() as http,
    ):
        access = setup.access(budgets=(Budget(scope=Scope("run", RUN), tokens=10**9),))
        status, text = await post(setup, http, access, CHAT, ask(max_tokens=value))
        assert (status, "whole number" in text) == (400, True)
        assert (setup.provider.sales, access.exhausted) == ([], "")


@pytest.mark.parametrize(
    "data",
    [
        b'{"model": "priced", "messages": [], "model": "dear"}',
        b'{"model": "priced", "messages": [], "Model": "dear"}',
        b'{"model": "priced", "messages": [], "models": ["dear"]}',
        b'{"model": "priced", "messages": [], "route": "fallback"}',
        b'{"model": "priced", "messages": [], "fallbacks": ["dear"]}',
        b'{"model": "priced", "messages": [], "provider": {"order": ["dear"]}}',
        b'{"model": "priced", "messages": [], "tools": [], "tools": [{"type": "web_search"}]}',
        b'{"model": "priced", "messages": [{"role": "user", "content": "a", "content": "b"}]}',
        b'{"model": "priced", "messages": [], "service_tier": "priority"}',
    ],
)
async def test_no_other_model_is_reached_by_the_words_of_a_request(data):
    async with running(says("hi")) as setup, aiohttp.ClientSession() as http:
        assert (await post(setup, http, setup.access(), CHAT, data))[0] == 400
        assert setup.provider.requests == []


@pytest.mark.parametrize(
    "reference", [{"previous_response_id": "resp_1"}, {"input": [{"type": "item_reference", "id": "i"}]}]
)
async def test_what_a_request_refers_to_is_reserved_like_what_it_has(store, reference):
    async with (
        running(says("hi"), gateway={"spending": store.spending}) as setup,
        aiohttp.ClientSession() as http,
    ):
        access = setup.access(budgets=(Budget(scope=Scope("run", RUN), tokens=20_000),))
        first = {"model": "priced", "input": "word " * 6000, "max_output_tokens": 100}
        assert (await post(setup, http, access, PATHS[Api.RESPONSES], first))[0] == 200
        (call,) = access.calls
        access.add(replace(call, usage=Usage(prompt_tokens=19_950)))
        again = {**first, "input": "more", **reference}
        assert (await post(setup, http, access, PATHS[Api.RESPONSES], again))[0] == 400
        assert "budget" in access.exhausted


async def test_of_calls_that_a_budget_cannot_have_yet_one_asks_again(store, monkeypatch):
    spending = store.spending
    applied, reserves = spending.apply, []

    def apply(operations, held):
        reserves.extend(one for one in operations if isinstance(one, Reserve))
        return applied(operations, held)

    monkeypatch.setattr(spending, "apply", apply)
    calls = 40
    async with (
        running(says("hi"), gateway={"spending": spending}) as setup,
        aiohttp.ClientSession() as http,
    ):
        access = setup.access(budgets=(Budget(scope=Scope("run", RUN), tokens=60_000),))
        document = ask(max_tokens=50_000)
        answers = await asyncio.gather(*(post(setup, http, access, CHAT, document) for _ in range(calls)))
        assert {status for status, _ in answers} == {200}
        assert calls <= len(reserves) <= 4 * calls


async def test_the_model_in_a_body_is_the_one_in_the_address():
    async with running(says("hi")) as setup, aiohttp.ClientSession() as http:
        document = {"contents": [{"parts": [{"text": "x"}]}]}
        access, path = setup.access(), PATHS[Api.GEMINI]
        assert (await post(setup, http, access, path, {**document, "model": "models/dear"}))[0] == 400
        assert (await post(setup, http, access, path, {**document, "model": "models/priced"}))[0] == 200
        assert "model" not in setup.provider.requests[0]


async def test_a_pinned_model_is_named_where_the_agent_names_none():
    async with running(says("hi")) as setup, aiohttp.ClientSession() as http:
        access = setup.access(pins=True)
        assert (await post(setup, http, access, CHAT, {"messages": []}))[0] == 200
        assert setup.provider.requests[0]["model"] == "priced"


@pytest.mark.parametrize(
    ("api", "document"),
    [
        (Api.CHAT, {"tools": [{"type": "openrouter:web_search"}]}),
        (Api.RESPONSES, {"tools": [{"type": "shell", "environment": {"type": "container_auto"}}]}),
        (Api.GEMINI, {"tools": [{"google_search_retrieval": {}}]}),
        (Api.GEMINI, {"tools": [{"code_execution": {}}]}),
        (Api.CHAT, {"plugins": [{"id": "web"}], "web_search_options": {}}),
    ],
)
async def test_a_task_without_a_network_gets_no_tool_that_the_provider_runs(api, document):
    async with running(says("hi")) as setup, aiohttp.ClientSession() as http:
        content = {Api.GEMINI: "contents", Api.RESPONSES: "input"}.get(api, "messages")
        body = {"model": "priced", content: [], **document}
        assert (await post(setup, http, setup.access(hosted_tools=False), PATHS[api], body))[0] == 200
        assert setup.provider.requests[0].keys() - {"model"} == {content}


async def test_a_task_without_a_network_names_no_address_that_the_provider_would_fetch():
    part = {"type": "image_url", "image_url": {"url": "http://10.0.0.1/x"}}
    document = ask(messages=[{"role": "user", "content": [part]}])
    async with running(says("hi")) as setup, aiohttp.ClientSession() as http:
        status, text = await post(setup, http, setup.access(hosted_tools=False), CHAT, document)
        assert (status, "no public network" in text) == (400, True)
        assert setup.provider.requests == []
        assert (await post(setup, http, setup.access(), CHAT, document))[0] == 200


async def test_a_form_is_not_passed_on_as_one():
    """A translator reads a body by its type: what was checked as JSON would be another request."""
    seen: list[str] = []

    async def provider(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request.headers["Content-Type"])
        return web.json_response({})

    async with answering(provider) as setup, aiohttp.ClientSession() as http:
        headers = {"x-api-key": setup.access().token, "Content-Type": "application/x-www-form-urlencoded"}
        url = f"{setup.gateway.base_url}{CHAT}"
        async with http.post(url, data=json.dumps(ask()), headers=headers) as answer:
            assert answer.status == 200
    assert seen == ["application/json"]


# What it may know


@asynccontextmanager
async def answering(provider):
    """A gateway before a provider that answers by this function."""

    class Setup:
        pass

    server = web.Server(provider)
    listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    known = Provider(name="fake", base_url=address, key=KEY, apis=frozenset(Api))
    async with Gateway(Providers([known]), PRICES, retry=QUICK) as gateway:
        setup = Setup()
        setup.gateway = gateway
        setup.access = lambda: gateway.issue(run_id=RUN, trial=0, attempt=1, models=("fake/priced",))
        yield setup
    listening.close()
    await server.shutdown()


@pytest.mark.parametrize("how", ["whole", "header", "stream", "cut", "array"])
async def test_a_key_that_a_provider_quotes_is_taken_out_of_its_answer(how):
    async def provider(request: web.BaseRequest) -> web.StreamResponse:
        key = request.headers["authorization"].removeprefix("Bearer ").encode()
        if how == "whole":
            return web.Response(body=b'{"key": "%s"}' % key, content_type="application/json")
        if how == "header":
            return web.json_response({}, headers={"X-Debug": f"key={key.decode()}"})
        kind = "application/json" if how == "array" else "text/event-stream"
        response = web.StreamResponse(headers={"Content-Type": kind})
        await response.prepare(request)
        event = b'data: {"key": "%s"}\n\n' % key
        middle = event.index(key) + len(key) // 2
        for part in [event] if how == "stream" else [event[:middle], event[middle:]]:
            await response.write(part)
            await asyncio.sleep(0.05)  # apart on the wire, or there would be one piece
        await response.write(b"data: [DONE]\n\n")
        return response

    async with answering(provider) as setup, aiohttp.ClientSession() as http:
        access = setup.access()
        path = "/v1beta/models/priced:streamGenerateContent" if how == "array" else CHAT
        body = {} if how == "array" else ask(stream=how in {"stream", "cut"})
        url, headers = f"{setup.gateway.base_url}{path}", {"x-api-key": access.token}
        async with http.post(url, json=body, headers=headers) as answer:
            said = await answer.read() + str(answer.headers).encode()
    assert KEY.encode() not in said
    assert b"[redacted]" in said


# What it may use up


@pytest.mark.parametrize("api", list(Api))
async def test_a_request_that_is_too_large_is_refused_in_the_words_of_its_api(api):
    async with running(says("hi")) as setup, aiohttp.ClientSession() as http:
        access = setup.access()
        status, text = await post(setup, http, access, PATHS[api], b"{" + b" " * (33 << 20) + b"}")
        assert status == 413
        assert "32 MiB" in json.loads(text)["error"]["message"]
        assert (await post(setup, http, access, CHAT, ask()))[0] == 200


async def test_what_an_attempt_has_under_way_is_bounded_and_its_neighbour_goes_on():
    size, slow = 20 << 20, Fault(first_byte_s=60, times=4, key="")
    async with running(says("hi"), faults=[slow]) as setup, aiohttp.ClientSession() as http:
        hostile, neighbour = setup.access(), setup.access(attempt=2)
        large = json.dumps(ask(user="x" * size)).encode()
        calls = [asyncio.create_task(post(setup, http, hostile, CHAT, large)) for _ in range(4)]
        await until(lambda: len(setup.provider.requests) == 4)
        status, text = await post(setup, http, hostile, CHAT, large)
        assert (status, json.loads(text)["error"]["type"]) == (429, "server_error")
        assert "96 MiB" in text
        assert (await post(setup, http, neighbour, CHAT, ask()))[0] == 200
        await setup.gateway.end(hostile)
        await asyncio.gather(*calls)
        assert setup.access(attempt=3).bytes_under_way.held == hostile.bytes_under_way.held == 0
        assert hostile.calls_under_way.held == 0


async def test_a_sandbox_has_so_many_connections_and_its_neighbour_has_its_own():
    async with running(says("hi")) as setup, aiohttp.ClientSession() as http:
        listeners = [socket.create_server(("127.0.0.1", 0), backlog=512) for _ in range(2)]
        hostile, neighbour = setup.access(), setup.access(attempt=2)
        for listener, access in zip(listeners, (hostile, neighbour), strict=True):
            await setup.gateway.add_socket(listener, access)
        ports = [listener.getsockname()[1] for listener in listeners]
        opened = [await asyncio.open_connection("127.0.0.1", ports[0]) for _ in range(140)]
        try:
            async with asyncio.timeout(30):
                said = [await reader.read(12) for reader, _ in opened[128:]]
            assert said == [b"HTTP/1.1 429"] * 12
            url = f"http://127.0.0.1:{ports[1]}{CHAT}"
            async with http.post(url, json=ask(), headers={"x-api-key": neighbour.token}) as answer:
                assert answer.status == 200
            opened[0][1].close()
            url = f"http://127.0.0.1:{ports[0]}{CHAT}"

            async def served() -> int:
                async with http.post(url, json=ask(), headers={"x-api-key": hostile.token}) as answer:
                    return answer.status

            async with asyncio.timeout(30):
                while await served() != 200:
                    pass
        finally:
            for _, writer in opened:
                writer.close()


async def test_an_attempt_has_one_large_body_read_at_a_time(monkeypatch):
    reading, most = Counter(), Counter()
    read, change = app.read_request, app.changed_body

    def read_request(route, data):
        reading["now"] += 1
        most["ever"] = max(most["ever"], reading["now"])
        return read(route, data)

    def changed_body(*args, **options):
        changed = change(*args, **options)
        reading["now"] -= 1
        return changed

    monkeypatch.setattr(app, "read_request", read_request)
    monkeypatch.setattr(app, "changed_body", changed_body)
    async with running(says("hi")) as setup, aiohttp.ClientSession() as http:
        access, large = setup.access(), ask(user="x" * (2 << 20))
        answers = await asyncio.gather(*(post(setup, http, access, CHAT, large) for _ in range(6)))
        assert {status for status, _ in answers} == {200}
        assert (most["ever"], reading["now"]) == (1, 0)


async def test_a_compressed_body_is_refused_before_it_is_anything_else():
    bomb = gzip.compress(b" " * (8 << 20))
    async with running(says("hi")) as setup, aiohttp.ClientSession() as http:
        headers = {"x-api-key": setup.access().token, "Content-Encoding": "gzip"}
        async with http.post(setup.gateway.base_url + CHAT, data=bomb, headers=headers) as answer:
            assert (answer.status, "not compressed" in await answer.text()) == (415, True)


def test_an_agent_may_keep_an_answer_waiting_for_so_long_in_all():
    aborted = []

    class Slow:
        writing_since, written_s = time.monotonic() - 20, 50.0

        def abort(self) -> None:
            aborted.append(self)

    clients = Clients(60.0)
    clients._open.add(Slow())
    clients._wait = lambda: None
    clients._look()
    assert len(aborted) == 1


async def test_a_list_of_millions_of_numbers_is_refused_unread():
    numbers = b'{"model": "priced", "messages": [], "metadata": [' + b"1.1," * 1_000_001 + b"1]}"
    async with running(says("hi")) as setup, aiohttp.ClientSession() as http:
        status, text = await post(setup, http, setup.access(), CHAT, numbers)
        assert (status, "commas" in text) == (400, True)


async def test_a_long_text_is_looked_at_where_an_address_would_begin():
    async with running(says("hi")) as setup, aiohttp.ClientSession() as http:
        access = setup.access(hosted_tools=False)
        for text, status in ((" \n" * 5000 + "https://a", 400), ("a" * 5000 + "://a", 200)):
            document = ask(messages=[{"role": "user", "picture": text}])
            assert (await post(setup, http, access, CHAT, document))[0] == status


async def test_a_large_answer_is_decoded_beside_the_event_loop(monkeypatch):
    threads, decoded = [], answer._decoded

    def noted(body):
        threads.append(threading.get_ident())
        return decoded(body)

    monkeypatch.setattr(answer, "_decoded", noted)
    async with running(says("x" * (2 << 20))) as setup, aiohttp.ClientSession() as http:
        access = setup.access()
        assert (await post(setup, http, access, CHAT, ask()))[0] == 200
        assert access.calls[0].usage
        assert len(threads) == 1
        assert threads[0] != threading.get_ident()
