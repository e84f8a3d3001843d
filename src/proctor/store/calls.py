"""Call a store from an event loop: in threads where calls take long, or wait for another machine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

from proctor.errors import StoreError
from proctor.store.open import StorePool
from proctor.store.store import Store

_log = logging.getLogger("proctor.store")
_P = ParamSpec("_P")
_T = TypeVar("_T")


class StoreCalls:
    """Calls functions that use a store, one at a time, without holding up the loop that serves sandboxes.

    SQLite is called directly: a commit takes less time than the way to a thread and back.
    """

    def __init__(self, store: Store) -> None:
        self._thread = ThreadPoolExecutor(1, "proctor-store") if store.remote else None

    async def __call__(self, function: Callable[_P, _T], *args: _P.args, **more: _P.kwargs) -> _T:
        """What the function returns or raises."""
        if self._thread is None:
            return function(*args, **more)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(function, *args, **more))

    def later(self, function: Callable[_P, object], *args: _P.args, **more: _P.kwargs) -> None:
        """Call it without waiting; what it raises is logged."""

        def call() -> None:
            try:
                function(*args, **more)
            except StoreError as error:
                _log.warning("%s", error)

        if self._thread is None:
            call()
        else:
            self._thread.submit(call)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for what is still being called."""
        if self._thread is not None:
            self._thread.shutdown()


class StoreThreads:
    """Calls functions of a store in threads, so that the loop goes on answering meanwhile."""

    def __init__(self, stores: StorePool, threads: int) -> None:
        self._stores = stores
        self._threads = ThreadPoolExecutor(threads, "proctor-store")

    async def __call__(
        self, function: Callable[Concatenate[Store, _P], _T], *args: _P.args, **more: _P.kwargs
    ) -> _T:
        """What the function returns for a store and the arguments."""
        loop = asyncio.get_running_loop()
        call = partial(self._stores.now, function, *args, **more)
        return await loop.run_in_executor(self._threads, call)

    def close(self) -> None:
        """Wait for what is under way."""
        self._threads.shutdown()
