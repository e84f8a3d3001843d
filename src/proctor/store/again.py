"""Do an operation of the store again when the connection was lost before anything was committed.

Each operation is one transaction and changes nothing but the database, so one that left no trace may be
repeated. Whether it left one is known: a commit that was not answered is looked up (`postgres.py`).
"""

from __future__ import annotations

import functools
import inspect
import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from proctor.errors import StoreError

_log = logging.getLogger("proctor.store")
C = TypeVar("C", bound=type)
T = TypeVar("T")
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
hurried = threading.Event()
"""Set while this process ends with nothing to save: a store that is away is then tried only once more."""


class LostError(StoreError):
    """The connection was lost, or the server gave up a transaction; nothing of it was committed."""

    wait_s: float = 0.0
    """For how long it is worth trying again; 0: that time is over."""


def repeatable(cls: C) -> C:
    """Let every public method of a class be repeated. Not for methods that give rows as they come."""
    for name, found in list(vars(cls).items()):
        if not name.startswith("_") and inspect.isfunction(found) and not inspect.isgeneratorfunction(found):
            setattr(cls, name, _repeated(found))
    return cls


def _repeated(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **more: Any) -> Any:
        try:
            return method(*args, **more)
        except LostError as error:
            return repeat(lambda: method(*args, **more), error)

    return call


def repeat(call: Callable[[], T], first: LostError) -> T:
    """What a call returns once it goes through; the last error when that takes longer than it is worth."""
    error, began, pause_s = first, time.monotonic(), _FIRST_PAUSE_S
    if first.wait_s:
        _log.warning("%s; waiting up to %.0f s for it", first, first.wait_s)
    while time.monotonic() - began + pause_s < error.wait_s:
        last = hurried.wait(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - callers should not come at once
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        try:
            return call()
        except LostError as again:
            error = again
        if last:
            break
    error.wait_s = 0.0
    raise error
