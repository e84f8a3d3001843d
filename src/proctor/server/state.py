"""What every route shares: settings, the store in threads, the blobs, the clock. Nothing a restart loses."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from fastapi import Request

from proctor.server.limits import Limits
from proctor.server.metrics import Requests
from proctor.server.places import Places
from proctor.server.private_home import close_to_others
from proctor.server.reading.lane import Lane
from proctor.server.reading.reading import Reading
from proctor.server.reading.run_rows import RunRows, warm
from proctor.server.stream import EventHub
from proctor.server.submit.known_tasks import KnownTasks
from proctor.settings import Settings
from proctor.store.blobs import Blobs, blobs_of
from proctor.store.open import open_store
from proctor.store.service.figures import Figures
from proctor.store.store import Store

if TYPE_CHECKING:
    from proctor.server.auth.authenticate import Known
    from proctor.server.auth.oidc.issuer import Issuer
    from proctor.server.auth.vault import Vault
    from proctor.server.engine.supervisor import Supervisor
    from proctor.server.tracing.tracing import Tracing

_P = ParamSpec("_P")
_T = TypeVar("_T")

THREADS = 4
"""How many calls of the store are under way at once; each thread has a connection of its own."""


SUBMITTING = 2
"""How many submissions are planned at once. Planning is Python's own work: more threads only take turns."""


class Mode(StrEnum):
    """Whom a server answers."""

    LOCAL = "local"
    """One person on this machine, without tokens."""
    TOKENS = "tokens"
    """Whoever has a token."""
    VIEW = "view"
    """One person on this machine, reading only."""


class StorePool:
    """Calls functions of a store in threads, so that the loop goes on answering meanwhile."""

    def __init__(self, url: str, *, create: bool = True, threads: int = THREADS) -> None:
        self._url = url
        self._create = create
        self._threads = ThreadPoolExecutor(threads, "proctor-store")
        self._mine = threading.local()
        self._opened: list[Store] = []
        self._shared: Store | None = None
        first = self._open()
        if first.remote:
            self._shared = first  # it has a pool of connections itself
        else:
            self._spare = [first]

    async def __call__(
        self, function: Callable[Concatenate[Store, _P], _T], *args: _P.args, **more: _P.kwargs
    ) -> _T:
        """What the function returns for a store and the arguments."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(self.now, function, *args, **more))

    def now(self, function: Callable[Concatenate[Store, _P], _T], *args: _P.args, **more: _P.kwargs) -> _T:
        """The same in the present thread."""
        return function(self.store, *args, **more)

    @property
    def store(self) -> Store:
        """The store of the present thread."""
        if self._shared is not None:
            return self._shared
        found: Store | None = getattr(self._mine, "store", None)
        if found is None:
            with suppress(IndexError):
                found = self._spare.pop()
            self._mine.store = found = found or self._open()
        return found

    def _open(self) -> Store:
        store = open_store(self._url, create=self._create)
        self._opened.append(store)
        return store

    def close(self) -> None:
        """Wait for what is under way, and let go of the store."""
        self._threads.shutdown()
        for store in self._opened:
            store.close()


@dataclass(slots=True)
class State:
    """What every route shares."""

    settings: Settings
    mode: Mode
    store: StorePool
    heavy: Lane
    """For what takes long, one after the other: meanwhile `store` goes on answering the rest."""
    planning: StorePool
    """For what people submit: many at once wait for each other, and no read waits for them."""
    blobs: Blobs
    events: EventHub
    places: Places
    clock: Callable[[], float] = time.time
    reading: Reading = field(default_factory=Reading)
    tasks: KnownTasks = field(default_factory=KnownTasks)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server is to end: whoever streams returns then."""
    issuer: Issuer | None = None
    """Through which people sign in; None before anybody did."""
    tracing: Tracing | None = None
    """What sends traces; None where no collector is configured."""
    engine: Supervisor | None = None
    """What executes runs; None where nothing does."""
    known: Known = field(default_factory=lambda: _known())  # noqa: PLW0108 - it is defined below
    limits: Limits = field(default_factory=Limits)
    requests: Requests = field(default_factory=Requests)
    figures: dict[str | None, tuple[float, Figures]] = field(default_factory=dict)
    """What monitors were told a moment ago, by project."""
    _submissions: int = 0
    """How many are being planned."""
    _vault: Vault | None = None

    @property
    def vault(self) -> Vault:
        """What decrypts stored keys; its own key is made when first needed."""
        if self._vault is None:
            from proctor.server.auth.vault import open_vault

            self._vault = open_vault(self.settings)
        return self._vault

    async def submitting(
        self, function: Callable[Concatenate[Store, _P], _T], *args: _P.args, **more: _P.kwargs
    ) -> _T:
        """What the function returns; while submissions are planned the engine begins fewer runs."""
        self._submissions += 1
        if self.engine and self._submissions == 1:
            self.engine.hold_back()
        try:
            return await self.planning(function, *args, **more)
        finally:
            self._submissions -= 1
            if self.engine and not self._submissions:
                self.engine.go_on()

    def wake(self) -> None:
        """Tell the engine that there is something to do."""
        if self.engine:
            self.engine.wake()

    def warm(self) -> None:
        """Have the newest runs ready before anybody asks for them."""
        lane = Lane(partial(open_store, self.settings.store_url, create=False))
        lane.later(warm, self.reading.rows, self.stopping.is_set)
        lane.close_after()

    def close(self) -> None:
        """Let go of the store."""
        self.events.close()
        self.heavy.close()
        self.planning.close()
        self.store.close()


def open_state(settings: Settings, mode: Mode) -> State:
    """The state of a server on a store."""
    if mode is not Mode.VIEW:
        close_to_others(settings)
    store = StorePool(settings.store_url, create=mode is not Mode.VIEW)
    opened = partial(open_store, settings.store_url, create=False)
    planning = StorePool(settings.store_url, create=False, threads=SUBMITTING)
    heavy, events = Lane(opened), EventHub(opened)
    blobs, limits = blobs_of(settings), Limits(settings.serve_rate)
    reading = Reading(RunRows(by_workers=bool(settings.broker)))
    places = Places(settings)
    return State(
        settings, mode, store, heavy, planning, blobs, events, places, reading=reading, limits=limits
    )


def _known() -> Known:
    from proctor.server.auth.authenticate import Known

    return Known()


def state_of(request: Request) -> State:
    """The state, for a route: the alias `Shared` of auth/caller.py."""
    found: State = request.app.state.proctor
    return found
