"""What a back end must offer: rows for a statement, and transactions. Both back ends run the same SQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from proctor.errors import StoreError

Row = Sequence[Any]
Params = Mapping[str, Any]

HEAD = "0004"
"""The newest schema revision this version knows; a test holds it to the migrations."""
VERSION_TABLE = "proctor_schema"
"""Where Alembic keeps the revision: its usual name could be another program's in a shared database."""


class ConflictError(StoreError):
    """A row with that identity exists already; nothing was written."""


class Transaction(Protocol):
    """Statements that commit together or not at all."""

    def execute(self, sql: str, params: Params = ..., /) -> Sequence[Row]:
        """Run one statement with `:named` parameters; the rows it returns, if any."""

    def change(self, sql: str, params: Params = ..., /) -> int:
        """Run one statement that returns no rows; how many rows it changed."""

    def many(self, sql: str, params: Iterable[Params], /) -> None:
        """Run one statement once per set of parameters."""


class Database(Protocol):
    """One open database. Safe to share between threads."""

    where: str
    """Its address, without a password, for messages."""
    row_lock: str
    """Appended to a SELECT whose rows the transaction will change; empty where writers queue anyway."""
    event_barrier: str
    """Run before events are read, so that no smaller id can appear later; empty where ids commit in order."""

    def read(self, sql: str, params: Params = ..., /) -> Sequence[Row]:
        """The rows of one query."""

    def write(self) -> AbstractContextManager[Transaction]:
        """A transaction: commits at the end of the block, rolls back when it raises.

        Inside another one of the same thread it joins that one.
        """

    def check(self) -> list[str]:
        """What is wrong with the database itself; empty when it is sound."""

    def close(self) -> None:
        """Let go of every connection. Safe to call twice."""


def refuse_unknown(revision: str, where: str) -> None:
    """Raise unless this version knows the schema revision."""
    if not revision.isdigit() or int(revision) > int(HEAD):
        raise StoreError(
            f"{where}: the store has schema {revision} and this version of Proctor knows up to {HEAD}; "
            "it was written by a newer Proctor. Upgrade Proctor, or choose another store with PROCTOR_STORE"
        )
