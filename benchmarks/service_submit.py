"""What submitting a run costs the server, and what reading costs while many runs wait: CPU per request.

Run it as `python benchmarks/service_submit.py [--runs 200]`. The application runs in this process, without an
engine, and a client in the same process asks it: `livez`, which does nothing, is what client and framework
take of each row. CPU time is of the whole process, so other work on the machine changes it little.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx

from proctor.cli.load import _TASK, _written
from proctor.server.app import create_app
from proctor.settings import load_settings
from proctor.tasks.archive import pack

HEADERS = {"X-Proctor-Request": "1"}
Ask = Callable[[int], Awaitable[None]]


async def measured(home: Path, runs: int) -> None:
    app = create_app(load_settings())
    transport = httpx.ASGITransport(app=app)
    pack(_written(home / "load", _TASK), home / "task.zip")
    ids: list[str] = []
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8640", headers=HEADERS) as client,
    ):
        archive = ("load.zip", (home / "task.zip").read_bytes(), "application/zip")
        upload = (await client.post("/api/tasks", files={"file": archive})).json()["id"]
        entry = {"path": {"upload": upload}, "agent": "oracle"}

        async def submit(number: int) -> None:
            spec = {"name": f"load-{number}", "tasks": [entry], "sandbox": {"host_root": True}}
            key = {"Idempotency-Key": f"load-{number}"}
            answer = await client.post("/api/runs", json={"spec": spec}, headers=key)
            assert answer.status_code == 201, answer.text
            ids.append(answer.json()["id"])

        def read(path: Callable[[int], str]) -> Ask:
            async def ask(number: int) -> None:
                answer = await client.get(path(number))
                assert answer.status_code == 200, answer.text

            return ask

        for number in range(5):
            await submit(-1 - number)
        asked: tuple[tuple[str, int, Ask], ...] = (
            ("livez", 200, read(lambda _: "/livez")),
            ("submit", runs, submit),
            ("list of 50", 50, read(lambda _: "/api/runs?limit=50")),
            ("list of 500", 20, read(lambda _: "/api/runs?limit=500&name=load-*")),
            ("one run", 100, read(lambda number: f"/api/runs/{ids[number % len(ids)]}")),
            ("its trials", 100, read(lambda number: f"/api/runs/{ids[number % len(ids)]}/trials")),
        )
        for name, times, ask in asked:
            began = time.process_time()
            for number in range(times):
                await ask(number)
            print(f"{name:12} {1000 * (time.process_time() - began) / times:7.2f} ms CPU", flush=True)


def main() -> None:
    as_written = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_written)
    parser.add_argument("--runs", type=int, default=200)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="proctor-submit-") as folder:
        os.chdir(folder)
        asyncio.run(measured(Path(folder), asked.runs))
        os.chdir("/")


if __name__ == "__main__":
    main()
