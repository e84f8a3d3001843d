"""PostgreSQL through SQLAlchemy and psycopg, for a store that many machines share."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Engine, TextClause, create_engine, event, exc, text
from sqlalchemy.engine import make_url

from proctor.errors import MissingExtraError, StoreError, UsageError
from proctor.store.database import (
    HEAD,
    VERSION_TABLE,
    ConflictError,
    Params,
    Row,
    Transaction,
    refuse_unknown,
)

_NO_PARAMS: Params = {}
_PIECE = 1000
"""Rows per round trip when many are written."""
_UPGRADE_LOCK = 0x50726374
"""Advisory lock: one process at a time changes the schema."""


class PostgresDatabase:
    """A PostgreSQL database. Each thread that writes has its own connection while it does."""

    row_lock = "FOR UPDATE SKIP LOCKED"
    event_barrier = "LOCK TABLE events IN SHARE MODE"
    """Waits for the writers that already have an id, so that no smaller one commits after the reading."""

    def __init__(self, url: str, *, busy_s: float = 30.0) -> None:
        self._pid = os.getpid()
        self._open = True
        self._mine = threading.local()
        try:
            address = make_url(url)
            self.where = address.set(drivername="postgresql").render_as_string(hide_password=True)
            self._engine: Engine = create_engine(
                address,
                pool_pre_ping=True,
                pool_size=4,
                max_overflow=28,
                connect_args={"connect_timeout": 10},
            )
        except (exc.ArgumentError, ValueError) as error:
            raise UsageError(f"invalid store address: {error}") from error
        except ImportError as error:
            raise MissingExtraError("psycopg", "postgres", "a PostgreSQL store") from error
        event.listen(self._engine, "connect", _patience(busy_s))
        try:
            with self._explained():
                self._prepare()
        except BaseException:
            self._engine.dispose()
            raise

    def read(self, sql: str, params: Params = _NO_PARAMS, /) -> Sequence[Row]:
        """The rows of one query; inside a transaction of this thread, as that one sees them."""
        with self._explained():
            if (current := self._current()) is not None:
                return current.execute(_text(sql), params).all()
            with self._live().connect() as connection:
                return connection.execute(_text(sql), params).all()

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """A transaction; one that this thread has begun already is joined."""
        if (current := self._current()) is not None:
            with self._explained():
                yield _PostgresTransaction(current)
            return
        with self._explained(), self._live().begin() as connection:
            self._mine.connection = connection
            try:
                yield _PostgresTransaction(connection)
            finally:
                self._mine.connection = None

    def check(self) -> list[str]:
        """PostgreSQL looks after its own pages; that it answers is all there is to check."""
        self.read("SELECT 1")
        return []

    def close(self) -> None:
        """Close every connection."""
        if self._open:
            self._engine.dispose(close=self._pid == os.getpid())
        self._open = False

    def _current(self) -> Connection | None:
        found: Connection | None = getattr(self._mine, "connection", None)
        return found if self._pid == os.getpid() else None

    def _live(self) -> Engine:
        if not self._open:
            raise StoreError(f"{self.where}: the store is closed")
        if self._pid != os.getpid():
            # A forked child must not talk on its parent's connections, nor close them.
            self._engine.dispose(close=False)
            self._mine = threading.local()
            self._pid = os.getpid()
        return self._engine

    def _prepare(self) -> None:
        with self._engine.connect() as connection:
            revision = _revision(connection)
        if revision == HEAD:
            return
        if revision is not None:
            refuse_unknown(revision, self.where)
        from proctor.store.migrations import upgrade

        with self._engine.begin() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _UPGRADE_LOCK})
            upgrade(connection)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except exc.IntegrityError as error:
            raise ConflictError(f"{self.where}: {_first_line(error)}") from error
        except exc.OperationalError as error:
            raise StoreError(
                f"{self.where}: PostgreSQL cannot be reached or timed out ({_first_line(error)}); "
                "check that it runs, that the address is right and that no other session locks the tables"
            ) from error
        except exc.SQLAlchemyError as error:
            raise StoreError(f"{self.where}: PostgreSQL refused: {_first_line(error)}") from error


class _PostgresTransaction:
    """Statements on the connection that this thread has begun a transaction on."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, params: Params = _NO_PARAMS, /) -> Sequence[Row]:
        result = self._connection.execute(_text(sql), params)
        return result.all() if result.returns_rows else []

    def change(self, sql: str, params: Params = _NO_PARAMS, /) -> int:
        return self._connection.execute(_text(sql), params).rowcount

    def many(self, sql: str, params: Iterable[Params], /) -> None:
        piece: list[Params] = []
        for each in params:
            piece.append(each)
            if len(piece) == _PIECE:
                self._connection.execute(_text(sql), piece)
                piece = []
        if piece:
            self._connection.execute(_text(sql), piece)


def _patience(busy_s: float) -> Any:
    def on_connect(connection: Any, _record: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET lock_timeout = {max(1, round(busy_s * 1000))}")
        connection.commit()

    return on_connect


def _revision(connection: Connection) -> str | None:
    if connection.execute(text(f"SELECT to_regclass('{VERSION_TABLE}')")).scalar() is None:
        return None
    found: str | None = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    return found


@lru_cache(maxsize=256)
def _text(sql: str) -> TextClause:
    return text(sql)


def _first_line(error: BaseException) -> str:
    cause = getattr(error, "orig", None) or error
    return str(cause).strip().partition("\n")[0]
