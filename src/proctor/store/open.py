"""Open a store by its address. What the address does not need is not imported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

from proctor.errors import UsageError
from proctor.store.database import Clock
from proctor.store.store import Store

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
        return _sqlite(
            unquote(rest.removeprefix("/")) or ":memory:", create=create, busy_s=busy_s, clock=clock
        )
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
    if path != ":memory:" and not create and not Path(path).exists():
        path = ":memory:"
    return Store(SqliteDatabase(path, busy_s=busy_s, clock=clock))
