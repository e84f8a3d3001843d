"""Events for streams: one reader of the store for all of them, and a memory of the newest.

A stream has a place and goes on from it: from memory when it is near the end, else from the store. Nothing
is queued for it, so a slow reader costs nothing and misses nothing.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple, Self

import msgspec

from proctor.errors import StoreError
from proctor.store.open import StorePool
from proctor.store.store import Store
from proctor.store.views.events import Written

REMEMBERED = 20_000
"""The newest events, in memory while somebody listens."""
PAGE = 2_000
_WAIT_S = 1.0
_PAUSE_S = 0.03
"""Between two looks while much happens: many events then cost one query."""
_BACK_S = 2.0
"""After the store could not be read."""


class Told(NamedTuple):
    """An event as a stream sends it, and who may see it."""

    id: int
    run_id: str
    project: str
    line: bytes


def told(event: Written) -> Told:
    """An event as server-sent event."""
    about = {
        "id": event.id,
        "run": event.run_id,
        "at": event.at,
        "kind": event.kind,
        "index": event.index,
        "data": msgspec.Raw(event.data.encode()),
    }
    line = b"id: %d\nevent: %s\ndata: %s\n\n" % (event.id, event.kind.encode(), msgspec.json.encode(about))
    return Told(event.id, event.run_id, event.project, line)


class EventHub:
    """Reads the store's events in a thread of its own while anybody listens."""

    def __init__(self, stores: StorePool) -> None:
        self._stores = stores
        self._lock = threading.Lock()
        """Who comes, who goes, and the thread that forgets when nobody is left."""
        self._listeners = 0
        self._wanted = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        self._memory: deque[Told] = deque(maxlen=REMEMBERED)
        self._from = 0
        """What was after this event is in memory."""
        self.newest = -1
        """The newest event that was read; -1 before anything was."""

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        with self._lock:
            self._listeners += 1
            self._wanted.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._read, name="proctor-events", daemon=True)
            self._thread.start()
        while self.newest < 0 and not self._stopped:
            await self.changed(_WAIT_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        with self._lock:
            self._listeners -= 1
            if not self._listeners:
                self._wanted.clear()

    async def changed(self, timeout_s: float) -> None:
        """Return when something new may be there, at the latest after a time."""
        woken = self._woken
        try:
            async with asyncio.timeout(timeout_s):
                await woken.wait()
        except TimeoutError:
            pass

    def after(self, last: int) -> list[Told] | None:
        """What is in memory after an event; None when some of it is only in the store."""
        if last < self._from:
            return None
        found: list[Told] = []
        # From the end: a stream is mostly near it. The thread only appends, and a copy is taken at once.
        remembered = tuple(self._memory) if self.newest > last else ()
        if last < self._from:
            return None  # what comes next was forgotten meanwhile
        for each in reversed(remembered):
            if each.id <= last:
                break
            found.append(each)
        found.reverse()
        return found

    def close(self) -> None:
        """End the thread."""
        self._stopped = True
        self._wanted.set()
        if self._thread:
            self._thread.join(5)

    def _read(self) -> None:
        while not self._stopped:
            if not self._wanted.is_set():
                self._forget()
                self._wanted.wait()
                continue
            try:
                self._stores.now(self._look)
            except StoreError:
                # Told by the routes that fail as well; streams stay open and go on when it is back.
                threading.Event().wait(_BACK_S)

    def _forget(self) -> None:
        """Begin anew with the next listener; not when one has come meanwhile: it goes on from `newest`."""
        with self._lock:
            if not self._listeners:
                self.newest = -1
                self._memory.clear()

    def _look(self, store: Store) -> None:
        events = store.views.events
        mark = events.mark()
        if self.newest < 0:
            self._from = events.last()
            self._remember((), self._from)
            return
        found = events.after(self.newest, limit=PAGE)
        if found:
            self._remember(map(told, found), found[-1].id)
        if len(found) < PAGE:
            if found:
                threading.Event().wait(_PAUSE_S)
            else:
                events.wait(mark, _WAIT_S)

    def _remember(self, events: Iterable[Told], newest: int) -> None:
        for each in events:
            if len(self._memory) == REMEMBERED:
                self._from = self._memory[0].id
            self._memory.append(each)
        self.newest = newest
        if self._loop and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        woken, self._woken = self._woken, asyncio.Event()
        woken.set()
