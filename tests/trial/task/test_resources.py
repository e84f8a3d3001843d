"""What is kept of the looks at a sandbox, and that a short attempt is never looked at."""

from __future__ import annotations

import asyncio
import json

import pytest

from proctor.sandbox.base import Limits
from proctor.sandbox.sample import Sample, sample, traffic
from proctor.trial.task import resources
from proctor.trial.task.resources import MOST_POINTS, ResourceLog


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Looked:
    """A sandbox that says what it uses, until it ends."""

    def __init__(self, most: int) -> None:
        self.looks, self.most = 0, most
        self.done = asyncio.Event()

    def sample(self) -> Sample | None:
        self.looks += 1
        if self.looks <= self.most:
            return Sample(memory_bytes=self.looks, cpu_s=0.5)
        self.done.set()
        return None


def log_of(*samples: Sample, limits: Limits | None = None, every_s: float = 1.0) -> dict:
    clock = Clock()
    log = ResourceLog(clock)
    log._limits = limits or Limits()
    for each in samples:
        clock.now += every_s
        log.take(each)
    return json.loads(log.to_json())


def test_columns_without_a_value_are_left_out():
    found = log_of(Sample(memory_bytes=5, cpu_s=0.5), Sample(memory_bytes=7, cpu_s=None))
    assert found == {
        "at_s": [1.0, 2.0],
        "memory_bytes": [5, 7],
        "cpu_s": [0.5, None],
        "limits": {},
        "events": [],
    }


def test_a_long_attempt_keeps_few_points_and_its_peak():
    looks = [Sample(memory_bytes=10**9 if at == 2 else at, cpu_s=float(at)) for at in range(5 * MOST_POINTS)]
    found = log_of(*looks)
    assert MOST_POINTS // 2 <= len(found["at_s"]) <= MOST_POINTS
    assert max(found["memory_bytes"]) == 10**9
    assert found["at_s"] == sorted(found["at_s"])
    assert found["cpu_s"][-1] == len(looks) - 1
    assert len(json.dumps(found)) < 64_000


def test_deaths_limits_and_throttling_are_told_once_each():
    limits = Limits(memory_bytes=100, cpus=1.0)
    found = log_of(
        Sample(memory_bytes=10),
        Sample(memory_bytes=99, throttled_s=0.5),
        Sample(memory_bytes=100, throttled_s=1.0, oom_kills=2),
        Sample(memory_bytes=10, throttled_s=1.0, oom_kills=2),
        limits=limits,
    )
    assert [(each["at_s"], each["kind"]) for each in found["events"]] == [
        (2.0, "memory_limit"),
        (2.0, "throttled"),
        (3.0, "oom"),
    ]
    assert found["events"][2]["text"] == "2 processes killed for memory"
    assert found["limits"] == {"memory_bytes": 100, "cpus": 1.0}


@pytest.mark.anyio
async def test_a_sandbox_is_looked_at_until_it_ends(monkeypatch):
    monkeypatch.setattr(resources, "FIRST_S", 0.0)
    monkeypatch.setattr(resources, "EVERY_S", 0.0)
    log, sandbox = ResourceLog(), Looked(3)
    log.begin(sandbox, Limits())
    await asyncio.wait_for(sandbox.done.wait(), 10)
    assert json.loads(log.to_json())["memory_bytes"] == [1, 2, 3]


def test_many_attempts_at_once_are_looked_at_less_often(monkeypatch):
    delays = []
    monkeypatch.setattr(ResourceLog, "_again", lambda _, __, after_s: delays.append(after_s))
    monkeypatch.setattr(resources, "_LOOKING", set())
    logs, sandbox = [ResourceLog() for _ in range(3 * resources.MOST_PER_S)], Looked(2)
    for log in logs:
        log.begin(sandbox, Limits())
    logs[0]._look(sandbox)
    for log in logs[1:]:
        log.end()
    logs[0]._look(sandbox)
    assert delays[-2:] == [3.0, resources.EVERY_S]


@pytest.mark.anyio
async def test_a_short_attempt_is_never_looked_at_and_leaves_no_file(tmp_path):
    log, sandbox = ResourceLog(), Looked(3)
    log.begin(sandbox, Limits())
    log.end()
    assert (sandbox.looks, log.keep(None, tmp_path)) == (0, ())


def test_a_sandbox_that_does_not_count_has_no_samples():
    assert sample(object()) is None
    assert traffic(2**30) == (None, None)
