"""SQLite through the standard library: a current store opens without importing SQLAlchemy.

Writers queue on BEGIN IMMEDIATE; the write-ahead log lets readers go on meanwhile.
"""

from __future__ import annotations

import errno
import functools
import os
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from proctor.disk import private_folder
from proctor.errors import StoreError
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

APPLICATION_ID = 0x50726374
"""Marks the file as ours, so that tables are never added to someone else's database."""
OLDEST_SQLITE = (3, 37, 0)
"""STRICT tables; RETURNING and UPDATE … FROM are older."""
_LOG_PAGES = 4000
"""After how many pages the log is written back, 16 MB: most of them change again and again meanwhile."""
_POLL_S = 0.05
"""How often to look whether somebody has committed, at most."""
_LOOK_S = 10.0
"""How often a process looks whether a newer Proctor has changed the schema meanwhile."""
_NO_PARAMS: Params = {}
_WORDS = {
    "now": "((julianday('now') - 2440587.5) * 86400.0)",
    "row_lock": "",
    "wait_lock": "",
    "place_lock": "0",
    "event_id": "NULL",
    "settled": "1 = 1",
}
"""`unixepoch('subsec')` would be shorter and is of SQLite 3.42. Writers queue, so events commit in order."""


class SqliteDatabase:
    """One SQLite file, or `:memory:`. One connection behind a lock: writers would queue in any case."""

    remote = False

    def __init__(self, path: str, *, busy_s: float = 30.0, clock: Clock | None = None) -> None:
        self.where = path
        self._clock = clock
        self._wording = Wording(clock=clock, **_WORDS)
        self._busy_s = busy_s
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._looked = time.monotonic()
        self._read_only = False
        self._connection: sqlite3.Connection | None = self._open()

    def read(self, sql: str, params: Params = _NO_PARAMS, /) -> Sequence[Row]:
        """The rows of one query."""
        with self._lock, self._explained():
            wording = self._wording
            rows: list[Row] = self._live().execute(wording.sql(sql), wording.params(params)).fetchall()
            return rows

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """A transaction that holds the write lock from its start."""
        with self._lock:
            connection = self._live()
            if self._read_only:
                raise StoreError(_READ_ONLY.format(path=self.where))
            with self._explained():
                connection.execute("BEGIN IMMEDIATE")
                try:
                    self._look(connection)
                    yield _SqliteTransaction(connection, self._wording)
                    connection.execute("COMMIT")
                except BaseException:
                    with suppress(sqlite3.Error):
                        if connection.in_transaction:
                            connection.execute("ROLLBACK")
                    raise

    def _look(self, connection: sqlite3.Connection) -> None:
        """Refuse to write what a newer Proctor, which has upgraded the store meanwhile, would not."""
        if time.monotonic() - self._looked > _LOOK_S:
            self._looked = time.monotonic()
            refuse_unknown(self._revision(connection) or "missing", self.where)

    def mark(self) -> int:
        """A number that changes whenever anybody commits. Reading it costs microseconds and no disk."""
        with self._lock, self._explained():
            connection = self._live()
            # The pragma counts the commits of other connections only.
            theirs: int = connection.execute("PRAGMA data_version").fetchone()[0]
            return (theirs << 32) + connection.total_changes

    def wait(self, mark: int, timeout_s: float) -> None:
        """Return when anybody has committed since the mark, or after `timeout_s`."""
        deadline, pause_s = time.monotonic() + timeout_s, 0.002
        while self.mark() == mark and (left_s := deadline - time.monotonic()) > 0:
            time.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 2, _POLL_S)

    def check(self) -> list[str]:
        """SQLite's own integrity and foreign key checks."""
        try:
            found = [str(row[0]) for row in self.read("PRAGMA integrity_check(20)") if row[0] != "ok"]
            orphans = self.read("PRAGMA foreign_key_check")
        except StoreError as error:
            return [str(error)]
        return found + [f"a row of {row[0]} belongs to no {row[2]}" for row in orphans[:20]]

    def another(self) -> SqliteDatabase:
        """The same file on another connection. What is in memory has one only."""
        if self.where == ":memory:":
            return self
        return SqliteDatabase(self.where, busy_s=self._busy_s, clock=self._clock)

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
                _leave(self.where)
            self._connection = None

    def _live(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreError(f"{self.where}: the store is closed")
        if self._pid != os.getpid():
            # A forked child must not touch its parent's connection; the parent goes on using it.
            _LEFT_TO_PARENT.append(self._connection)
            self._pid = os.getpid()
            self._connection = self._open()
        return self._connection

    def _open(self) -> sqlite3.Connection:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise StoreError(
                f"SQLite {sqlite3.sqlite_version} is too old: 3.37 or newer is needed, or a PostgreSQL store"
            )
        with self._explained():
            if self.where == ":memory:":
                connection = self._connect(self.where)
            else:
                connection = self._open_file(Path(self.where))
            _enter(self.where)
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                _leave(self.where)
                raise
            return connection

    def _open_file(self, path: Path) -> sqlite3.Connection:
        if path.is_dir():
            raise StoreError(f"{path}: is a folder, but the store must be a file; name a file in it")
        if path.exists() and not _writable(path):
            self._read_only = True
            return self._open_read_only(path)
        try:
            private_folder(path.parent)
        except OSError as error:
            raise StoreError(
                f"{path.parent}: the folder of the store cannot be created ({error.strerror}); "
                "set PROCTOR_HOME to a folder you can write to"
            ) from error
        with suppress(OSError):  # it is there, or the driver says what is wrong
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        return self._connect(str(path))

    def _open_read_only(self, path: Path) -> sqlite3.Connection:
        """Without write access there can be no shared memory, so a log that was left cannot be read."""
        log = path.with_name(path.name + "-wal")
        if log.exists() and log.stat().st_size:
            raise StoreError(
                f"{path}: the folder is read-only and the store was not closed cleanly; "
                f"copy {path.name} and {log.name} to a folder you can write to and read them there"
            )
        return self._connect(f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)

    def _connect(self, target: str, *, uri: bool = False) -> sqlite3.Connection:
        return sqlite3.connect(
            target,
            timeout=self._busy_s,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=128,
            uri=uri,
        )

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA foreign_keys = ON")
        revision = self._revision(connection)
        if self._read_only:
            if revision != HEAD:
                raise StoreError(
                    f"{self.where}: schema {revision or 'missing'} must be "
                    "upgraded, but the store is not writable"
                )
            return
        if revision is None:
            self._create(connection)
        elif revision != HEAD:
            refuse_unknown(revision, self.where)
            from proctor.store.migrations import upgrade_sqlite

            upgrade_sqlite(self.where)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")

    def _revision(self, connection: sqlite3.Connection) -> str | None:
        """The schema revision; None for an empty file."""
        # In this order: another process may make the store between the two looks, tables and owner at once.
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        owner = connection.execute("PRAGMA application_id").fetchone()[0]
        if owner == APPLICATION_ID:
            row = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
            return str(row[0]) if row else None
        if owner or tables:
            raise StoreError(
                f"{self.where}: this is a SQLite database of another program; nothing was changed. "
                "Name another file with PROCTOR_STORE or PROCTOR_HOME"
            )
        return None

    def _create(self, connection: sqlite3.Connection) -> None:
        self._log_ahead(connection)
        connection.execute("BEGIN IMMEDIATE")
        try:
            if self._revision(connection) is None:
                for statement in schema_statements():
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise

    def _log_ahead(self, connection: sqlite3.Connection) -> None:
        """Switch to the write-ahead log. SQLite does not wait when another process is switching too."""
        deadline = time.monotonic() + self._busy_s
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > deadline:
                    raise
                time.sleep(0.005)
            else:
                return

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise ConflictError(f"{self.where}: {error}") from error
        except sqlite3.Error as error:
            raise _explain(error, self.where) from error
        except UnicodeDecodeError as error:  # SQLite's own message quotes a damaged schema
            raise StoreError(f"{self.where}: {_EXPLANATIONS['SQLITE_CORRUPT']} ({error})") from error


class _SqliteTransaction:
    """Statements on the connection that holds the write lock."""

    __slots__ = ("_connection", "_wording")

    def __init__(self, connection: sqlite3.Connection, wording: Wording) -> None:
        self._connection = connection
        self._wording = wording

    def execute(self, sql: str, params: Params = _NO_PARAMS, /) -> Sequence[Row]:
        wording = self._wording
        rows: list[Row] = self._connection.execute(wording.sql(sql), wording.params(params)).fetchall()
        return rows

    def change(self, sql: str, params: Params = _NO_PARAMS, /) -> int:
        return self._connection.execute(self._wording.sql(sql), self._wording.params(params)).rowcount

    def many(self, sql: str, params: Iterable[Params], /) -> None:
        self._connection.executemany(self._wording.sql(sql), self._wording.each(params))

    def events(self, sql: str, params: Sequence[Params], /, *, now: bool = False) -> None:
        del now  # it always is
        self.many(sql, params)


_OPEN: Counter[str] = Counter()
"""Files that connections of this process have open, by their real paths."""
_NAMES: tuple[str, ...] = ()
"""How the names of these files end, and of those beside them."""
_BESIDE = ("", "-wal", "-shm")


def _enter(where: str) -> None:
    """A connection opens a file: from now on nothing else of this process may.

    The kernel drops all of a process's locks on a file when the process closes any descriptor of it. One read
    of the file elsewhere, and another process takes itself for the only one and removes the log in use.
    """
    if not _OPEN:
        _watch()
    _OPEN[os.path.realpath(where)] += 1
    _name_open_files()


def _leave(where: str) -> None:
    path = os.path.realpath(where)
    _OPEN[path] -= 1
    if _OPEN[path] <= 0:
        del _OPEN[path]
    _name_open_files()


def _name_open_files() -> None:
    global _NAMES  # noqa: PLW0603 - one process, one set of open files
    _NAMES = tuple(os.path.basename(path) + end for path in _OPEN for end in _BESIDE)  # noqa: PTH119


@functools.cache
def _watch() -> None:
    """Look at every file that Python opens; the driver opens its own by itself."""

    def refuse(event: str, args: tuple[object, ...]) -> None:
        if event != "open" or isinstance(args[0], int):
            return
        name = args[0] if isinstance(args[0], str) else os.fsdecode(args[0])  # type: ignore[arg-type]
        if name.endswith(_NAMES):
            path = os.path.realpath(name)
            if path in _OPEN or path[:-4] in _OPEN:
                raise PermissionError(errno.EPERM, _IN_USE, name)

    sys.addaudithook(refuse)


_IN_USE = "the store, which is in use here and may be read only by its driver"

_LEFT_TO_PARENT: list[sqlite3.Connection] = []
"""Connections that belong to the process this one was forked from: kept, so that they are not closed here."""

_READ_ONLY = "{path}: the store is readable but not writable; check who owns the file and its folder"

_EXPLANATIONS = {
    "SQLITE_FULL": "the disk is full; free some space and try again. What was stored before is intact",
    "SQLITE_READONLY": "the store is readable but not writable; check who owns the file and its folder",
    "SQLITE_CANTOPEN": "the file cannot be opened; check that its folder exists and that you may write there",
    "SQLITE_PERM": "the file cannot be opened; check who owns it",
    "SQLITE_BUSY": (
        "another process has locked the store for too long; wait until it has finished and try again"
    ),
    "SQLITE_LOCKED": "another part of this process has locked the store; try again",
    "SQLITE_NOTADB": "this file is not a SQLite database; nothing was changed. "
    "Name another file with PROCTOR_STORE or PROCTOR_HOME",
    "SQLITE_CORRUPT": "the store is damaged. Move it aside and read the run folders into a new one "
    "with 'proctor import', or try 'sqlite3 FILE .recover'",
    "SQLITE_IOERR": "the disk refused to read or write (full, over a quota or a size limit, or failing). "
    "What was stored before is intact",
}


def _explain(error: sqlite3.Error, where: str) -> StoreError:
    name: str = getattr(error, "sqlite_errorname", None) or ""
    for known, sentence in _EXPLANATIONS.items():
        if name == known or name.startswith(f"{known}_"):
            return StoreError(f"{where}: {sentence} ({error})")
    return StoreError(f"{where}: SQLite refused: {error}")


def _writable(path: Path) -> bool:
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def schema_statements() -> list[str]:
    """The newest schema as SQL: made from `tables.py`, and held equal to the migrations by a test."""
    text = Path(__file__).with_name("schema.sql").read_text()
    return [statement.strip() for statement in text.split(";\n") if statement.strip()]
