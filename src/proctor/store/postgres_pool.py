"""Connections that threads use in turns; a few stay open between uses."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from proctor.errors import StoreError

if TYPE_CHECKING:
    from psycopg import Connection

_KEPT = 4
"""How many stay open while nobody uses them."""


class Pool:
    """Connections of one process to one server. They are in autocommit: who wants a transaction says so."""

    def __init__(self, connect: Callable[[], Connection[Any]], most: int, patience_s: float) -> None:
        self._connect = connect
        self._most = most
        self._patience_s = patience_s
        self._places = threading.BoundedSemaphore(most)
        self._free: list[Connection[Any]] = []
        self._closed = False

    @contextmanager
    def connection(self) -> Iterator[Connection[Any]]:
        """One that works, for the length of the block; what was not committed is rolled back."""
        if not self._places.acquire(timeout=self._patience_s):
            raise StoreError(
                f"all {self._most} connections of this process to PostgreSQL were in use for "
                f"{self._patience_s:g} s; give the store's address a larger 'connections'"
            )
        try:
            found = self._taken()
            try:
                yield found
            finally:
                self._give_back(found)
        finally:
            self._places.release()

    def close(self) -> None:
        """Close those that nobody uses, and the others as soon as they are given back."""
        self._closed = True
        self._close_free()

    def _close_free(self) -> None:
        with suppress(IndexError):
            while True:
                self._free.pop().close()

    def forget(self) -> None:
        """Let go of all without a word to the server: they are another process's."""
        self._left_to_parent, self._free = self._free, []
        self._places = threading.BoundedSemaphore(self._most)

    def _taken(self) -> Connection[Any]:
        with suppress(IndexError):  # to look first would not help: another thread may take the last one
            while True:
                found = self._free.pop()
                if _is_quiet(found):
                    return found
                found.close()
        return self._connect()

    def _give_back(self, connection: Connection[Any]) -> None:
        from psycopg import Error

        with suppress(Error):
            if not connection.autocommit:
                connection.rollback()
                connection.autocommit = True
            if not connection.closed and len(self._free) < _KEPT:
                self._free.append(connection)
                if self._closed:  # looked at afterwards: `close` may have come in between
                    self._close_free()
                return
        connection.close()


def _is_quiet(connection: Connection[Any]) -> bool:
    """Whether a server has said nothing meanwhile: it speaks unasked when it ends a connection."""
    looked = select.poll()
    looked.register(connection.fileno(), select.POLLIN)
    return not looked.poll(0)
