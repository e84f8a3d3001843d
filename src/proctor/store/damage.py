"""What is read from the store is what was written, or a StoreError: a disk may have changed a byte."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from proctor.errors import StoreError

P = ParamSpec("P")
T = TypeVar("T")

_SIGNS = (ValueError, LookupError, TypeError, AttributeError, RecursionError, zlib.error)


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
