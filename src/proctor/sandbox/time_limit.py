"""How long a command may take: a number, or what is allowed so far where its clock may stand still."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

Seconds = float | Callable[[], float]
"""A function is asked again when what it allowed is over."""
_AT_LEAST_S = 0.1
"""How long to wait before it is asked again: while a clock stands still, what is left stays as it is."""


async def ends_within(future: asyncio.Future[Any], limit: Seconds | None) -> bool:
    """Wait for a future; whether it is done when its time is over."""
    if not callable(limit):
        return bool((await asyncio.wait([future], timeout=limit))[0])
    now = asyncio.get_running_loop().time
    began = now()
    while (left_s := limit() - (now() - began)) > 0:
        if (await asyncio.wait([future], timeout=max(left_s, _AT_LEAST_S)))[0]:
            return True
    return future.done()
