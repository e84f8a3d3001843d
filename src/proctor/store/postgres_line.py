"""The line to a PostgreSQL server: what an address may ask of it, its time-outs, and what its errors mean."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

from proctor.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from psycopg import Connection, Error

_REFUSED = ("28", "3D", "42501")
"""Beginnings of the codes of a server that knows us not, or not the database: waiting does not help."""
_NOTHING_DONE = {"40001", "40P01", "25006", "57P01", "57P02", "57P03", "57P05", "53300"}
"""Codes of transactions that the server gave up, and of servers that stop, start or cannot write yet."""
_SAYS_A_POOLER = ("unsupported startup parameter", "command-line options")
"""What poolers answer to who asks for settings of the session when it connects."""
_ADDRESS = re.compile(
    r"""[\w+]+://
    (?:(?P<user>[^:/]*)(?::(?P<password>[^@]*))?@)?
    (?P<host>\[[^/?\]]+\]|[^/:?]*)(?::(?P<port>\d+))?
    (?:/(?P<database>[^?]*))?(?:\?(?P<query>.*))?""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Address:
    """A database of a server. `query`: options of libpq."""

    user: str = ""
    password: str | None = field(default=None, repr=False)
    host: str = ""
    port: str = ""
    database: str = ""
    query: dict[str, str] = field(default_factory=dict)

    def text(self, shown: str | None) -> str:
        """As a URL, with something in the place of the password; None: without one."""
        user = quote(self.user, safe="")
        user += f":{shown}" if self.password is not None and shown is not None else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = f":{self.port}" if self.port else ""
        query = f"?{urlencode(self.query, quote_via=quote)}" if self.query else ""
        return f"postgresql://{user}{'@' if user else ''}{host}{port}/{quote(self.database)}{query}"

    def options(self) -> dict[str, str]:
        """What the driver takes."""
        named = {
            "user": self.user,
            "password": self.password or "",
            "host": self.host,
            "port": self.port,
            "dbname": self.database,
        }
        return {name: value for name, value in named.items() if value} | self.query


@dataclass(frozen=True, slots=True)
class Line:
    """How to talk to the server; each is an option of the store's address."""

    connections: int = 32
    """The most connections of one process."""
    wait_s: float = 60.0
    """How long an operation waits for a server that went away."""
    statement_timeout_s: float = 300.0
    """How long one statement may take."""
    idle_timeout_s: float = 300.0
    """How long a transaction may stand still before the server ends it: its process may hang."""


def parse(url: str) -> tuple[Address, Line]:
    """The address for the driver, and our options, which are taken out of it."""
    found = _ADDRESS.fullmatch(url)
    if not found:
        raise UsageError(
            "invalid store address: it is not of the form postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        )
    query: dict[str, str] = {}
    for name, value in parse_qsl(found["query"] or "", keep_blank_values=True):
        query[name] = f"{query[name]},{value}" if name in query else value
    own: dict[str, Any] = {
        name: _amount(name, query.pop(name), whole=kind == "int")
        for name, kind in Line.__annotations__.items()
        if name in query
    }
    password = found["password"]
    address = Address(
        unquote(found["user"] or ""),
        None if password is None else unquote(password),
        unquote(found["host"]).strip("[]"),
        found["port"] or "",
        unquote(found["database"] or ""),
        query,
    )
    return address, Line(**own)


def _amount(name: str, text: str, *, whole: bool) -> float:
    try:
        found = int(text) if whole else float(text)
    except ValueError:
        found = -1
    if not (1 if whole else 0) <= found <= 86_400:
        raise UsageError(f"invalid store address: {name}={text} is not a number from {int(whole)} to 86400")
    return found


def refuse_pooler(url: str, what: str) -> None:
    """UsageError where a pooler is between: what a program sets for its session it would leave to others."""
    address, line = parse(url)
    connect = Connector(address, line, 30.0)
    connect().close()
    if connect.pooled:
        raise UsageError(
            f"{address.text('***')}: {what} cannot go through a connection pooler; "
            "set PROCTOR_STORE to the server's own address for this command"
        )


def check_driver() -> None:
    """MissingExtraError where it is not installed."""
    try:
        import psycopg  # noqa: F401 - it is there
    except ImportError as error:
        raise MissingExtraError("psycopg", "postgres", "a PostgreSQL store") from error


class Connector:
    """Makes connections with the time-outs; those that the address names are left alone.

    A pooler between us and the server (PgBouncer) gives every transaction to any of its sessions: what one
    has set, prepared or listens to is not there in the next. So nothing is left to a session then.
    """

    def __init__(self, address: Address, line: Line, busy_s: float) -> None:
        self._address = address
        limits_s = {
            "lock_timeout": busy_s,
            "statement_timeout": line.statement_timeout_s,
            "idle_in_transaction_session_timeout": line.idle_timeout_s,
        }
        self._limits_ms = {
            name: max(1, round(seconds * 1000)) if seconds else 0 for name, seconds in limits_s.items()
        }
        self.pooled: bool | None = None
        """Whether a pooler is between; None: not known before the first connection."""

    @property
    def of_each_transaction(self) -> str:
        """The statement that a transaction begins with, because its session cannot hold the time-outs."""
        each = (f"set_config('{name}', '{value}', true)" for name, value in self._limits_ms.items())
        return f"SELECT {', '.join(each)}" if self.pooled else ""

    def __call__(self, *, autocommit: bool = True) -> Connection[Any]:
        """A new connection."""
        from psycopg import OperationalError

        if self.pooled is None:
            try:
                made = self._made(autocommit=True)
            except OperationalError as error:
                if not any(each in str(error) for each in _SAYS_A_POOLER):
                    raise
                self.pooled = True
            else:
                # A pooler has numbers of its own for the sessions of its clients.
                found = made.execute("SELECT pg_backend_pid()").fetchone()
                self.pooled = bool(found and found[0] != made.info.backend_pid)
                if not self.pooled and autocommit:
                    return made
                made.close()
        return self._made(autocommit=autocommit)

    def _made(self, *, autocommit: bool) -> Connection[Any]:
        settings: dict[str, Any] = {
            "connect_timeout": 10,
            "client_encoding": "utf8",  # databases made in the C locale have none, and would answer in bytes
            "application_name": f"proctor {socket.gethostname()[:30]} {os.getpid()}",
            # A server whose machine is gone is noticed after a minute at most, also by who only listens.
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "tcp_user_timeout": 60_000,
        }
        if self.pooled:
            settings["prepare_threshold"] = None
        else:
            settings["options"] = " ".join(f"-c {name}={value}" for name, value in self._limits_ms.items())
        from psycopg import Connection

        return Connection.connect(autocommit=autocommit, **(settings | self._address.options()))


def code_of(error: BaseException) -> str:
    """PostgreSQL's code of an error; empty when the server did not say one."""
    return str(getattr(error, "sqlstate", None) or "")


def nothing_done(error: Error, connection: Connection[Any] | None) -> bool:
    """Whether an error before COMMIT may pass, and the server has kept nothing of the transaction.

    Without a connection none was made.
    """
    from psycopg import OperationalError

    code = code_of(error)
    if code.startswith(_REFUSED):
        return False
    if connection is None or not code:  # it is not the server that says so, but its line
        return isinstance(error, OperationalError)
    return code in _NOTHING_DONE or connection.closed


def first_line(error: BaseException) -> str:
    """What the server said, in one line."""
    return str(error).strip().partition("\n")[0]
