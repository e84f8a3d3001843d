"""PostgreSQL through SQLAlchemy and psycopg, for a store that many machines share."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import islice
from typing import Any

from sqlalchemy import Connection, CursorResult, Engine, TextClause, exc, text

from proctor.errors import StoreError
from proctor.store.again import LostError, repeat
from proctor.store.database import (
    HEAD,
    VERSION_TABLE,
    Clock,
    ConflictError,
    Params,
    Row,
    Transaction,
    Wording,
    refuse_unknown,
)
from proctor.store.postgres_line import code_of, connect, first_line, nothing_done, parse

_NO_PARAMS: Params = {}
_ID_BITS = 16
"""How many events a transaction may write, as a power of two."""
_CHANNEL = "proctor_events"
_NOTIFY_S = 0.05
"""At most this often a process wakes readers: a commit that notifies waits for others that do."""
_WORDS = {
    "now": "CAST(extract(epoch FROM clock_timestamp()) AS double precision)",
    "row_lock": "FOR UPDATE OF t SKIP LOCKED",
    "wait_lock": "FOR UPDATE OF t",
    "event_id": f"(CAST(CAST(pg_current_xact_id() AS text) AS bigint) << {_ID_BITS}) + :nth",
    "settled": (
        f"e.id < (CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint) << {_ID_BITS})"
    ),
}
"""Why a reader that goes on from the last id it saw loses no event, without any lock:

An event's id is the number of the transaction that wrote it, then its place within that transaction. The
server gives out each transaction's number once, so no id is given out twice.

A reader sees ids below its horizon only: X << 16, where X is the least number of a transaction that had not
ended when the query's snapshot was taken. Every transaction below X had ended then, so its events are in that
snapshot or, after a rollback, will never be. An event that is not in the snapshot belongs to a transaction
numbered X or above, unfinished or not yet begun: its id is at or above the horizon. So what appears later has
a greater id than all that was returned, whatever the order of commits.

A transaction that stays open delays what readers see, and never hides it. Nobody waits for a reader.
"""
_PIECE = 1000
"""Rows per round trip when many are written."""
_UPGRADE_LOCK = 0x50726374
"""Advisory lock: one process at a time changes the schema."""
_UPGRADE_S = 600.0
"""How long an upgrade waits for the tables, a moment at a time: who waits for a table holds up the others."""
_LOCK_S = 2
_LOOK_S = 10.0
"""How often a process looks whether a newer Proctor has changed the schema meanwhile."""
_NUMBER = text("SELECT CAST(pg_current_xact_id_if_assigned() AS text)")
_FATE = text("SELECT pg_xact_status(CAST(:number AS xid8))")
_COPIED = text(
    "SELECT max(id) >= (CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS bigint) "
    f"<< {_ID_BITS}) FROM events"
)
"""Whether events are of transactions that this server has yet to number: they are a copy of another's."""
_RENUMBER = (
    text("LOCK TABLE events IN ACCESS EXCLUSIVE MODE"),
    text(
        "UPDATE events SET id = -ranked.nth FROM "
        "(SELECT id, row_number() OVER (ORDER BY id) AS nth FROM events) ranked WHERE events.id = ranked.id"
    ),
    text("UPDATE events SET id = -id"),
)
"""In two steps: an id may not be given twice even for a moment."""


class PostgresDatabase:
    """A PostgreSQL database. Each thread that writes has its own connection while it does."""

    remote = True

    def __init__(self, url: str, *, busy_s: float = 30.0, clock: Clock | None = None) -> None:
        self._wording = Wording(clock=clock, **_WORDS)
        self._pid = os.getpid()
        self._open = True
        self._mine = threading.local()
        """Of each thread: the connection on which it listens."""
        self._listeners: list[Any] = []
        self._notified = 0.0
        self._looked = time.monotonic()
        address, self._line = parse(url)
        self.where = address.set(drivername="postgresql").render_as_string(hide_password=True)
        self._engine: Engine = connect(address, self._line, busy_s)
        try:
            with self._explained():
                self._prepare()
        except BaseException:
            self._engine.dispose()
            raise

    def read(self, sql: str, params: Params = _NO_PARAMS, /) -> Sequence[Row]:
        """The rows of one query; asked again when the connection is lost."""
        try:
            return self._read(sql, params)
        except LostError as error:
            return repeat(lambda: self._read(sql, params), error)

    def _read(self, sql: str, params: Params) -> Sequence[Row]:
        with self._connected() as connection, self._explained():
            return _PostgresTransaction(connection, self._wording).execute(sql, params)

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """A transaction, on a connection of its own.

        LostError: it was not committed, and can be made again. When only the answer to COMMIT is lost, the
        server is asked what became of it, by its number: what is known to be committed is no error.
        """
        number = None
        with self._connected() as connection:
            transaction = _PostgresTransaction(connection, self._wording)
            with self._explained():
                self._look(connection)
                yield transaction
                if transaction.wrote_events and time.monotonic() - self._notified >= _NOTIFY_S:
                    self._notified = time.monotonic()
                    connection.execute(text(f"NOTIFY {_CHANNEL}"))
                number = connection.execute(_NUMBER).scalar()
            try:
                connection.commit()
            except exc.DBAPIError as error:
                if not error.connection_invalidated:
                    with self._explained():
                        raise
                lost = error
            else:
                return
        if number is not None and not self._was_committed(number, lost):
            raise self._lost(lost) from lost

    def _was_committed(self, number: str, lost: Exception) -> bool:
        """What became of a transaction whose COMMIT was not answered."""

        def ask() -> bool:
            with self._connected() as connection:
                try:
                    fate = connection.execute(_FATE, {"number": number}).scalar()
                except exc.SQLAlchemyError as error:
                    if code_of(error) == "22023":  # not numbered yet: another server took over without it
                        return False
                    raise self._lost(error) from error
            if fate == "in progress":
                raise self._lost(lost)
            return bool(fate == "committed")

        try:
            return repeat(ask, self._lost(lost))
        except LostError as error:
            raise StoreError(
                f"{self.where}: PostgreSQL went away while it committed, and was not back within "
                f"{self._line.wait_s:.0f} s ({first_line(lost)}); whether the last change was kept is unknown"
            ) from error

    def mark(self) -> int:
        """Begin to listen, if this thread does not yet: what is written from now on ends a `wait`."""
        engine = self._live()
        if getattr(self._mine, "listener", None) is None:
            try:
                self._listen(engine)
            except LostError as error:
                repeat(lambda: self._listen(engine), error)
        return 0

    def _listen(self, engine: Engine) -> None:
        from psycopg import Error

        with self._explained(connecting=True):
            pooled = engine.raw_connection()
        listener: Any = pooled.driver_connection
        pooled.detach()
        try:
            listener.autocommit = True
            listener.execute(f"LISTEN {_CHANNEL}")
        except Error as error:
            listener.close()
            raise self._lost(error) from error
        self._mine.listener = listener
        self._listeners.append(listener)

    def wait(self, mark: int, timeout_s: float) -> None:
        """Return when another transaction has written events, or after `timeout_s`.

        Also when the connection is lost: what came meanwhile is read, and the next `mark` listens again.
        """
        del mark
        from psycopg import Error

        listener = self._mine.listener
        try:
            for _ in listener.notifies(timeout=timeout_s, stop_after=1):
                return
        except Error:
            self._mine.listener = None
            self._listeners.remove(listener)
            with suppress(Error):
                listener.close()

    def check(self) -> list[str]:
        """PostgreSQL looks after its own pages; that it answers is all there is to check."""
        self.read("SELECT 1")
        return []

    def close(self) -> None:
        """Close every connection."""
        if self._open:
            if self._pid == os.getpid():
                for listener in self._listeners:
                    listener.close()
            self._engine.dispose(close=self._pid == os.getpid())
        self._open = False

    def _live(self) -> Engine:
        if not self._open:
            raise StoreError(f"{self.where}: the store is closed")
        if self._pid != os.getpid():
            # A forked child must not talk on its parent's connections, nor close them.
            self._engine.dispose(close=False)
            self._mine = threading.local()
            self._left_to_parent, self._listeners = self._listeners, []
            self._pid = os.getpid()
        return self._engine

    def _look(self, connection: Connection) -> None:
        """Refuse to write what a newer Proctor, which has upgraded the store meanwhile, would not."""
        if time.monotonic() - self._looked > _LOOK_S:
            self._looked = time.monotonic()
            refuse_unknown(_revision(connection) or "missing", self.where)

    def _prepare(self) -> None:
        with self._engine.connect() as connection:
            revision = _revision(connection)
            if revision == HEAD and not connection.execute(_COPIED).scalar():
                return
        if revision is not None:
            refuse_unknown(revision, self.where)
        deadline = time.monotonic() + _UPGRADE_S
        while True:
            try:
                self._upgrade()
            except exc.OperationalError as error:
                # Another session works on a table: let those go on that wait behind us, and come again.
                if code_of(error) != "55P03" or time.monotonic() > deadline:
                    raise
                time.sleep(_LOCK_S / 4)
            else:
                return

    def _upgrade(self) -> None:
        from proctor.store.migrations import upgrade

        with self._engine.begin() as connection:
            connection.execute(text("SET LOCAL lock_timeout = 0"))
            connection.execute(text("SET LOCAL statement_timeout = 0"))
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _UPGRADE_LOCK})
            connection.execute(text(f"SET LOCAL lock_timeout = '{_LOCK_S}s'"))
            upgrade(connection)
            if connection.execute(_COPIED).scalar():
                for statement in _RENUMBER:
                    connection.execute(statement)

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        """A connection from the pool, which is given back whatever happened to it."""
        engine = self._live()
        with self._explained(connecting=True):
            connection = engine.connect()
        try:
            yield connection
        finally:
            with suppress(exc.SQLAlchemyError):
                connection.close()

    def _lost(self, error: BaseException) -> LostError:
        found = LostError(f"{self.where}: PostgreSQL cannot be reached ({first_line(error)})")
        found.wait_s = self._line.wait_s
        return found

    @contextmanager
    def _explained(self, *, connecting: bool = False) -> Iterator[None]:
        try:
            yield
        except exc.IntegrityError as error:
            raise ConflictError(f"{self.where}: {first_line(error)}") from error
        except exc.SQLAlchemyError as error:
            if nothing_done(error, connecting=connecting):
                raise self._lost(error) from error
            if not isinstance(error, exc.OperationalError):
                raise StoreError(f"{self.where}: PostgreSQL refused: {first_line(error)}") from error
            raise StoreError(
                f"{self.where}: PostgreSQL cannot be reached or timed out ({first_line(error)}); "
                "check that it runs, that the address is right and that no other session locks the tables"
            ) from error


class _PostgresTransaction:
    """Statements on a connection with a transaction."""

    __slots__ = ("_connection", "_wording", "wrote_events")

    def __init__(self, connection: Connection, wording: Wording) -> None:
        self._connection = connection
        self._wording = wording
        self.wrote_events = 0

    def execute(self, sql: str, params: Params = _NO_PARAMS, /) -> Sequence[Row]:
        result = self._run(sql, self._wording.params(params))
        return result.all() if result.returns_rows else []

    def change(self, sql: str, params: Params = _NO_PARAMS, /) -> int:
        return self._run(sql, self._wording.params(params)).rowcount

    def many(self, sql: str, params: Iterable[Params], /) -> None:
        rest = iter(self._wording.each(params))
        while piece := list(islice(rest, _PIECE)):
            self._run(sql, piece)

    def events(self, sql: str, params: Sequence[Params], /) -> None:
        first = self.wrote_events
        self.wrote_events += len(params)
        if self.wrote_events > 1 << _ID_BITS:
            raise StoreError(f"one transaction may write {1 << _ID_BITS:,} events, not more")
        self.many(sql, ({**each, "nth": nth} for nth, each in enumerate(params, first)))

    def _run(self, sql: str, params: Params | list[Params]) -> CursorResult[Any]:
        return self._connection.execute(_text(self._wording.sql(sql)), params)


def _revision(connection: Connection) -> str | None:
    if connection.execute(text(f"SELECT to_regclass('{VERSION_TABLE}')")).scalar() is None:
        return None
    found: str | None = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    return found


@lru_cache(maxsize=256)
def _text(sql: str) -> TextClause:
    return text(sql)
