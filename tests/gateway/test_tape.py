"""A recorded tape answers the same agent again, without a provider, and says where another differs."""

from __future__ import annotations

import asyncio
import io
import json
import os
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from tests.gateway.conftest import KEY, PRICES, RUN, running, says

from proctor.errors import UsageError
from proctor.gateway.apis import Api
from proctor.gateway.app import Gateway
from proctor.gateway.bounds import Bounds
from proctor.gateway.provider.script import Fault, Tool, Turn
from proctor.gateway.providers import Providers
from proctor.gateway.replay import Replay, masked, normalised
from proctor.gateway.tape import Entry, Recorder, Tape
from proctor.store.blobs import open_blobs

pytestmark = pytest.mark.anyio
STEPS = 20


def step(asked) -> Turn:
    return Turn(
        text=f"Step {asked.turn}.", tools=(Tool(name="shell", arguments={"command": f"echo {asked.turn}"}),)
    )


async def agent(url: str, token: str, *, changed_at: int | None = None, day: str = "2026-01-01") -> list[str]:
    """Talks for twenty steps, half of them streamed; what it ran at one step may differ by a byte."""
    messages: list[dict] = [{"role": "system", "content": f"Today is {day}. Key: {token}"}]
    said = []
    async with aiohttp.ClientSession() as http:
        for number in range(STEPS):
            output = f"line one\nresult {number}\nWall time: 0.{number} seconds"
            if number == changed_at:
                output = output.replace("line one", "line onE")
            messages.append({"role": "user", "content": output})
            body = {"model": "priced", "messages": messages, "stream": number % 2 == 1, "user": day}
            headers = {"Authorization": f"Bearer {token}"}
            async with http.post(f"{url}/v1/chat/completions", json=body, headers=headers) as answer:
                text = await answer.text()
                said.append(text)
                if answer.status != 200:
                    return said
            messages.append({"role": "assistant", "content": f"Step {number}."})
    return said


async def recorded() -> tuple[list[str], bytes, str]:
    async with running(step) as setup:
        access = setup.access()
        said = await agent(setup.gateway.base_url, access.token)
        await setup.gateway.end(access)
        recorder = setup.gateway.recorder(access)
        assert recorder.entries == STEPS
        return said, recorder.compressed(), access.token


def replaying(data: bytes, **options: object) -> tuple[Replay, Gateway]:
    replay = Replay(Tape.read(io.BytesIO(data)), **options)
    return replay, Gateway(Providers([]), PRICES, replay=replay)


async def test_a_recorded_conversation_replays_without_a_provider():
    said, data, _ = await recorded()
    replay, gateway = replaying(data)
    async with gateway:
        access = gateway.issue(run_id=RUN, trial=0, attempt=1, models=("fake/priced",))
        assert await agent(gateway.base_url, access.token, day="2026-02-03") == said
        await gateway.end(access)
    assert (replay.left, replay.divergence) == (0, None)
    assert access.sums().requests == STEPS
    assert access.sums().completion_tokens > 0
    assert gateway._upstream._session is None, "nobody was called"


async def test_one_byte_changed_in_an_output_is_found_at_its_step():
    _, data, _ = await recorded()
    replay, gateway = replaying(data)
    async with gateway:
        access = gateway.issue(run_id=RUN, trial=0, attempt=1, models=("fake/priced",))
        said = await agent(gateway.base_url, access.token, changed_at=12)
        assert len(said) == 13
        message = json.loads(said[-1])["error"]["message"]
    found = replay.divergence
    assert (found.step, found.where) == (13, "messages[25].content")
    assert "-line one\n+line onE" in found.difference
    assert found.message in message


async def test_the_tape_is_kept_by_content_and_has_no_secret(tmp_path: Path):
    said: list[bytes] = []

    def shout(data: bytes) -> bytes:
        said.append(data)
        return data.replace(b"Step 3.", b"Step [gone].")

    async with running(step, gateway={"redact": shout, "spool": tmp_path}) as setup:
        access = setup.access()
        await agent(setup.gateway.base_url, access.token)
        await setup.gateway.end(access)
        blobs = open_blobs(tmp_path / "blobs")
        artifact = await setup.gateway.recorder(access).save(blobs)
        setup.gateway.forget(access)
        assert setup.gateway.recorder(access) is None
    with blobs.open(artifact.digest) as blob:
        kept = blob.read()
    tape = Tape.read(io.BytesIO(kept))
    text = "".join(entry.request + entry.response.decode() for entry in tape.entries)
    assert len(kept) < sum(map(len, said)) / 5, "what every request repeats is kept once"
    assert access.token not in text
    assert KEY not in text
    assert "Step [gone]." in text
    assert "Key: [redacted:token]" in text
    assert tape.head["models"] == ["fake/priced"]


async def test_one_attempt_may_replay_beside_others_that_call_providers():
    said, data, _ = await recorded()
    async with running(step) as setup:
        replay = Replay(Tape.read(io.BytesIO(data)))
        played, called = setup.access(replay=replay), setup.access(attempt=2)
        assert await agent(setup.gateway.base_url, played.token) == said
        assert setup.provider.sales == []
        assert setup.gateway.recorder(played) is None
        await agent(setup.gateway.base_url, called.token)
        assert len(setup.provider.sales) == STEPS


async def test_parallel_calls_may_come_in_another_order():
    async def ask(http, url: str, token: str, name: str) -> str:
        body = {"model": "priced", "max_tokens": 9, "messages": [{"role": "user", "content": name}]}
        async with http.post(f"{url}/v1/messages", json=body, headers={"x-api-key": token}) as answer:
            return (await answer.json())["content"][0]["text"]

    names = [f"question {number % 3}" for number in range(6)]
    async with running(lambda asked: Turn(text=f"to {asked.last}")) as setup, aiohttp.ClientSession() as http:
        access = setup.access()
        await asyncio.gather(*(ask(http, setup.gateway.base_url, access.token, name) for name in names))
        await setup.gateway.end(access)
        data = setup.gateway.recorder(access).compressed()
    replay, gateway = replaying(data)
    async with gateway, aiohttp.ClientSession() as http:
        access = gateway.issue(run_id=RUN, trial=0, attempt=1, models=("fake/priced",))
        for name in reversed(names):
            assert await ask(http, gateway.base_url, access.token, name) == f"to {name}"
        async with http.post(
            f"{gateway.base_url}/v1/messages",
            json={"model": "priced", "messages": []},
            headers={"x-api-key": access.token},
        ) as answer:
            assert answer.status == 400
    assert replay.divergence.step == 7
    assert "the tape has 6 requests" in replay.divergence.message


async def test_a_tape_can_be_played_as_fast_as_it_was_recorded():
    async with running(says("a b c"), faults=[Fault(chunk_s=0.02)]) as setup:
        access = setup.access()
        body = {"model": "priced", "messages": [], "stream": True}
        await ask_once(setup.gateway.base_url, access.token, body)
        await setup.gateway.end(access)
        tape = Tape.read(io.BytesIO(setup.gateway.recorder(access).compressed()))
    times = [at for at, _ in tape.entries[0].chunks]
    assert times[-1] >= 0.1
    assert times == sorted(times)
    for recorded_speed in (True, False):
        gateway = Gateway(Providers([]), PRICES, replay=Replay(tape, recorded_speed=recorded_speed))
        async with gateway:
            access = gateway.issue(run_id=RUN, trial=0, attempt=1, models=("fake/priced",))
            assert await ask_once(gateway.base_url, access.token, body) == tape.entries[0].response
            await gateway.end(access)
            assert (access.calls[0].worked_s >= times[-1]) or not recorded_speed


async def ask_once(url: str, token: str, body: dict) -> bytes:
    async with aiohttp.ClientSession() as http:
        headers = {"x-api-key": token}
        async with http.post(f"{url}/v1/chat/completions", json=body, headers=headers) as answer:
            return await answer.read()


async def test_what_was_refused_is_on_the_tape_too():
    async with running(errors=[400]) as setup:
        access = setup.access()
        text = await ask_once(setup.gateway.base_url, access.token, {"model": "priced", "messages": []})
        await setup.gateway.end(access)
        entry = Tape.read(io.BytesIO(setup.gateway.recorder(access).compressed())).entries[0]
    assert (entry.status, entry.response) == (400, text)
    odd = replace(entry, request='{"a": "\\n"}', response=b"\xff\x00")
    assert json.loads(replace(odd, request='{"a":\r\n"\\n"}').line()) == json.loads(odd.line())
    assert type(entry).read(json.loads(odd.line())) == odd


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Today's date: Tuesday, November 17, 2026.", "Today's date: Sunday, March 1, 2026."),
        ("date is Tue Nov 17 07:19:59 UTC 2026", "date is Wed Nov 18 17:19:59 UTC 2026"),
        ("on 2026-11-17T07:19:59.123Z it", "on 2025-01-01T00:00:00Z it"),
        ("17 November 2026", "1 May 2025"),
        ("11/17/2026", "1/2/2025"),
        ("Wall time: 0.0512 seconds", "Wall time: 12 seconds"),
        ("took 15ms", "took 1.5ms"),
        ("Chunk ID: a81f2c", "Chunk ID: 00ff11"),
        ("Process ID: 123", "process id: 4"),
        ("[pid 77] at 07:19:59", "[pid 8] at 23:00:01"),
        ("id 3b241101-e2bb-4255-8caf-4136c566a962", "id 00000000-e2bb-4255-8caf-4136c566a962"),
    ],
)
def test_what_differs_by_nature_is_masked(one, other):
    assert masked(one).lower() == masked(other).lower()
    assert masked(one) != one


def test_what_an_agent_says_is_not_masked():
    for text in ("exit code 3", "line 12: 4 errors", "1.5 GB", "port 8080", "v2.1.3", "item 3 of 10"):
        assert masked(text) == text


def test_ids_are_numbered_by_appearance_and_bookkeeping_is_dropped():
    def request(first: str, second: str, cache: str) -> dict:
        items = [
            {"type": "function_call", "id": cache, "call_id": first, "name": "a"},
            {"type": "function_call", "call_id": second, "name": "b"},
            {"type": "function_call_output", "call_id": first, "output": "x"},
        ]
        return {"model": cache, "input": items, "prompt_cache_key": cache, "client_metadata": {"a": cache}}

    one = normalised(Api.RESPONSES, request("call_a", "call_b", "1"))
    assert one == normalised(Api.RESPONSES, request("call_x", "call_y", "2"))
    assert one != normalised(Api.RESPONSES, {**request("a", "b", "1"), "instructions": "other"})
    swapped = request("call_a", "call_b", "1")
    swapped["input"][2]["call_id"] = "call_b"
    assert one != normalised(Api.RESPONSES, swapped)


@pytest.mark.parametrize(
    "data", [b"", b"{}\n", b'{"tape": 99}\n', b"\x28\xb5\x2f\xfdxx", b'{"tape": 1}\n{"n": 1}\n']
)
def test_a_file_that_is_no_tape_is_refused(tmp_path: Path, data: bytes):
    path = tmp_path / "tape"
    path.write_bytes(data)
    with pytest.raises(UsageError, match="tape"):
        Tape.read(path)
    with pytest.raises(UsageError, match="cannot be read"):
        Tape.read(tmp_path / "none")


async def test_a_tape_that_is_full_says_so_and_nothing_else_breaks():
    async with running(step, gateway={"bounds": Bounds(tape_bytes=20_000)}) as setup:
        access = setup.access()
        said = await agent(setup.gateway.base_url, access.token)
        await setup.gateway.end(access)
        recorder = setup.gateway.recorder(access)
        assert recorder
        tape = Tape.read(io.BytesIO(recorder.compressed()))
    assert len(said) == len(access.calls) == STEPS
    count = len(tape.entries)
    assert 0 < count < STEPS
    assert tape.left_out == STEPS - count
    assert f"the first {count} calls, and {STEPS - count} are not on it" in recorder.full
    replay = Replay(tape)
    async with Gateway(Providers([]), PRICES, replay=replay) as gateway:
        access = gateway.issue(run_id=RUN, trial=0, attempt=1, models=("fake/priced",))
        said = await agent(gateway.base_url, access.token)
    assert len(said) == count + 1
    assert replay.divergence
    assert f"the tape was full after {count} requests" in replay.divergence.message


def test_a_tape_that_cannot_be_compressed_is_bounded_too():
    recorder = Recorder({}, {}, None, None, Bounds(taped_bytes=1 << 20))
    for _ in range(40):
        recorder.add(
            lambda number: Entry(
                n=number,
                api=Api.CHAT,
                action="generate",
                model="m",
                streamed=False,
                request="{}",
                status=200,
                headers={},
                chunks=(),
                response=os.urandom(1 << 18),
                usage=None,
            )
        )
    data = recorder.compressed()
    assert len(data) < 4 << 20
    tape = Tape.read(io.BytesIO(data))
    assert 0 < len(tape.entries) < 40
    assert len(tape.entries) + tape.left_out == 40
    assert Tape.read(io.BytesIO(recorder.compressed())) == tape
    assert "full" in recorder.full
    recorder.close()


async def test_an_answer_that_there_is_no_room_for_passes_and_is_not_on_the_tape():
    bounds = Bounds(flight_bytes=4000, own_bytes=0)
    async with (
        running(says("word " * 2000), gateway={"bounds": bounds}) as setup,
        aiohttp.ClientSession() as http,
    ):
        access = setup.access()
        body = {"model": "priced", "messages": [], "stream": True}
        headers = {"Authorization": f"Bearer {access.token}"}
        url = f"{setup.gateway.base_url}/v1/chat/completions"
        async with http.post(url, json=body, headers=headers) as answer:
            assert (await answer.text()).count("word") == 2000
        await setup.gateway.end(access)
        recorder = setup.gateway.recorder(access)
        assert recorder
        assert Tape.read(io.BytesIO(recorder.compressed())).left_out == 1
        assert access.calls[0].usage
        assert access.calls[0].response_bytes > 10_000
        assert access.bytes_under_way.held == 0
