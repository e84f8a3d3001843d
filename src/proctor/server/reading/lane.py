"""A lane for what takes long: one call after the other, in a thread that holds up no stop of the server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Concatenate, ParamSpec, TypeVar

from proctor.store.open import StorePool
from proctor.store.store import Store

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Lane:
    """Calls functions of a store; used like `StoreThreads`."""

    def __init__(self, stores: StorePool) -> None:
        self._stores = stores
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self.closed = False

    async def __call__(
        self, function: Callable[Concatenate[Store, _P], _T], *args: _P.args, **more: _P.kwargs
    ) -> _T:
        """What the function returns for a store and the arguments."""
        return await asyncio.wrap_future(self.later(function, *args, **more))

    def later(
        self, function: Callable[Concatenate[Store, _P], _T], *args: _P.args, **more: _P.kwargs
    ) -> Future[_T]:
        """The same, without waiting for it."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="proctor-lane", daemon=True)
            self._thread.start()
        future: Future[_T] = Future()
        self._calls.put((future, partial(self._stores.now, function, *args, **more)))
        return future

    def close(self) -> None:
        """Take no more calls; the present one goes on for as long as the process does."""
        self.closed = True
        self.close_after()

    def close_after(self) -> None:
        """End when what was asked for so far is done."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None and not self.closed:
            future, function = call
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001 - whoever asked is told
                with suppress(Exception):
                    future.set_exception(error)
