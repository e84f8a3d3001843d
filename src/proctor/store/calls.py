"""Call a store from an event loop: in a thread of its own where each call waits for another machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from proctor.store.store import Store

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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for what is still being called."""
        if self._thread is not None:
            self._thread.shutdown()
