"""For commands that read a run, say something and end: no looking for garbage meanwhile."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def without_collections(function: Callable[P, T]) -> Callable[P, T]:
    """What a command has read is needed to its end: millions of objects, and no cycle among them.

    Looking through them again and again costs a third of the time.
    """

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        enabled = gc.isenabled()
        gc.disable()
        try:
            return function(*args, **kwargs)
        finally:
            if enabled:
                gc.enable()

    return called
