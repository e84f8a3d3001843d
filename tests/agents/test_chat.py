"""The exchange with a model's service: through proxies, over TLS, bounded, on connections that are kept."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from proctor.agents import chat
from proctor.agents.chat import Chat, Endpoint, HttpError, NoAnswerInTime
from proctor.errors import ProviderError
from proctor.gateway.provider.script import commands
from proctor.gateway.provider.server import FakeProvider

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def endpoint(url: str, **options: str):
    made = Endpoint(url, **options)
    try:
        yield made
    finally:
        await made.close()


@asynccontextmanager
async def server(answer: bytes):
    """Sends the same bytes to everyone and hangs up; yields its address and what it heard."""
    heard: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(answer)
        writer.close()

    started = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with started:
        yield f"http://127.0.0.1:{started.sockets[0].getsockname()[1]}/v1", heard


@pytest.mark.parametrize("address", ["ftp://x", "http://", "http://x:99999/", "no address"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(HttpError, match="not an http"):
        Endpoint(address)


async def test_a_header_with_a_line_break_is_not_sent():
    async with FakeProvider(commands("true")) as provider, endpoint(provider.base_url) as service:
        with pytest.raises(HttpError, match=r"control character|Newline"):
            await service.post_json({}, {"X": "a\nb"}, timeout_s=1)
    assert provider.statuses == []


async def test_the_proxy_of_the_environment_is_used(monkeypatch):
    async with FakeProvider(commands("true")) as proxy, Chat("http://model.invalid/v1", "k") as chat:
        monkeypatch.setenv("http_proxy", proxy.base_url.removesuffix("/v1"))
        monkeypatch.setenv("no_proxy", "")
        reply = await chat.ask("m", [])
    assert reply.tool_calls[0].name == "shell"
    assert proxy.statuses == [200]


async def test_a_name_in_no_proxy_is_asked_directly(monkeypatch):
    async with FakeProvider(commands("true")) as proxy, endpoint("http://model.invalid/v1") as service:
        monkeypatch.setenv("http_proxy", proxy.base_url.removesuffix("/v1"))
        monkeypatch.setenv("no_proxy", "model.invalid")
        with pytest.raises(HttpError, match=r"model\.invalid:80"):
            await service.get({}, timeout_s=10)
    assert proxy.statuses == []


async def test_a_certificate_is_trusted_by_the_bundle_or_the_environment(with_tls, monkeypatch):
    certificate, context = with_tls
    async with FakeProvider(commands("true"), tls=context) as provider:
        async with endpoint(provider.base_url) as service:
            with pytest.raises(HttpError, match="certificate verify failed"):
                await service.get({}, timeout_s=10)
        async with Chat(provider.base_url, "", ca_bundle=str(certificate)) as chat:
            await chat.ask("m", [])
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        async with Chat(provider.base_url, "") as chat:
            await chat.ask("m", [])
    assert provider.statuses == [200, 200]


async def test_a_user_in_the_address_does_not_replace_the_key():
    async with (
        FakeProvider(commands("true"), key="right") as provider,
        Chat(provider.base_url.replace("://", "://user:hidden@"), "right") as chat,
    ):
        await chat.ask("m", [])
    assert provider.statuses == [200]


async def test_a_redirect_is_an_answer_and_is_not_followed():
    moved = b"HTTP/1.1 307 Moved\r\nLocation: http://other.invalid/\r\nContent-Length: 0\r\n\r\n"
    async with server(moved) as (url, heard), Chat(url, "key") as chat:
        with pytest.raises(ProviderError, match="refused: status 307"):
            await chat.ask("m", [])
    assert len(heard) == 1


async def test_an_answer_that_is_too_large_or_cut_short_is_an_error(monkeypatch):
    monkeypatch.setattr(chat, "_MAX_BODY", 10)
    for answer, said in (
        (b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n" + b"x" * 11, "too large"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nxx", "not completed"),
        (b"what is this\r\n\r\n", "Bad status line|400"),
    ):
        async with server(answer) as (url, _), endpoint(url) as service:
            with pytest.raises(HttpError, match=said):
                await service.post_json({}, {}, timeout_s=10)


async def test_silence_is_told_apart_from_a_fault():
    async with (
        FakeProvider(commands("true"), latency_s=60) as provider,
        endpoint(f"{provider.base_url}/chat/completions") as it,
    ):
        with pytest.raises(NoAnswerInTime, match=r"no answer from 127\.0\.0\.1:\d+ within 0\.05 s"):
            await it.post_json({"messages": []}, {}, timeout_s=0.05)


@pytest.mark.parametrize("keep_alive", [True, False])
async def test_one_connection_serves_many_requests_where_the_service_allows(keep_alive):
    async with FakeProvider(commands("true"), keep_alive=keep_alive) as provider:
        async with Chat(provider.base_url, "") as chat:
            for _ in range(3):
                await chat.ask("m", [])
        assert provider.statuses == [200] * 3
        assert provider.connections == (1 if keep_alive else 3)


async def test_a_connection_that_the_service_closed_meanwhile_is_made_anew():
    async with (
        FakeProvider(commands("true")) as provider,
        Chat(provider.base_url, "", attempts=1) as chat,
    ):
        for _ in range(3):
            await chat.ask("m", [])
            provider.hang_up()
    assert provider.statuses == [200] * 3
    assert provider.connections == 3


async def test_a_service_that_hangs_up_on_every_request_is_an_error():
    async with server(b"") as (url, heard), endpoint(url) as service:
        with pytest.raises(HttpError, match="disconnected"):
            await service.post_json({}, {}, timeout_s=10)
    assert len(heard) == 1
