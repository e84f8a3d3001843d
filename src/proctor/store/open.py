"""Open a store by its address, and lend it to whoever needs one. What is not needed is not imported."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Concatenate, ParamSpec, Self, TypeVar
from urllib.parse import unquote

from proctor.errors import UsageError
from proctor.store.database import Clock
from proctor.store.store import Store

_P = ParamSpec("_P")
_T = TypeVar("_T")
_SPARE = 8
"""How many connections to SQLite stay open while nobody uses them."""
_MEMORY = ":memory:"

_SERVERS: dict[str, Callable[[], Store]] = {}
"""Addresses of servers whose runs are read as if they were in a store here."""


def register(url: str, opener: Callable[[], Store]) -> None:
    """Let an address of HTTP be one of a store; the client of servers does."""
    _SERVERS[url] = opener


def open_store(url: str, *, create: bool = True, busy_s: float = 30.0, clock: Clock | None = None) -> Store:
    """The store at a path, `sqlite:///…` or `postgresql://…`, upgraded to the newest schema.

    With `create=False` a SQLite file that does not exist reads as an empty store and is not made. A `clock`
    takes the place of the database's own, for tests.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return _sqlite(url, create=create, busy_s=busy_s, clock=clock)
    if scheme == "sqlite":
        return _sqlite(unquote(rest.removeprefix("/")) or _MEMORY, create=create, busy_s=busy_s, clock=clock)
    if scheme in {"postgresql", "postgres", "postgresql+psycopg"}:
        from proctor.store.postgres import PostgresDatabase

        return Store(PostgresDatabase(url, busy_s=busy_s, clock=clock))
    if url in _SERVERS:
        return _SERVERS[url]()
    raise UsageError(
        f"'{scheme}://' is not a store: give a file, sqlite:///FILE or postgresql://USER@HOST/DATABASE"
    )


def _sqlite(path: str, *, create: bool, busy_s: float, clock: Clock | None) -> Store:
    from proctor.store.sqlite import SqliteDatabase

    if not path:
        raise UsageError("the store has no address: set PROCTOR_STORE, or leave it unset for the default")
    if path != _MEMORY and not create and not Path(path).exists():
        path = _MEMORY
    return Store(SqliteDatabase(path, busy_s=busy_s, clock=clock))


class StorePool:
    """The stores of a process: opened when they are needed, lent to one user at a time, and used again.

    PostgreSQL's store has a pool of connections itself, so its users share one. SQLite's is one connection
    behind a lock: who has it alone holds up nobody by a long read.
    """

    def __init__(self, url: str, *, create: bool = True) -> None:
        """`create`: as for `open_store`."""
        self._url = url
        self._create = create
        self._lock = threading.Lock()
        self._shared: Store | None = None
        self._spare: list[Store] = []
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def borrow(self) -> Iterator[Store]:
        """A store for the length of the block, in any thread."""
        store = self._take()
        try:
            yield store
        finally:
            self._give_back(store)

    def now(self, function: Callable[Concatenate[Store, _P], _T], *args: _P.args, **more: _P.kwargs) -> _T:
        """What the function returns for a store and the arguments."""
        with self.borrow() as store:
            return function(store, *args, **more)

    def close(self) -> None:
        """Let go of all; what is lent is closed when it comes back, and so is what is borrowed afterwards.

        So a process can close it before it forks, and parent and child go on with stores of their own.
        """
        with self._lock:
            stores = [*self._spare, *([self._shared] if self._shared else [])]
            self._spare, self._shared, self._closed = [], None, True
        for store in stores:
            store.close()

    def _take(self) -> Store:
        with self._lock:
            if self._shared:
                return self._shared
            if self._spare:
                return self._spare.pop()
            store = open_store(self._url, create=self._create)
            if store.remote and not self._closed:
                self._shared = store
            return store

    def _give_back(self, store: Store) -> None:
        with self._lock:
            if store is self._shared:
                return
            # An empty store in memory stands for a file that does not exist: it may by the next time.
            if not self._closed and len(self._spare) < _SPARE and store.where != _MEMORY:
                self._spare.append(store)
                return
        store.close()
