"""The role of workers in PostgreSQL: it executes trials, and sees nothing of accounts, keys and the audit.

Keys of providers reach a worker from the server, for the run that it executes, and never from the store.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from proctor.errors import StoreError, UsageError
from proctor.store.database import VERSION_TABLE
from proctor.store.postgres_line import parse, refuse_pooler

if TYPE_CHECKING:
    from collections.abc import Iterator

_ALL = "SELECT, INSERT, UPDATE, DELETE"
RIGHTS = {
    VERSION_TABLE: "SELECT",
    "runs": "SELECT",
    "run_service": "SELECT",
    "run_inputs": "SELECT",
    "coordinators": "SELECT",
    "projects": "SELECT",
    "trials": "SELECT, UPDATE (state, fence, attempts, ready_at, worker, expires_at, started_at, outcome)",
    "attempts": "SELECT, INSERT",
    "run_counts": "SELECT, INSERT, UPDATE",
    "events": "SELECT, INSERT",
    "blob_refs": "SELECT, INSERT",
    "workers": _ALL,
    "gateways": _ALL,
    "limits": _ALL,
    "limit_shares": _ALL,
    "portions": _ALL,
    "model_calls": _ALL,
    "spending": "SELECT, INSERT, UPDATE",
    "shared_layers": _ALL,
}
"""Table → what a worker does with it. `projects` has quotas, by which demand is counted."""
CLOSED = frozenset(
    {
        "answers",
        "audit",
        "members",
        "provider_keys",
        "schedules",
        "sessions",
        "tokens",
        "trial_comments",
        "trial_labels",
        "uploads",
        "users",
        "webhooks",
    }
)
"""Tables of which a worker sees nothing."""
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def set_up(url: str, name: str, password: str | None) -> str:
    """Make the role, or bring its rights up to date; the database that it may connect to.

    The address must be that of the owner of the tables. Without a password the role keeps the one it has.
    """
    from psycopg import Error, connect
    from psycopg.conninfo import make_conninfo

    if not _NAME.fullmatch(name):
        raise UsageError(f"'{name}' is no name for a role: lower-case letters, digits and _ are allowed")
    address, _ = parse(url)
    try:
        refuse_pooler(url, "making a role")
        with connect(make_conninfo(**address.options())) as connection:
            (owner, database), *_ = connection.execute("SELECT current_user, current_database()").fetchall()
            if owner == name:
                raise UsageError(f"'{name}' is the role of this very address; workers need another one")
            known = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [name]).fetchone()
            if not known:
                connection.execute(f"CREATE ROLE {name} LOGIN")
            if password:
                # What the server's log of statements would show is no password then.
                encoded = connection.pgconn.encrypt_password(
                    password.encode(), name.encode(), b"scram-sha-256"
                )
                connection.execute(f"ALTER ROLE {name} PASSWORD '{encoded.decode()}'")
            for statement in _grants(name, str(database)):
                connection.execute(statement)
    except Error as error:
        raise StoreError(
            f"{address.text('***')}: the role {name} was not made: {str(error).strip()}"
        ) from error
    return str(database)


def _grants(name: str, database: str) -> Iterator[str]:
    quoted = '"' + database.replace('"', '""') + '"'
    yield f"GRANT CONNECT ON DATABASE {quoted} TO {name}"
    yield f"GRANT USAGE ON SCHEMA public TO {name}"
    for table in sorted(CLOSED | RIGHTS.keys()):
        yield f"REVOKE ALL ON {table} FROM {name}"
    for table, rights in RIGHTS.items():
        yield f"GRANT {rights} ON {table} TO {name}"
