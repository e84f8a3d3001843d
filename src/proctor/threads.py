"""Work beside an event loop: what may take long holds up neither the loop nor what others wait for.

The loop renews the leases of every run of its process. `asyncio.to_thread` shares a handful of threads with
the lookup of host names, so six clones that hang would stop all of it; hence threads apart from those.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")
_AT_ONCE = 4
"""Threads that compute for attempts. Each one more makes the loop wait longer for its turn of the GIL."""
_POOLS: list[ThreadPoolExecutor] = []
"""The one of this process, once it is needed: a forked child has none of its parent's threads."""
os.register_at_fork(after_in_child=_POOLS.clear)


async def in_thread(function: Callable[_P, _T], /, *args: _P.args, **more: _P.kwargs) -> _T:
    """Call what computes, or reads and writes files of this machine, for a bounded time.

    Cancelled, it waits for the end of the call, because files and sandboxes that it uses go next.
    """
    loop = asyncio.get_running_loop()
    context = contextvars.copy_context()
    if not _POOLS:
        _POOLS.append(ThreadPoolExecutor(_AT_ONCE, "proctor-attempts"))
    return await to_its_end(loop.run_in_executor(_POOLS[0], partial(context.run, function, *args, **more)))


async def in_own_thread(function: Callable[_P, _T], /, *args: _P.args, **more: _P.kwargs) -> _T:
    """Call what may take any time: code of users, other machines, a whole run. Cancelled, it is abandoned.

    The thread is a daemon, so that the end of the process does not wait for it either.
    """
    future: Future[_T] = Future()
    context = contextvars.copy_context()

    def call() -> None:
        try:
            future.set_result(context.run(function, *args, **more))
        except BaseException as error:  # noqa: BLE001 - who awaits it gets whatever it raised
            future.set_exception(error)

    future.set_running_or_notify_cancel()
    threading.Thread(target=call, name="proctor-long", daemon=True).start()
    return await asyncio.wrap_future(future)


async def to_its_end(work: Awaitable[_T]) -> _T:
    """Wait for the work also when cancelled meanwhile; a second cancellation abandons it."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # retrieved: the cancellation is what counts
        raise
