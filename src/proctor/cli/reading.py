"""Settings for short commands that read a run and end: no garbage collection, no helper threads."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_THREADS = "OPENBLAS_NUM_THREADS"


def undisturbed(function: Callable[P, T]) -> Callable[P, T]:
    """Without looking for garbage, and without threads that help numpy and mostly wait.

    What a command has read is needed to its end: millions of objects and no cycle among them, and looking
    through them again and again costs a third of the time. Threads spin while they wait for the next product
    of small matrices, which costs another third; only a numpy that is not loaded yet can be told.
    """

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        enabled, threads = gc.isenabled(), os.environ.get(_THREADS)
        gc.disable()
        os.environ.setdefault(_THREADS, "1")
        try:
            return function(*args, **kwargs)
        finally:
            if threads is None:
                del os.environ[_THREADS]
            if enabled:
                gc.enable()

    return called
