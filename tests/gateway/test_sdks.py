"""The providers' own clients, unmodified, through the gateway."""

from __future__ import annotations

import anthropic
import openai
import pytest
from google import genai
from google.genai import types
from tests.gateway.conftest import Setup, running, says

from proctor.gateway.provider.script import Tool, Turn
from proctor.gateway.usage import Usage

pytestmark = pytest.mark.anyio
TEXT = "Grüße from a model – with several words in it"
USED = Usage(prompt_tokens=100, completion_tokens=20, cached_tokens=30, reasoning_tokens=5)
WRITTEN = Usage(prompt_tokens=100, completion_tokens=20, cached_tokens=30, cache_write_tokens=40)
ASK = [{"role": "user", "content": "hello"}]
SHELL = {"type": "object", "properties": {"command": {"type": "string"}}}


def calls_a_tool(_: object) -> Turn:
    return Turn(text="so", tools=(Tool(name="shell", arguments={"command": "ls -l"}),), usage=USED)


def openai_client(setup: Setup, token: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=setup.openai_url, api_key=token, max_retries=0)


def anthropic_client(setup: Setup, token: str) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=setup.gateway.base_url, api_key=token, max_retries=0)


def gemini_client(setup: Setup, token: str) -> genai.Client:
    options = types.HttpOptions(base_url=setup.gateway.base_url)
    return genai.Client(api_key=token, http_options=options)


async def metered(setup: Setup, access: object) -> list[Usage | None]:
    await setup.gateway.end(access)
    sold = [each.usage for each in setup.provider.sales if each.status == 200]
    assert [call.usage for call in access.calls] == sold
    return sold


async def test_chat_completions_pass_whole_and_streamed():
    async with running(says(TEXT, usage=USED)) as setup:
        access = setup.access()
        async with openai_client(setup, access.token) as client:
            answer = await client.chat.completions.create(model="fake/priced", messages=ASK)
            assert answer.choices[0].message.content == TEXT
            assert answer.usage.prompt_tokens == 100
            stream = await client.chat.completions.create(model="priced", messages=ASK, stream=True)
            chunks = [chunk async for chunk in stream]
            assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == TEXT
            assert all(chunk.usage is None for chunk in chunks), "nobody asked for the usage"
            asked = {"include_usage": True}
            stream = await client.chat.completions.create(
                model="priced", messages=ASK, stream=True, stream_options=asked
            )
            assert [chunk async for chunk in stream][-1].usage.completion_tokens == 20
        assert await metered(setup, access) == [USED] * 3
        assert {request["model"] for request in setup.provider.requests} == {"priced"}


async def test_responses_pass_whole_and_streamed():
    async with running(says(TEXT, usage=USED)) as setup:
        access = setup.access()
        async with openai_client(setup, access.token) as client:
            answer = await client.responses.create(model="priced", input="hello")
            assert answer.output_text == TEXT
            stream = await client.responses.create(model="priced", input="hello", stream=True)
            events = [event async for event in stream]
            assert events[-1].response.output_text == TEXT
            assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == TEXT
        assert await metered(setup, access) == [USED] * 2


async def test_messages_pass_whole_and_streamed():
    async with running(says(TEXT, usage=WRITTEN)) as setup:
        access = setup.access()
        async with anthropic_client(setup, access.token) as client:
            answer = await client.messages.create(model="priced", max_tokens=50, messages=ASK)
            assert answer.content[0].text == TEXT
            assert (answer.usage.input_tokens, answer.usage.cache_read_input_tokens) == (30, 30)
            async with client.messages.stream(model="priced", max_tokens=50, messages=ASK) as stream:
                assert await stream.get_final_text() == TEXT
            counted = await client.messages.count_tokens(model="priced", messages=ASK)
            assert counted.input_tokens == 1
        assert await metered(setup, access) == [WRITTEN] * 2


async def test_generated_content_passes_whole_and_streamed():
    async with running(says(TEXT, usage=USED)) as setup:
        access = setup.access()
        client = gemini_client(setup, access.token)
        answer = await client.aio.models.generate_content(model="priced", contents="hello")
        assert answer.text == TEXT
        assert answer.usage_metadata.thoughts_token_count == 5
        stream = await client.aio.models.generate_content_stream(model="priced", contents="hello")
        assert "".join([chunk.text or "" async for chunk in stream]) == TEXT
        counted = await client.aio.models.count_tokens(model="priced", contents="hello")
        assert counted.total_tokens == 1
        await client.aio.aclose()
        assert await metered(setup, access) == [USED] * 2


async def test_calls_of_tools_arrive_in_every_api():
    async with running(calls_a_tool) as setup:
        access = setup.access()
        wanted = {"command": "ls -l"}
        function = {"name": "shell", "parameters": SHELL}
        async with openai_client(setup, access.token) as client:
            answer = await client.chat.completions.create(
                model="priced", messages=ASK, tools=[{"type": "function", "function": function}]
            )
            assert answer.choices[0].message.tool_calls[0].function.arguments == '{"command": "ls -l"}'
            events = client.responses.stream(
                model="priced", input="hi", tools=[{"type": "function", "strict": False, **function}]
            )
            async with events as stream:
                final = await stream.get_final_response()
            assert final.output[1].name == "shell"
        async with anthropic_client(setup, access.token) as client:
            tools = [{"name": "shell", "input_schema": SHELL}]
            stream = client.messages.stream(model="priced", max_tokens=9, messages=ASK, tools=tools)
            async with stream as opened:
                message = await opened.get_final_message()
            assert message.content[1].input == wanted
        gemini = gemini_client(setup, access.token)
        reply = await gemini.aio.models.generate_content(model="priced", contents="hello")
        await gemini.aio.aclose()
        assert reply.function_calls[0].args == wanted
        assert len(await metered(setup, access)) == 4


async def test_models_are_listed_for_the_attempt():
    async with running() as setup:
        access = setup.access(models=("fake/priced", "fake/other"))
        async with openai_client(setup, access.token) as client:
            assert [model.id async for model in client.models.list()] == ["fake/priced", "fake/other"]
            assert (await client.models.retrieve("other")).id == "fake/other"
        async with anthropic_client(setup, access.token) as client:
            assert [model.id async for model in client.models.list()] == ["fake/priced", "fake/other"]
        gemini = gemini_client(setup, access.token)
        listed = [model.name async for model in await gemini.aio.models.list()]
        await gemini.aio.aclose()
        assert listed == ["models/fake/priced", "models/fake/other"]


async def test_errors_have_the_shape_that_each_client_knows():
    async with running(errors=[400] * 4) as setup:
        access = setup.access()
        async with openai_client(setup, access.token) as client:
            with pytest.raises(openai.BadRequestError, match="on purpose"):
                await client.chat.completions.create(model="priced", messages=ASK)
            with pytest.raises(openai.BadRequestError, match="on purpose"):
                await client.responses.create(model="priced", input="hello", stream=True)
            with pytest.raises(openai.NotFoundError, match="may not use the model 'gpt-5'"):
                await client.chat.completions.create(model="gpt-5", messages=ASK)
        async with anthropic_client(setup, access.token) as client:
            with pytest.raises(anthropic.BadRequestError, match="on purpose"):
                await client.messages.create(model="priced", max_tokens=1, messages=ASK)
        gemini = gemini_client(setup, access.token)
        with pytest.raises(genai.errors.ClientError, match="on purpose"):
            await gemini.aio.models.generate_content(model="priced", contents="hello")
        await gemini.aio.aclose()
        await setup.gateway.end(access)
        assert access.failure is None, "a wrong request is the agent's own doing"
