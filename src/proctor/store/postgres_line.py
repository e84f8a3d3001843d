"""The line to a PostgreSQL server: what an address may ask of it, its time-outs, and what its errors mean."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Any

from sqlalchemy import URL, Engine, create_engine, exc
from sqlalchemy.engine import make_url

from proctor.errors import MissingExtraError, UsageError

_REFUSED = ("28", "3D", "42501")
"""Beginnings of the codes of a server that knows us not, or not the database: waiting does not help."""
_NOTHING_DONE = {"40001", "40P01", "25006", "57P01", "57P02", "57P03", "57P05", "53300"}
"""Codes of transactions that the server gave up, and of servers that stop, start or cannot write yet."""


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


def parse(url: str) -> tuple[URL, Line]:
    """The address for the driver, and our options, which are taken out of it."""
    try:
        address = make_url(url)
    except (exc.ArgumentError, ValueError) as error:
        raise UsageError(f"invalid store address: {error}") from error
    own: dict[str, Any] = {}
    for name, kind in Line.__annotations__.items():
        if name in address.query:
            own[name] = _amount(name, str(address.query[name]), whole=kind == "int")
    return address.difference_update_query(list(own)), Line(**own)


def _amount(name: str, text: str, *, whole: bool) -> float:
    try:
        found = int(text) if whole else float(text)
    except ValueError:
        found = -1
    if not (1 if whole else 0) <= found <= 86_400:
        raise UsageError(f"invalid store address: {name}={text} is not a number from {int(whole)} to 86400")
    return found


def connect(address: URL, line: Line, busy_s: float) -> Engine:
    """An engine whose every connection has the time-outs; those that the address names are left alone."""
    limits = {
        "lock_timeout": busy_s,
        "statement_timeout": line.statement_timeout_s,
        "idle_in_transaction_session_timeout": line.idle_timeout_s,
    }
    settings: dict[str, Any] = {
        "connect_timeout": 10,
        "client_encoding": "utf8",  # databases made in the C locale have none, and would answer in bytes
        "application_name": f"proctor {socket.gethostname()[:30]} {os.getpid()}",
        "options": " ".join(
            f"-c {name}={max(1, round(seconds * 1000)) if seconds else 0}" for name, seconds in limits.items()
        ),
        # A server whose machine is gone is noticed after a minute at most, also by who only listens.
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": 60_000,
    }
    kept = min(4, line.connections)
    try:
        return create_engine(
            address,
            pool_pre_ping=True,
            pool_size=kept,
            max_overflow=line.connections - kept,
            pool_timeout=max(busy_s, 1.0),
            connect_args={name: value for name, value in settings.items() if name not in address.query},
        )
    except ImportError as error:
        raise MissingExtraError("psycopg", "postgres", "a PostgreSQL store") from error


def code_of(error: BaseException) -> str:
    """PostgreSQL's code of an error; empty when the server did not say one."""
    return str(getattr(getattr(error, "orig", None) or error, "sqlstate", None) or "")


def nothing_done(error: exc.SQLAlchemyError, *, connecting: bool) -> bool:
    """Whether an error before COMMIT may pass, and the server has kept nothing of the transaction."""
    code = code_of(error)
    if code.startswith(_REFUSED):
        return False
    if connecting:
        return isinstance(error, exc.OperationalError)
    return code in _NOTHING_DONE or bool(getattr(error, "connection_invalidated", False))


def first_line(error: BaseException) -> str:
    """What the server said, in one line."""
    cause = getattr(error, "orig", None) or error
    return str(cause).strip().partition("\n")[0]
