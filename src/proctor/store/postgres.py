"""PostgreSQL through psycopg, for a store that many machines share.

Statements go to the driver as they are: every trial of every worker makes some ten of them.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

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
from proctor.store.postgres_line import Connector, check_driver, code_of, first_line, nothing_done, parse
from proctor.store.postgres_pool import Pool

if TYPE_CHECKING:
    from psycopg import Connection, Cursor

_NO_PARAMS: Params = {}
_ID_BITS = 16
"""How many events a transaction may write, as a power of two."""
_PLACE_LOCK = 0x5072_6374
"""With the number of a place, an advisory lock: its workers promise the memory that they share one by one."""
_CHANNEL = "proctor_events"
_NOTIFY_S = 0.05
"""At most this often a process wakes readers: a commit that notifies waits for others that do."""
_POOLED_S = 0.5
"""How often readers look where a pooler is between, which loses what a session listens to."""
_WORDS = {
    "now": "CAST(extract(epoch FROM clock_timestamp()) AS double precision)",
    "row_lock": "FOR UPDATE OF t SKIP LOCKED",
    "wait_lock": "FOR UPDATE OF t",
    "place_lock": f"pg_advisory_xact_lock({_PLACE_LOCK}, CAST(:place_number AS integer))",
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
_AT = f"(SELECT at FROM events WHERE id = (CAST(CAST({{number}} AS text) AS bigint) << {_ID_BITS}) + :nth)"
_NUMBER = "pg_current_xact_id_if_assigned()"
_MARK = f"SELECT CAST({_NUMBER} AS text), {_AT.format(number=_NUMBER)}"
_MARK_AND_NOTIFY = f"{_MARK}, pg_notify('{_CHANNEL}', '')"
_FATE = f"SELECT pg_xact_status(CAST(CAST(:number AS text) AS xid8)), {_AT.format(number=':number')}"
_COPIED = (
    "SELECT max(id) >= (CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS bigint) "
    f"<< {_ID_BITS}) FROM events"
)
"""Whether events are of transactions that this server has yet to number: they are a copy of another's."""
_RENUMBER = (
    "LOCK TABLE events IN ACCESS EXCLUSIVE MODE",
    """
    UPDATE events SET id = -ranked.nth FROM
    (SELECT id, row_number() OVER (ORDER BY id) AS nth FROM events) ranked WHERE events.id = ranked.id
    """,
    "UPDATE events SET id = -id",
)
"""In two steps: an id may not be given twice even for a moment."""


class _Mark(NamedTuple):
    """By what a transaction is known again.

    A server that crashed gives the numbers of transactions of which nothing was written a second time, so
    the number alone is not enough where there is an event to look at.
    """

    number: str
    nth: int
    at: float | None


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
        check_driver()
        self.where = address.text("***")
        self._connect = Connector(address, self._line, busy_s)
        self._pool = Pool(self._opened, self._line.connections, max(busy_s, 1.0))
        try:
            self._prepare()
        except BaseException:
            self._pool.close()
            raise

    def read(self, sql: str, params: Params = _NO_PARAMS, /) -> Sequence[Row]:
        """The rows of one query; asked again when the connection is lost."""
        try:
            return self._read(sql, params)
        except LostError as error:
            return repeat(lambda: self._read(sql, params), error)

    def _read(self, sql: str, params: Params) -> Sequence[Row]:
        with self._live().connection() as connection, self._explained(connection):
            return _PostgresTransaction(connection, self._wording).execute(sql, params)

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """A transaction, on a connection of its own.

        LostError: it was not committed, and can be made again. When only the answer to COMMIT is lost, the
        server is asked what became of it: what is known to be committed is no error.
        """
        from psycopg import OperationalError

        with self._live().connection() as connection:
            connection.autocommit = False
            transaction = _PostgresTransaction(connection, self._wording)
            with self._explained(connection):
                if limits := self._connect.of_each_transaction:
                    connection.execute(limits)
                self._look(transaction)
                yield transaction
                mark = transaction.end(notify=self._may_notify)
            with self._explained(connection):
                try:
                    connection.commit()
                except OperationalError as error:
                    # Also when the server says that it ends the connection: it may have committed before.
                    lost = error
                    connection.close()
                else:
                    return
        if mark and not self._was_committed(mark, lost):
            raise self._lost(lost) from lost

    def _may_notify(self) -> bool:
        now = time.monotonic()
        if now - self._notified < _NOTIFY_S:
            return False
        self._notified = now
        return True

    def _was_committed(self, mark: _Mark, lost: Exception) -> bool:
        """What became of a transaction whose COMMIT was not answered."""

        def ask() -> bool:
            try:
                fate, at = self._read(_FATE, {"number": mark.number, "nth": mark.nth})[0]
            except StoreError as error:
                if code_of(error.__cause__ or error) == "22023":  # another server took over without it
                    return False
                raise
            if fate == "in progress":
                raise self._lost(lost)
            return bool(fate == "committed" and at == mark.at)

        try:
            return repeat(ask, self._lost(lost))
        except LostError as error:
            raise StoreError(
                f"{self.where}: PostgreSQL went away while it committed, and was not back within "
                f"{self._line.wait_s:.0f} s ({first_line(lost)}); whether the last change was kept is unknown"
            ) from error

    def mark(self) -> int:
        """Begin to listen, if this thread does not yet: what is written from now on ends a `wait`."""
        self._live()
        if not self._connect.pooled and getattr(self._mine, "listener", None) is None:
            try:
                self._listen()
            except LostError as error:
                repeat(self._listen, error)
        return 0

    def _listen(self) -> None:
        from psycopg import Error

        listener = self._opened()
        try:
            listener.execute(f"LISTEN {_CHANNEL}")
        except Error as error:
            listener.close()
            raise self._lost(error) from error
        self._mine.listener = listener
        self._listeners.append(listener)
        if not self._open:  # looked at afterwards: `close` may have come in between
            listener.close()

    def wait(self, mark: int, timeout_s: float) -> None:
        """Return when another transaction has written events, or after `timeout_s`.

        Also when the connection is lost: what came meanwhile is read, and the next `mark` listens again.
        """
        del mark
        from psycopg import Error

        if self._connect.pooled:  # nobody can listen: readers look again
            time.sleep(min(timeout_s, _POOLED_S))
            return
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

    def another(self) -> PostgresDatabase:
        """Itself: each thread takes a connection of the pool while it reads."""
        return self

    def close(self) -> None:
        """Close every connection."""
        was_open, self._open = self._open, False
        if was_open and self._pid == os.getpid():
            for listener in self._listeners:
                listener.close()
            self._pool.close()

    def _live(self) -> Pool:
        if not self._open:
            raise StoreError(f"{self.where}: the store is closed")
        if self._pid != os.getpid():
            # A forked child must not talk on its parent's connections, nor close them.
            self._pool.forget()
            self._mine = threading.local()
            self._left_to_parent, self._listeners = self._listeners, []
            self._pid = os.getpid()
        return self._pool

    def _opened(self) -> Connection[Any]:
        with self._explained(None):
            return self._connect()

    def _look(self, transaction: _PostgresTransaction) -> None:
        """Refuse to write what a newer Proctor, which has upgraded the store meanwhile, would not."""
        if time.monotonic() - self._looked > _LOOK_S:
            self._looked = time.monotonic()
            refuse_unknown(_revision(transaction) or "missing", self.where)

    def _prepare(self) -> None:
        with self._pool.connection() as connection, self._explained(connection):
            transaction = _PostgresTransaction(connection, self._wording)
            revision = _revision(transaction)
            if revision == HEAD and not transaction.execute(_COPIED)[0][0]:
                return
        if revision is not None:
            refuse_unknown(revision, self.where)
        deadline = time.monotonic() + _UPGRADE_S
        while not self._upgrade():
            # Another session works on a table: let those go on that wait behind us, and come again.
            if time.monotonic() > deadline:
                raise StoreError(f"{self.where}: the tables are in use, and the schema cannot be upgraded")
            time.sleep(_LOCK_S / 4)

    def _upgrade(self) -> bool:
        """Whether it was done; not while another session works on a table."""
        from psycopg.errors import InsufficientPrivilege, LockNotAvailable

        from proctor.store.migrations import transaction_on, upgrade

        with self._explained(None):
            driver = self._connect(autocommit=False)
        with self._explained(driver):
            try:
                with transaction_on(lambda: driver) as connection:
                    run = connection.exec_driver_sql
                    run("SET LOCAL lock_timeout = 0")
                    run("SET LOCAL statement_timeout = 0")
                    run(f"SELECT pg_advisory_xact_lock({_UPGRADE_LOCK})")
                    run(f"SET LOCAL lock_timeout = '{_LOCK_S}s'")
                    upgrade(connection)
                    for statement in _RENUMBER if run(_COPIED).scalar() else ():
                        run(statement)
            except LockNotAvailable:
                return False
            except InsufficientPrivilege as error:
                raise StoreError(
                    f"{self.where}: the schema must be upgraded; this role may not ({first_line(error)}): "
                    "run 'proctor db upgrade' as the owner of the tables, then 'proctor db worker-role'"
                ) from error
        return True

    def _lost(self, error: BaseException) -> LostError:
        found = LostError(f"{self.where}: PostgreSQL cannot be reached ({first_line(error)})")
        found.wait_s = self._line.wait_s
        return found

    @contextmanager
    def _explained(self, connection: Connection[Any] | None) -> Iterator[None]:
        """Errors of the driver in our words. `connection`: None while one is being made."""
        from psycopg import Error, IntegrityError, OperationalError

        try:
            yield
        except IntegrityError as error:
            raise ConflictError(f"{self.where}: {first_line(error)}") from error
        except Error as error:
            if nothing_done(error, connection):
                raise self._lost(error) from error
            if not isinstance(error, OperationalError):
                raise StoreError(f"{self.where}: PostgreSQL refused: {first_line(error)}") from error
            raise StoreError(
                f"{self.where}: PostgreSQL cannot be reached or timed out ({first_line(error)}); "
                "check that it runs, that the address is right and that no other session locks the tables"
            ) from error


class _PostgresTransaction:
    """Statements on a connection."""

    __slots__ = ("_cursor", "_later", "_wording", "_wrote_events")

    def __init__(self, connection: Connection[Any], wording: Wording) -> None:
        self._cursor: Cursor[Any] = connection.cursor()
        self._wording = wording
        self._later: dict[str, list[Params]] = {}
        """Events by their statement: all that one transaction has go in one round trip."""
        self._wrote_events = 0

    def execute(self, sql: str, params: Params = _NO_PARAMS, /) -> Sequence[Row]:
        found = self._run(sql, params)
        return found.fetchall() if found.description else []

    def change(self, sql: str, params: Params = _NO_PARAMS, /) -> int:
        return self._run(sql, params).rowcount

    def many(self, sql: str, params: Iterable[Params], /) -> None:
        statement = _named(self._wording.sql(sql))
        rest = iter(self._wording.each(params))
        while piece := list(islice(rest, _PIECE)):
            self._cursor.executemany(statement, piece)

    def events(self, sql: str, params: Sequence[Params], /, *, now: bool = False) -> None:
        first = self._wrote_events
        self._wrote_events += len(params)
        if self._wrote_events > 1 << _ID_BITS:
            raise StoreError(f"one transaction may write {1 << _ID_BITS:,} events, not more")
        numbered = [{**each, "nth": nth} for nth, each in enumerate(params, first)]
        if now:
            self.many(sql, numbered)
        else:
            self._later.setdefault(sql, []).extend(numbered)

    def end(self, *, notify: Callable[[], bool]) -> _Mark | None:
        """Write what is left, and wake readers if that may be; None: nothing was changed."""
        last = {"nth": max((rows[-1]["nth"] for rows in self._later.values()), default=-1)}
        for sql, params in self._later.items():
            self.many(sql, params)
        number, at, *_ = self.execute(_MARK_AND_NOTIFY if self._wrote_events and notify() else _MARK, last)[0]
        return _Mark(number, last["nth"], at) if number else None

    def _run(self, sql: str, params: Params) -> Cursor[Any]:
        return self._cursor.execute(_named(self._wording.sql(sql)), self._wording.params(params))


def _revision(transaction: _PostgresTransaction) -> str | None:
    if transaction.execute(f"SELECT to_regclass('{VERSION_TABLE}')")[0][0] is None:
        return None
    found = transaction.execute(f"SELECT version_num FROM {VERSION_TABLE}")
    return found[0][0] if found else None


@lru_cache(maxsize=512)
def _named(sql: str) -> str:
    """A statement with its parameters as the driver writes them: `%(name)s` for `:name`."""
    return re.sub(r"(?<![:\w]):(\w+)(?!:)", r"%(\1)s", sql.replace("%", "%%"))
