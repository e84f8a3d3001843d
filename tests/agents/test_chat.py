"""What `terminal` asks of the gateway: once, and what comes of it is for others to judge."""

from __future__ import annotations

import asyncio
import json

import pytest

from proctor.agents.base import AgentFailed
from proctor.agents.chat import Chat, ContextTooLong
from proctor.errors import ProviderError

pytestmark = pytest.mark.anyio


class Heard:
    """Answers everyone the same, and remembers what it was asked."""

    def __init__(self, status: int, body: bytes) -> None:
        self.answer = status, body
        self.asked: list[tuple[str, dict]] = []

    async def __call__(self, path: str, body: bytes) -> tuple[int, bytes]:
        self.asked.append((path, json.loads(body)))
        return self.answer


@pytest.mark.parametrize("status", [307, 400, 429, 500])
async def test_a_refusal_is_told_and_nothing_is_asked_twice(status):
    heard = Heard(status, b'{"error": {"message": "a fault on purpose"}}')
    with pytest.raises(AgentFailed, match=f"refused: status {status}: a fault on purpose"):
        await Chat(heard).ask("m", [], options={"temperature": 0})
    assert heard.asked == [("/v1/chat/completions", {"model": "m", "messages": [], "temperature": 0})]


async def test_a_conversation_that_is_too_long_is_told_apart():
    with pytest.raises(ContextTooLong):
        await Chat(Heard(400, b'{"error": "maximum context length is 8"}')).ask("m", [])


@pytest.mark.parametrize("body", [b"", b"{}", b'{"choices": []}'])
async def test_an_answer_that_is_none_is_not_the_agents_fault(body):
    with pytest.raises(ProviderError, match="cannot be read"):
        await Chat(Heard(200, body)).ask("m", [])


async def test_silence_ends_with_the_time_limit():
    async def silent(path: str, body: bytes) -> tuple[int, bytes]:
        return await asyncio.get_running_loop().create_future()

    with pytest.raises(ProviderError, match=r"no answer of the model within 0\.05 s"):
        await Chat(silent, timeout_s=0.05).ask("m", [])
