"""What the model gateway costs per call: CPU of its process, metered, booked and taped, and its memory.

Provider, proxy and client are processes of their own on loopback. Beside the gateway: the same calls made
directly (the floor of what a client sees), a proxy that only copies bytes (the floor of what a proxy costs)
and, with --litellm, LiteLLM's proxy.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import secrets
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import aiohttp
import psutil
from aiohttp import web
from scratch import scratch

from proctor.gateway.apis import Api
from proctor.gateway.app import Gateway
from proctor.gateway.provider.script import Asking, Fault, Turn
from proctor.gateway.provider.server import FakeProvider
from proctor.gateway.providers import Provider, Providers
from proctor.model.plan import Plan
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.store.open import open_store
from proctor.store.spending import DAY, Budget, Scope

MODEL, CHUNKS, REQUEST_BYTES = "bench", 100, 40_000
TEXT = "a word or two of text. " * 100
PACE = Fault(chunk_s=0.004, times=10**9)
"""Chunks come apart, as tokens do: sent at once they would arrive as one."""
TARGETS = {"call": 1.5, "stream": 8.0}
SPAWN = multiprocessing.get_context("spawn")


def reply(_: Asking) -> Turn:
    return Turn(text=TEXT, pieces=CHUNKS - 3, fault=PACE)


async def provider(pipe: Connection) -> None:
    async with FakeProvider(reply, keep_requests=False) as fake:
        pipe.send((fake.base_url, ""))
        await asyncio.to_thread(pipe.recv)


async def gateway(pipe: Connection, upstream: str, home: str, url: str, budget: str) -> None:
    known = Provider(
        name="fake",
        base_url=upstream,
        key_env="K",
        key="sk-bench-a-key-as-long-as-real-ones",
        apis=frozenset(Api),
        concurrency=2000,
    )
    run = f"bench-{secrets.token_hex(4)}"
    budgets = (Budget(scope=Scope("run", run), tokens=10**12), Budget(scope=DAY, requests=10**9))
    with open_store(url or f"{home}/proctor.db") as store:
        info = RunInfo(id=run, name="b", kind="task", status=RunStatus.RUNNING, created_at=0.0, seed=1)
        store.create_run(info, Plan(trials=()))
        async with Gateway(Providers([known]), spending=store.spending, spool=Path(home)) as made:
            access = made.issue(
                run_id=run, trial=0, attempt=1, models=(f"fake/{MODEL}",), budgets=budgets if budget else ()
            )
            pipe.send((made.base_url + "/v1", access.token))
            await asyncio.to_thread(pipe.recv)
            await made.end(access)
            recorder = made.recorder(access)
            assert recorder
            pipe.send((len(access.calls), len(recorder.compressed())))


async def copier(pipe: Connection, upstream: str) -> None:
    """A proxy that knows nothing: what HTTP itself costs on both sides."""
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        url = upstream.removesuffix("/v1") + request.path
        async with session.post(url, data=await request.read()) as answer:
            if answer.content_type != "text/event-stream":
                return web.Response(body=await answer.read(), content_type="application/json")
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            return response

    server = web.Server(handle, access_log=None)
    listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0, backlog=2048)
    pipe.send((f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1", "none"))
    await asyncio.to_thread(pipe.recv)
    await session.close()
    listening.close()


def run_async(make: Any, pipe: Connection, *parts: str) -> None:
    asyncio.run(make(pipe, *parts))


@contextmanager
def process(make: Any, *parts: str) -> Iterator[tuple[int, str, str, Connection]]:
    """One of the above in a process of its own: its id, its address, its token."""
    ours, theirs = SPAWN.Pipe()
    child = SPAWN.Process(target=run_async, args=(make, theirs, *parts), daemon=True)
    child.start()
    url, token = ours.recv()
    assert child.pid
    yield child.pid, url, token, ours
    with suppress(OSError):
        ours.send("end")
    child.join(60)


@contextmanager
def litellm(python: str, upstream: str) -> Iterator[tuple[int, str, str]]:
    """LiteLLM's proxy. It needs a key of its own; once it has ended it is not waited for."""
    with tempfile.TemporaryDirectory() as folder:
        config, said = Path(folder) / "config.yaml", Path(folder) / "said.txt"
        params = {"model": f"openai/{MODEL}", "api_base": upstream, "api_key": "sk-bench"}
        config.write_text(json.dumps({"model_list": [{"model_name": MODEL, "litellm_params": params}]}))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        token = f"sk-{secrets.token_hex(24)}"
        command = [str(Path(python).parent / "litellm"), "--config", str(config), "--port", str(port)]
        env = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
        env["LITELLM_MASTER_KEY"] = token
        with said.open("wb") as output:
            child = subprocess.Popen(
                [*command, "--host", "127.0.0.1"], env=env, stdout=output, stderr=subprocess.STDOUT
            )
        try:
            url = f"http://127.0.0.1:{port}"
            asyncio.run(answering(f"{url}/health/liveliness", child, said))
            yield child.pid, f"{url}/v1", token
        finally:
            child.terminate()
            child.wait(30)


async def answering(url: str, child: subprocess.Popen[bytes], said: Path) -> None:
    """Wait until it does, or say why it never will."""
    async with asyncio.timeout(120), aiohttp.ClientSession() as http:
        while True:
            if child.poll() is not None:
                raise SystemExit(f"LiteLLM's proxy ended with {child.returncode}: {said.read_text()[-1000:]}")
            with suppress(aiohttp.ClientError):
                async with http.get(url) as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.2)


def body(*, streamed: bool) -> bytes:
    messages = [{"role": "user", "content": f"message {number} " + "some text " * 39} for number in range(95)]
    data = json.dumps({"model": MODEL, "messages": messages, "stream": streamed}).encode()
    assert abs(len(data) - REQUEST_BYTES) < 2000, len(data)
    return data


def text_of(data: bytes, *, streamed: bool) -> str:
    if not streamed:
        return str(json.loads(data)["choices"][0]["message"]["content"])
    chunks = [json.loads(line[6:]) for line in data.split(b"\n\n") if line.startswith(b"data: {")]
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)


async def calls(url: str, token: str, number: int, *, streamed: bool, at_once: int) -> tuple[float, int]:
    """Make calls; seconds, and how many came whole."""
    data, headers = body(streamed=streamed), {"Authorization": f"Bearer {token}"}
    left = iter(range(number))
    whole: list[bool] = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:

        async def client() -> None:
            for _ in left:
                async with http.post(f"{url}/chat/completions", data=data, headers=headers) as answer:
                    whole.append(text_of(await answer.read(), streamed=streamed) == TEXT)
                    assert answer.status == 200, answer.status

        began = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(at_once)))
        return time.perf_counter() - began, sum(whole)


def cpu_s(pid: int) -> float:
    used = psutil.Process(pid).cpu_times()
    return used.user + used.system


def measure(pid: int | None, url: str, token: str, number: int, *, streamed: bool) -> tuple[float, float]:
    """CPU and wall milliseconds per call, after some to warm up."""
    asyncio.run(calls(url, token, 20, streamed=streamed, at_once=2))
    before = cpu_s(pid) if pid else 0.0
    wall_s, _ = asyncio.run(calls(url, token, number, streamed=streamed, at_once=8))
    used = cpu_s(pid) - before if pid else 0.0
    return used / number * 1000, wall_s / number * 1000


def many_streams(pid: int, url: str, token: str, at_once: int) -> tuple[int, float, bool]:
    """All at once: the largest memory in MB, seconds, and whether every byte came."""
    ours, theirs = SPAWN.Pipe()
    clients = SPAWN.Process(target=stream_clients, args=(theirs, url, token, at_once), daemon=True)
    clients.start()
    largest = 0
    while not ours.poll(0.05):
        largest = max(largest, psutil.Process(pid).memory_info().rss)
    wall_s, whole = ours.recv()
    clients.join()
    return largest >> 20, wall_s, whole == at_once


def stream_clients(pipe: Connection, url: str, token: str, at_once: int) -> None:
    pipe.send(asyncio.run(calls(url, token, at_once, streamed=True, at_once=at_once)))


def row(name: str, pid: int | None, url: str, token: str, number: int) -> None:
    call = measure(pid, url, token, number, streamed=False)
    stream = measure(pid, url, token, max(20, number // 4), streamed=True)
    shown = [f"{each:.2f}" if pid else "–" for each in (call[0], stream[0])]
    rss = f"{psutil.Process(pid).memory_info().rss >> 20}" if pid else "–"
    print(f"{name:<10} {shown[0]:>9} {shown[1]:>11} {call[1]:>9.2f} {stream[1]:>11.2f} {rss:>7}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=400, help="per row; a quarter of them streamed")
    parser.add_argument("--streams", type=int, default=750, help="at once, through the gateway")
    parser.add_argument("--litellm", metavar="PYTHON", help="a Python with litellm[proxy]")
    parser.add_argument("--store", default="", help="an address of PostgreSQL; SQLite otherwise")
    parser.add_argument("--budget", action="store_true", help="with a budget of the run and one of the day")
    options = parser.parse_args()
    print(f"a call: {REQUEST_BYTES:,} bytes up, not streamed; a stream: {CHUNKS} chunks down")
    print(f"{'':<10} {'CPU ms':>9} {'CPU ms':>11} {'wall ms':>9} {'wall ms':>11} {'MB':>7}")
    print(f"{'':<10} {'per call':>9} {'per stream':>11} {'per call':>9} {'per stream':>11}")
    with scratch() as home, process(provider) as (_, upstream, _, _):
        row("direct", None, upstream, "none", options.calls)
        with process(copier, upstream) as (pid, url, token, _):
            row("copying", pid, url, token, options.calls)
        budget = "yes" if options.budget else ""
        with process(gateway, upstream, str(home), options.store, budget) as (pid, url, token, pipe):
            row("gateway", pid, url, token, options.calls)
            largest, wall_s, whole = many_streams(pid, url, token, options.streams)
            pipe.send("end")
            made, taped = pipe.recv()
        if options.litellm:
            with litellm(options.litellm, upstream) as (pid, url, token):
                row("litellm", pid, url, token, options.calls // 4)
    lost = "no byte lost" if whole else "BYTES WERE LOST"
    print(f"\n{options.streams} streams at once: {largest} MB at most, {wall_s:.1f} s, {lost}")
    print(f"{made:,} calls on a tape of {taped / 1000:,.0f} kB")
    print(f"targets: {TARGETS['call']} ms per call, {TARGETS['stream']} ms per stream, 300 MB")


if __name__ == "__main__":
    main()
