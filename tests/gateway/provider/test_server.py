"""The scripted provider, spoken to directly."""

from __future__ import annotations

import aiohttp
import openai
import pytest
from tests.gateway.conftest import says

from proctor.gateway.provider.script import Fault, Turn, commands
from proctor.gateway.provider.server import FakeProvider

pytestmark = pytest.mark.anyio
ASK = [{"role": "user", "content": "hello"}]


def client_of(provider: FakeProvider) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=provider.base_url, api_key="any", max_retries=0)


async def test_keys_have_names_and_faults_and_ledgers_of_their_own():
    keys = {"alice": "sk-a", "bob": "sk-b"}
    faults = [Fault(status=500, key="bob", times=2)]
    async with (
        FakeProvider(says("hi"), keys=keys, faults=faults) as provider,
        aiohttp.ClientSession() as http,
    ):

        async def status(key: str) -> int:
            body, headers = {"model": "m", "messages": ASK}, {"Authorization": f"Bearer {key}"}
            async with http.post(
                f"{provider.base_url}/chat/completions", json=body, headers=headers
            ) as answer:
                return answer.status

        keys_used = ["sk-b", "sk-a", "sk-b", "sk-b", "sk-x"]
        assert [await status(key) for key in keys_used] == [500, 200, 500, 200, 401]
        async with http.get(f"{provider.address}/ledger") as answer:
            text, ledger = await answer.text(), await answer.json()
    assert [(call["key"], call["status"]) for call in ledger["calls"]] == [
        ("bob", 500),
        ("alice", 200),
        ("bob", 500),
        ("bob", 200),
    ]
    assert ledger["keys"]["alice"] == ledger["keys"]["bob"]
    assert ledger["totals"]["prompt_tokens"] == 2
    assert "sk-" not in text


async def test_the_ledger_is_a_file_too(tmp_path):
    file = tmp_path / "sold.jsonl"
    async with FakeProvider(commands("ls"), ledger=file) as provider, client_of(provider) as client:
        for _ in range(2):
            await client.chat.completions.create(model="m", messages=ASK)
    assert len(file.read_text().splitlines()) == 2


async def test_a_turn_may_fail_for_a_while():
    script = lambda _: Turn(text="hi", fault=Fault(status=529, times=2))  # noqa: E731
    async with FakeProvider(script) as provider, client_of(provider) as client:
        for _ in range(2):
            with pytest.raises(openai.InternalServerError):
                await client.chat.completions.create(model="m", messages=ASK)
        assert await client.chat.completions.create(model="m", messages=ASK)
    assert provider.statuses == [529, 529, 200]


async def test_a_text_comes_in_as_many_pieces_as_asked_for():
    async with FakeProvider(says("x" * 100, pieces=10)) as provider, client_of(provider) as client:
        stream = await client.chat.completions.create(model="m", messages=ASK, stream=True)
        texts = [chunk.choices[0].delta.content async for chunk in stream]
    assert [text for text in texts if text] == ["x" * 10] * 10
