"""What a back end must offer: rows for a statement, and transactions. Both back ends run the same SQL."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar

from proctor.errors import StoreError

Row = Sequence[Any]
Params = Mapping[str, Any]
Clock = Callable[[], float]
"""Seconds since 1970."""

HEAD = "0013"
"""The newest schema revision this version knows; a test holds it to the migrations."""
VERSION_TABLE = "proctor_schema"
"""Where Alembic keeps the revision: its usual name could be another program's in a shared database."""
P = ParamSpec("P")
T = TypeVar("T")

_SIGNS = (ValueError, LookupError, TypeError, AttributeError, RecursionError, zlib.error)


class ConflictError(StoreError):
    """A row with that identity exists already; nothing was written."""


class NewerSchemaError(StoreError):
    """A newer Proctor has upgraded the store: waiting does not help."""


class Wording:
    """Statements in a back end's own words: `{now}`, `{row_lock}` and such become its SQL.

    `{now}` is the database's clock, so that workers whose clocks differ agree on when a lease ends. A test's
    clock takes its place as the parameter `:now`.
    """

    def __init__(self, *, clock: Clock | None, **words: str) -> None:
        self._clock = clock
        self._words = words | ({"now": ":now"} if clock else {})
        self._known: dict[str, str] = {}

    def sql(self, sql: str) -> str:
        """The statement as the back end takes it."""
        known = self._known.get(sql)
        if known is None:
            known = sql
            for word, meaning in self._words.items():
                known = known.replace(f"{{{word}}}", meaning)
            self._known[sql] = known
        return known

    def params(self, params: Params) -> Params:
        """The parameters, with the time when a test's clock gives it."""
        return {**params, "now": self._clock()} if self._clock else params

    def each(self, params: Iterable[Params]) -> Iterable[Params]:
        """The same for many."""
        return map(self.params, params) if self._clock else params


class Transaction(Protocol):
    """Statements that commit together or not at all."""

    def execute(self, sql: str, params: Params = ..., /) -> Sequence[Row]:
        """Run one statement with `:named` parameters; the rows it returns, if any."""

    def change(self, sql: str, params: Params = ..., /) -> int:
        """Run one statement that returns no rows; how many rows it changed."""

    def many(self, sql: str, params: Iterable[Params], /) -> None:
        """Run one statement once per set of parameters."""

    def events(self, sql: str, params: Sequence[Params], /, *, now: bool = False) -> None:
        """As `many`, for statements that write an event each: their ids increase, and readers are woken.

        Unless it must be `now`, it is by the end of the transaction.
        """


class Database(Protocol):
    """One open database. Safe to share between threads."""

    where: str
    """Its address, without a password, for messages."""
    remote: bool
    """Whether a call waits for another process, perhaps on another machine."""

    def read(self, sql: str, params: Params = ..., /) -> Sequence[Row]:
        """The rows of one query."""

    def write(self) -> AbstractContextManager[Transaction]:
        """A transaction: commits at the end of the block, rolls back when it raises. They do not nest."""

    def mark(self) -> int:
        """The moment to wait from. Taken before one reads, so that nothing slips in between."""

    def wait(self, mark: int, timeout_s: float) -> None:
        """Return when something may have been committed since the mark, at the latest after `timeout_s`."""

    def check(self) -> list[str]:
        """What is wrong with the database itself; empty when it is sound."""

    def another(self) -> Database:
        """The same database on connections of its own; itself, where every thread has its own already."""

    def close(self) -> None:
        """Let go of every connection. Safe to call twice."""


def refuse_unknown(revision: str, where: str) -> None:
    """Raise unless this version knows the schema revision."""
    if not revision.isdigit() or int(revision) > int(HEAD):
        raise NewerSchemaError(
            f"{where}: the store has schema {revision} and this version of Proctor knows up to {HEAD}; "
            "it was written by a newer Proctor. Upgrade Proctor, or choose another store with PROCTOR_STORE"
        )


def damaged(error: object) -> StoreError:
    """The error for a row that cannot be what was written."""
    return StoreError(
        f"a row of the store is damaged ({error}). 'proctor doctor' checks the store; "
        "'proctor import' reads run folders into a new one"
    )


def decodes(function: Callable[P, T]) -> Callable[P, T]:
    """Say that a row is damaged when it cannot be decoded."""

    @wraps(function)
    def careful(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except _SIGNS as error:
            raise damaged(error) from error

    return careful


def decodes_each(function: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """The same for a generator."""

    @wraps(function)
    def careful(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from function(*args, **kwargs)
        except _SIGNS as error:
            raise damaged(error) from error

    return careful
