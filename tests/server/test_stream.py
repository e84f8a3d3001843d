"""The one reader of events behind all streams."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.server.stream import EventHub
from proctor.store.views.events import Written

pytestmark = pytest.mark.anyio
HISTORY = 41


class Events:
    """Of a store with a history, in which nothing happens; a reader can be held up."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.goes_on.set()

    def mark(self) -> int:
        assert self.goes_on.wait(20)
        return 0

    def last(self) -> int:
        return HISTORY

    def after(self, last: int, limit: int) -> list[Written]:
        return []

    def wait(self, mark: int, timeout_s: float) -> None:
        threading.Event().wait(0.01)


class Entrance(threading.Event):
    """Whether anybody listens. Somebody comes just after the reader has seen that nobody does."""

    def __init__(self) -> None:
        super().__init__()
        self.enter: Any = None

    def is_set(self) -> bool:
        listened = super().is_set()
        if not listened and self.enter:
            enter, self.enter = self.enter, None
            enter()
        return listened


async def test_who_comes_while_the_last_one_leaves_is_not_told_the_whole_history():
    events, loop = Events(), asyncio.get_running_loop()
    store = SimpleNamespace(views=SimpleNamespace(events=events), close=lambda: None)
    hub = EventHub(SimpleNamespace(now=lambda function: function(store)))  # type: ignore[arg-type]
    hub._wanted = entrance = Entrance()
    entered = threading.Event()

    def enter() -> None:
        events.goes_on.clear()
        asyncio.run_coroutine_threadsafe(hub.__aenter__(), loop).result(20)
        entered.set()

    try:
        async with hub:
            assert hub.newest == HISTORY
            entrance.enter = enter
        await asyncio.to_thread(entered.wait, 20)
        # The reader now either stands still before its next look, or has seen that somebody listens.
        for _ in range(100):
            assert hub.newest == HISTORY, "a stream would begin before the first event"
            await asyncio.sleep(0.001)
    finally:
        events.goes_on.set()
        hub.close()


async def test_a_listener_that_falls_behind_what_is_remembered_reads_the_store():
    hub = EventHub(None)  # type: ignore[arg-type]
    hub.newest = 10

    class Memory:
        """While a listener copies it, older events are dropped."""

        def __iter__(self) -> Any:
            hub._from = 9
            return iter(())

    hub._memory = Memory()  # type: ignore[assignment]
    assert hub.after(5) is None
