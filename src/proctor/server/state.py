"""What every route shares: settings, the store in threads, the blobs, the clock. Nothing a restart loses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from fastapi import Request

from proctor.runs.process_resources import Resources
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
from proctor.store.blobs import Blobs
from proctor.store.calls import StoreThreads
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


@dataclass(slots=True)
class State:
    """What every route shares."""

    resources: Resources
    mode: Mode
    store: StoreThreads
    heavy: Lane
    """For what takes long, one after the other: meanwhile `store` goes on answering the rest."""
    planning: StoreThreads
    """For what people submit: many at once wait for each other, and no read waits for them."""
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
    def settings(self) -> Settings:
        """Those of the server."""
        return self.resources.settings

    @property
    def blobs(self) -> Blobs:
        """Where files of runs are."""
        return self.resources.blobs

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
        lane = Lane(self.resources.stores)
        lane.later(warm, self.reading.rows, self.stopping.is_set)
        lane.close_after()

    def close(self) -> None:
        """Let go of the store."""
        self.events.close()
        self.heavy.close()
        self.planning.close()
        self.store.close()
        self.resources.close()


def open_state(settings: Settings, mode: Mode) -> State:
    """The state of a server on a store."""
    if mode is not Mode.VIEW:
        close_to_others(settings)
    resources = Resources(settings, create=mode is not Mode.VIEW)
    stores = resources.stores
    with stores.borrow():
        pass  # a store that cannot be opened ends the start, and not the first request
    return State(
        resources,
        mode,
        store=StoreThreads(stores, THREADS),
        heavy=Lane(stores),
        planning=StoreThreads(stores, SUBMITTING),
        events=EventHub(stores),
        places=Places(settings),
        reading=Reading(RunRows(by_workers=bool(settings.broker))),
        limits=Limits(settings.serve_rate),
    )


def _known() -> Known:
    from proctor.server.auth.authenticate import Known

    return Known()


def state_of(request: Request) -> State:
    """The state, for a route: the alias `Shared` of auth/caller.py."""
    found: State = request.app.state.proctor
    return found
