"""Large answers as bytes: made one at a time, and once for as long as the runs they rest on do not change."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from proctor.server.problem import Problem
from proctor.server.reading.reading import Reading
from proctor.server.reading.run_rows import OVER
from proctor.server.route import JSON
from proctor.server.state import State
from proctor.store.store import Store

NEW_S = 1.0
SHARE = 0.05
"""Of a processor that one answer may take while its run goes on."""

Make = Callable[[Store, Reading], dict[str, Any]]


async def made_once(shared: State, key: Hashable, runs: Sequence[str], make: Make) -> Response:
    """The answer under a key about some runs.

    Of runs that go on it is a second old, or twenty times as long as it takes to make: then keeping it new
    takes a twentieth of a processor, however large the run is and however many watch it.
    """
    now = shared.clock()
    found: bytes | None = await shared.store(_known, shared.reading, key, runs, now)
    if found is None:
        found = await shared.heavy(_made, shared.reading, key, runs, now, make)
    return Response(found, media_type=JSON)


def _known(store: Store, reading: Reading, key: Hashable, runs: Sequence[str], now: float) -> bytes | None:
    stamp, going = _stamp(store, runs)
    return _fresh(reading, key, stamp, now, going=going)


def _fresh(reading: Reading, key: Hashable, stamp: object, now: float, *, going: bool) -> bytes | None:
    found = reading.answers.get(key, stamp)
    return found if not going or now < (reading.due.get(key, stamp) or 0.0) else None


def _made(
    store: Store, reading: Reading, key: Hashable, runs: Sequence[str], now: float, make: Make
) -> bytes:
    stamp, going = _stamp(store, runs)
    known = _fresh(reading, key, stamp, now, going=going)
    if known is not None:
        return known
    began = time.thread_time()
    written = msgspec.json.encode(make(store, reading))
    if going:
        took_s = time.thread_time() - began
        reading.due.put(key, now + max(NEW_S, took_s / SHARE), stamp=stamp)
    return reading.answers.put(key, written, stamp=stamp, weight=len(written))


def _stamp(store: Store, runs: Sequence[str]) -> tuple[object, bool]:
    """What an answer holds for, and whether any of the runs goes on: of those only the time counts."""
    stamps: list[object] = []
    for run in runs:
        found = store.views.runs.listed(limit=1, id=run)
        if not found:
            raise Problem("not_found", f"There is no run '{run}'")
        stamps.append(found[0].stamp if found[0].status in OVER else None)
    return tuple(stamps), None in stamps
