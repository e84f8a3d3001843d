"""Work beside an event loop."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from proctor.threads import in_own_thread, in_thread, to_its_end

pytestmark = pytest.mark.anyio
WAIT_S = 10


async def test_both_give_what_the_call_gives_or_raises():
    for beside in (in_thread, in_own_thread):
        assert await beside(lambda first, second: first + second, 1, second=2) == 3
        assert await beside(threading.current_thread) is not threading.current_thread()
        with pytest.raises(ZeroDivisionError):
            await beside(divmod, 1, 0)


async def test_calls_that_hang_leave_threads_for_others():
    """More of them than asyncio has threads, and host names are looked up all the same."""
    go_on = threading.Event()
    hanging = [asyncio.create_task(in_own_thread(go_on.wait, WAIT_S)) for _ in range(64)]
    try:
        async with asyncio.timeout(WAIT_S):
            assert await asyncio.get_running_loop().getaddrinfo("127.0.0.1", 80)
            assert await in_thread(int) == 0
    finally:
        go_on.set()
        await asyncio.gather(*hanging)


async def test_a_cancelled_call_in_a_thread_has_ended_when_the_cancellation_passes():
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait(WAIT_S)
        ended.set()

    for beside in (in_thread(work), to_its_end(in_own_thread(work))):
        for event in (begun, go_on, ended):
            event.clear()
        task = asyncio.create_task(beside)
        await asyncio.to_thread(begun.wait, WAIT_S)
        task.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()


async def test_a_cancelled_call_in_its_own_thread_is_abandoned():
    go_on = threading.Event()
    task = asyncio.create_task(in_own_thread(go_on.wait, WAIT_S))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()


def test_a_forked_child_has_threads_of_its_own():
    asyncio.run(in_thread(int))
    child = os.fork()
    if not child:
        try:
            asyncio.run(asyncio.wait_for(in_thread(int), WAIT_S))
        except BaseException:  # noqa: BLE001 - the child must not go on as the test
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
