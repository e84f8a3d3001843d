"""A scripted provider in a thread of its own, for tests that run whole commands."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from proctor.gateway.provider.server import FakeProvider


@contextmanager
def serving(provider: FakeProvider) -> Iterator[FakeProvider]:
    """The provider answers until the context ends."""
    ready, loop = threading.Event(), asyncio.new_event_loop()
    ended = asyncio.Event()

    async def serve() -> None:
        async with provider:
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield provider
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(30)
        loop.close()
