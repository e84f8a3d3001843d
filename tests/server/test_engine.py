"""Which runs begin, who gets the next place, and what survives a kill."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import psutil
import pytest
from tests.server import tasks
from tests.server.conftest import eventually

from proctor.server.engine.choice import choose
from proctor.server.engine.slots import Slots
from proctor.store.service.queue import Queued


def queued(run: str, owner: str = "ada", kind: str = "task", **more: object) -> Queued:
    given = {"project": "default", "priority": 0, "queued_at": 0.0, "status": "pending"}
    fields = {**given, "parallel": None, "most_runs": None, **more}
    return Queued(run_id=run, owner=owner, kind=kind, **fields)  # type: ignore[arg-type]


def ids(found: list[Queued]) -> list[str]:
    return [each.run_id for each in found]


def test_runs_of_different_people_take_turns():
    waiting = [queued("a1"), queued("a2"), queued("a3"), queued("b1", "bob")]
    assert ids(choose(waiting, [], 2)) == ["a1", "b1"]
    assert ids(choose(waiting, [queued("a1")], 2)) == ["b1"]


def test_a_higher_priority_goes_first():
    assert ids(choose([queued("a"), queued("b", priority=1)], [], 1)) == ["b"]


def test_an_experiment_runs_alone():
    alone = queued("e", "eve", "experiment")
    assert ids(choose([alone, queued("t")], [], 4)) == ["e"]
    assert choose([alone, queued("t")], [queued("x", "bob")], 4) == []
    assert choose([queued("t")], [alone], 4) == []
    assert ids(choose([queued("t"), alone], [], 4)) == ["t"]


def test_a_project_has_no_more_runs_at_a_time_than_its_quota():
    waiting = [queued("a", most_runs=1), queued("b", most_runs=1), queued("c", project="other")]
    assert ids(choose(waiting, [], 4)) == ["a", "c"]


@pytest.mark.anyio
async def test_a_free_place_goes_to_whoever_has_the_fewest():
    slots, order = Slots(1), []

    async def work(who: str) -> None:
        async with slots.place(who):
            order.append(who)
            await asyncio.sleep(0)

    async with slots.place("ada"):
        waiting = [asyncio.create_task(work(who)) for who in ("ada", "ada", "bob")]
        await asyncio.sleep(0)
        left = waiting.pop(0)
        left.cancel()
    await asyncio.gather(*waiting, left, return_exceptions=True)
    assert sorted(order) == ["ada", "bob"]
    assert slots.free == 1


def engine_of(server) -> psutil.Process:
    found = eventually(
        lambda: [each for each in psutil.Process(server.process.pid).children() if _is_engine(each)]
    )
    return found[0]  # type: ignore[index]


def _is_engine(process: psutil.Process) -> bool:
    try:
        return "proctor.server.engine" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # it is ending
        return False


def begin_slow(server, rollouts: int = 3) -> str:
    up = tasks.upload(server.client, "slow", 0.6)["id"]
    run = server.client.post("/api/runs", json={"spec": tasks.spec(up, rollouts=rollouts), "parallel": 1})
    assert run.status_code == 201, run.text
    run_id = str(run.json()["id"])

    def begun() -> bool:
        row = server.client.get("/api/runs").json()["items"][0]
        return row["status"] == "running" and row["done"] >= 1

    eventually(begun)
    return run_id


@pytest.mark.needs("bubblewrap")
def test_neither_a_killed_engine_nor_a_killed_server_loses_a_result(serve):
    first = serve()
    run = begin_slow(first, rollouts=4)
    before = engine_of(first)
    before.kill()
    eventually(lambda: engine_of(first).pid != before.pid)
    eventually(lambda: _row(first, run)["done"] >= 2)
    engine = engine_of(first)
    os.kill(first.process.pid, signal.SIGKILL)
    first.process.wait()
    eventually(lambda: not engine.is_running() or engine.status() == psutil.STATUS_ZOMBIE)
    second = serve()
    eventually(lambda: _row(second, run)["status"] == "done", within_s=60)
    assert _row(second, run)["counts"] == {"passed": 4}


def _row(server, run: str) -> dict[str, object]:
    return next(each for each in server.client.get("/api/runs").json()["items"] if each["id"] == run)


@pytest.mark.needs("bubblewrap")
def test_it_stops_in_time_with_an_open_stream_and_a_running_trial(serve):
    server = serve()
    up = tasks.upload(server.client, "long", 60, agent="oracle", num_runs=1)
    spec = {"spec": tasks.spec(up["id"])}
    run = server.client.post("/api/runs", json=spec).json()["id"]
    eventually(lambda: server.client.get("/api/runs").json()["items"][0]["status"] == "running")
    server.client.post(f"/api/tasks/{up['id']}/execute-async")
    engine = engine_of(server)
    opened = threading.Event()

    def follow() -> None:
        with server.client.stream("GET", f"/api/tasks/{up['id']}/runs/1/logs?follow=true") as stream:
            opened.set()
            for _ in stream.iter_raw():
                pass

    reader = threading.Thread(target=follow, daemon=True)
    reader.start()
    assert opened.wait(20)
    assert server.stop() == 0
    assert not psutil.pid_exists(engine.pid)
    reader.join(5)
    again = serve()
    row = next(each for each in again.client.get("/api/runs").json()["items"] if each["id"] == run)
    assert row["done"] == 0
    assert again.client.post(f"/api/runs/{run}/cancel").json()["status"] == "cancelled"
