"""Burners burn while they should and never longer."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from proctor.processes import read_process
from proctor.runs.vet.burners import Burners, Turns

DEADLINE_S = 30.0


def wait_until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


def gone(pid: int) -> bool:
    found = read_process(pid)
    return found is None or found.gone


def test_burners_use_the_cpu_until_they_are_stopped():
    burners = Burners(1)
    burners.start()
    burners.start()
    try:
        (process,) = burners.running
        wait_until(lambda: (found := read_process(process.pid)) is not None and found.cpu_s > 0.05)
    finally:
        burners.stop()
    assert gone(process.pid)
    assert burners.running == []
    burners.stop()


def test_a_burner_does_not_outlive_a_killed_parent():
    script = (
        "import sys, time; from proctor.runs.vet.burners import Burners; b = Burners(2); b.start(); "
        "print(*[p.pid for p in b.running], flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 2
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: all(map(gone, pids)))


@pytest.mark.anyio
async def test_quiet_and_busy_trials_never_overlap():
    burners = Burners(0)
    started: list[str] = []
    burners.start = lambda: started.append("start")  # type: ignore[method-assign]
    burners.stop = lambda: started.append("stop")  # type: ignore[method-assign]
    turns = Turns(burners)
    inside: set[bool] = set()
    both = False

    async def trial(busy: bool) -> None:
        nonlocal both
        async with turns.take(busy=busy):
            inside.add(busy)
            await asyncio.sleep(0)
            both |= len(inside) > 1
            await asyncio.sleep(0)
            if turns._inside == 1:
                inside.discard(busy)

    await asyncio.gather(*(trial(at % 3 == 0) for at in range(30)))
    assert not both
    assert "start" in started
    assert started[-1] == "stop"


@pytest.mark.anyio
async def test_a_trial_that_raises_puts_the_fire_out():
    burners = Burners(1)
    turns = Turns(burners)

    async def fail() -> None:
        async with turns.take(busy=True):
            assert len(burners.running) == 1
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await fail()
    assert burners.running == []
    async with turns.take(busy=False):
        assert burners.running == []
