from __future__ import annotations

import _thread
import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from proctor.model.lockstep import Slot
from proctor.trial.lockstep import clocks

COUNT = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done"


@pytest.fixture
def _watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a worker: the calls that collect children and start threads are watched."""
    places = [(os, name) for name in ("wait", "waitpid", "wait3", "wait4")]
    places += [(_thread, name) for name in ("start_new_thread", "start_new", "start_joinable_thread")]
    places += [(threading, name) for name in ("_start_new_thread", "_start_joinable_thread")]
    for place, name in places:
        if hasattr(place, name):
            monkeypatch.setattr(place, name, getattr(place, name))
    clocks.watch()
    yield
    clocks._ended.clear()


def timed(call, loops: int = 1) -> Slot:
    return Slot(*clocks.Clocks().slot(call, None, loops))


def reaped() -> int:
    """A child that computes; how it ended."""
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", COUNT], dict(os.environ))
    return os.waitpid(pid, 0)[0]


def test_code_without_children_has_none():
    found = timed(lambda _: sum(range(1000)))
    assert found.children_ns == 0
    assert found.cpu_ns > 0


def test_the_cpu_time_of_a_child_is_counted():
    found = timed(lambda _: reaped())
    assert 0 < found.children_ns <= found.cpu_ns
    assert found.cpu_ns - found.children_ns < found.wall_ns


def test_a_child_that_still_runs_is_counted_as_far_as_it_came():
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        deadline = time.monotonic() + 60

        def work(_):
            before = clocks._schedstat(child.pid)[0]
            while clocks._schedstat(child.pid)[0] < before + 1_000_000:
                assert time.monotonic() < deadline

        assert timed(work).children_ns >= 1_000_000
    finally:
        child.kill()
        child.wait()


@pytest.mark.usefixtures("_watched")
def test_how_long_a_child_waited_for_a_cpu_is_noted_when_it_ends():
    pids = []
    timed(lambda _: pids.append(reaped()))
    assert set(pids) <= clocks._ended.keys()


@pytest.mark.usefixtures("_watched")
def test_any_way_to_collect_a_child_is_watched_and_answers_as_before():
    for collect in (
        lambda pid: os.waitpid(pid, 0)[:2],
        lambda pid: os.waitpid(-1, 0)[:2],
        lambda pid: os.wait4(pid, 0)[:2],
        lambda pid: os.wait3(0)[:2],
        lambda _: os.wait(),
    ):
        clocks._ended.clear()
        pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 3"], {})
        found, status = collect(pid)
        assert (found, os.waitstatus_to_exitcode(status)) == (pid, 3)
        assert pid in clocks._ended


@pytest.mark.usefixtures("_watched")
def test_a_wait_without_a_child_fails_as_before():
    with pytest.raises(ChildProcessError):
        os.waitpid(2**22 + 1, 0)


@pytest.mark.usefixtures("_watched")
def test_how_long_a_thread_waited_for_a_cpu_is_noted_when_it_ends():
    seen = []

    def work(_):
        thread = threading.Thread(target=lambda: seen.append(threading.get_native_id()))
        thread.start()
        thread.join()

    timed(work)
    assert set(seen) <= clocks._ended.keys()


@pytest.mark.usefixtures("_watched")
def test_threads_that_share_a_cpu_want_it_at_once():
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})

    def work(_):
        def hashes():
            for _ in range(40):
                hashlib.sha256(bytes(200_000)).digest()

        both = [threading.Thread(target=hashes) for _ in range(2)]
        for each in both:
            each.start()
        for each in both:
            each.join()

    try:
        found = timed(work)
    finally:
        os.sched_setaffinity(0, before)
    assert found.at_once > 0.1


def test_a_task_that_is_gone_has_no_statistics():
    assert clocks._schedstat(2**22 + 1) == (0, 0)
    assert list(clocks._children(2**22 + 1)) == []
    assert list(clocks._living(2**22 + 1)) == []
    assert clocks._collected_ns(2**22 + 1) == 0
