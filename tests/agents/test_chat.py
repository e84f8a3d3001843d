"""What `terminal` asks of the gateway: once, and what comes of it is for others to judge."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from proctor.agents.base import AgentFailed
from proctor.agents.chat import Chat
from proctor.errors import ProviderError
from proctor.gateway.provider.script import commands
from proctor.gateway.provider.server import FakeProvider

pytestmark = pytest.mark.anyio


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


@pytest.mark.parametrize("status", [400, 429, 500])
async def test_a_refusal_is_told_and_nothing_is_asked_twice(status):
    async with (
        FakeProvider(commands("true"), errors=[status]) as provider,
        Chat(provider.base_url, "") as chat,
    ):
        with pytest.raises(AgentFailed, match=f"refused: status {status}: a fault on purpose"):
            await chat.ask("m", [])
    assert provider.statuses == [status]


async def test_a_refusal_never_shows_the_token():
    async with FakeProvider(commands("true"), key="right") as provider:
        with pytest.raises(AgentFailed, match="wrong key") as caught:
            async with Chat(provider.base_url, "not-the-key") as chat:
                await chat.ask("m", [])
    assert "not-the-key" not in str(caught.value)


async def test_a_redirect_is_an_answer_and_is_not_followed():
    moved = b"HTTP/1.1 307 Moved\r\nLocation: http://other.invalid/\r\nContent-Length: 0\r\n\r\n"
    async with server(moved) as (url, heard), Chat(url, "key") as chat:
        with pytest.raises(AgentFailed, match="refused: status 307"):
            await chat.ask("m", [])
    assert len(heard) == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "the gateway to the model failed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nxx", "the gateway to the model failed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "cannot be read"),
    ],
)
async def test_an_answer_that_is_none_is_not_the_agents_fault(answer, said):
    async with server(answer) as (url, _), Chat(url, "") as chat:
        with pytest.raises(ProviderError, match=said):
            await chat.ask("m", [])


async def test_silence_ends_with_the_time_limit():
    async with (
        FakeProvider(commands("true"), latency_s=60) as provider,
        Chat(provider.base_url, "", timeout_s=0.05) as chat,
    ):
        with pytest.raises(ProviderError, match=r"no answer of the model within 0\.05 s"):
            await chat.ask("m", [])


async def test_a_connection_that_was_closed_meanwhile_does_no_harm():
    async with FakeProvider(commands("true")) as provider, Chat(provider.base_url, "") as chat:
        for _ in range(3):
            await chat.ask("m", [])
            provider.hang_up()
    assert provider.statuses == [200] * 3
